"""`/settings/servers`: MCP servers are added, tried, logged in to, switched and removed. A change is live at once."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

from fastapi import APIRouter, Request
from starlette.responses import Response

from satchel.config import McpServerSettings, Settings, new_mcp_server
from satchel.errors import ConfigError, NotFound, UsageError
from satchel.runtime import Satchel
from satchel.runtime.lines import counted
from satchel.runtime.servers import (
    TRY_S,
    KnownServer,
    add_server,
    change_server,
    kept_apart,
    known_servers,
    log_out,
    remove_server,
    start_of,
    switch_server,
    try_server,
)
from satchel.server.pages.kept import PlannedServer, ServerLogin, kept_of
from satchel.server.pages.queries import FieldReader, part_of
from satchel.server.pages.rendering import Form, Saying, State, form_of
from satchel.server.pages.settings import settings_now
from satchel.server.pages.site import page, see_other
from satchel.server.service import Serves, Service
from satchel.tools.mcp import McpStatus

router = APIRouter(include_in_schema=False)

_HERE: Final = "/settings/servers"
_FIELDS: Final = ("kind", "name", "command", "url", "client_id")
"""What a form that can't be used is filled with again; its values may be secret, and are not sent back."""
_MOST_TOOLS: Final = 15
_MOST_USES: Final = 10
_LOGIN_S: Final = 600.0
_ADDRESS_S: Final = 30.0
"""For the authorization server to be found, and for the login to end once the browser came back."""
_STATES: Final[Mapping[str, tuple[State, str]]] = {
    "idle": ("waits", "starts with its first call"),
    "starting": ("running", "starting"),
    "ready": ("on", "running"),
    "down": ("failed", "unavailable"),
    "off": ("off", "off"),
}


@router.get("/settings/servers")
async def servers(request: Request, service: Serves) -> Response:
    """All of them, and the forms to add one."""
    return await _list(request, service)


async def _list(
    request: Request, service: Service, *, given: Mapping[str, str] = {}, problem: str = ""
) -> Response:
    now = await settings_now(service.satchel.settings)
    states = {status.server: status for status in service.satchel.mcp.status()}
    part = part_of(FieldReader.of(request), _HERE, _MOST_TOOLS, known_servers(now))
    return await page(
        request,
        "servers.html",
        title="MCP servers",
        status=422 if problem else 200,
        servers=[(server, _state(states.get(server.name), enabled=server.enabled)) for server in part.shown],
        part=part,
        given={**dict.fromkeys(_FIELDS, ""), **given},
        problem=problem,
    )


def _state(status: McpStatus | None, *, enabled: bool) -> tuple[State, str]:
    if status is None or not enabled:
        return ("off", "off") if not enabled else ("waits", "used after “Test”")
    return _STATES[status.state]


# ---- Adding


@router.post("/settings/servers")
async def plan(request: Request, service: Serves) -> Response:
    """Show what a server would run, before it is saved."""
    form = await form_of(request)
    settings = await settings_now(service.satchel.settings)
    try:
        entry = new_mcp_server(form.get("name"), _table(form), place="The entry", folder=settings.cwd)
        if entry.name in settings.mcp_servers:
            raise UsageError(f"There is an MCP server {entry.name} already.")
        entry, values = kept_apart(settings, entry, client_secret=form.get("client_secret"))
    except (ConfigError, UsageError) as error:
        given = {name: form.get(name) for name in _FIELDS}
        return await _list(request, service, given=given, problem=str(error))
    return await _plan(request, settings, PlannedServer(entry=entry, values=values))


async def _plan(request: Request, settings: Settings, planned: PlannedServer) -> Response:
    entry = planned.entry
    return await page(
        request,
        "server-plan.html",
        title=f"{'Change' if planned.is_change else 'Add'} {entry.name}",
        current="/settings",
        entry=entry,
        is_change=planned.is_change,
        start=start_of(settings, entry),
        planned=kept_of(request).servers.keep(planned),
        is_auto=settings.agent.mode == "auto",
    )


def _table(form: Form) -> dict[str, Any]:
    """The form as a table of the settings file, with secrets in it.

    Raises:
        UsageError: A line can't be read; its words are not repeated, because they may be secret.
    """
    if form.get("kind") == "program":
        words = _words(form.get("command"))
        return {"command": words[0], "args": words[1:], "env": _pairs(form.get("env"), r"=")}
    headers = _pairs(form.get("headers"), r"[:=]")
    token = form.get("token")
    if token:
        headers["Authorization"] = token if " " in token else f"Bearer {token}"
    table: dict[str, Any] = {"url": form.get("url"), "headers": headers}
    if form.get("client_id"):
        table["oauth_client_id"] = form.get("client_id")
    return table


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError:
        raise UsageError("The command has a quote without its end.") from None
    if not words:
        raise UsageError("Say which command starts the server.")
    return words


def _pairs(text: str, separator: str) -> dict[str, str]:
    pairs = {}
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            name, *value = re.split(rf"\s*{separator}\s*", line.strip(), maxsplit=1)
            if not name or not value or not value[0]:
                raise UsageError(f"Line {number} is not a name and its value.")
            pairs[name] = value[0]
    return pairs


@router.post("/settings/servers/save")
async def save(request: Request, service: Serves) -> Response:
    """Save what was shown."""
    form = await form_of(request)
    planned = kept_of(request).servers.get(form.get("planned"))
    if planned is None:
        say = Saying(
            text="That was too long ago, and nothing was saved. Fill in the form again.", state="failed"
        )
        return see_other(request, _HERE, say=say)
    settings, name = await settings_now(service.satchel.settings), planned.entry.name
    if planned.is_change:
        await change_server(settings, planned.entry, values=planned.values)
    else:
        add_server(settings, planned.entry, values=planned.values)
    await _use(service.satchel)
    if form.get("start"):
        return see_other(request, f"{_HERE}/{name}", say=await _tried(service.satchel, name))
    done = "changed" if planned.is_change else "added"
    return see_other(
        request, f"{_HERE}/{name}", say=Saying(text=f"{name} was {done}. Conversations can use it now.")
    )


# ---- Changing


@router.get("/settings/servers/{name}/edit")
async def edit(request: Request, service: Serves, name: str) -> Response:
    """What it runs or connects to, without anything that may be secret."""
    return await _edit(request, await settings_now(service.satchel.settings), name)


async def _edit(
    request: Request, settings: Settings, name: str, *, typed: str = "", problem: str = ""
) -> Response:
    known, entry = _known(settings, name)
    plain = shlex.join((entry.command, *entry.args)) if entry.command else entry.url
    return await page(
        request,
        "server-edit.html",
        title=f"Change {name}",
        current="/settings",
        status=422 if problem else 200,
        server=known,
        entry=entry,
        values=entry.env if entry.command else entry.headers,
        # What is masked is typed anew.
        place=typed or (plain if plain == known.address else ""),
        problem=problem,
    )


def _known(settings: Settings, name: str) -> tuple[KnownServer, McpServerSettings]:
    known = next((each for each in known_servers(settings) if each.name == name), None)
    if known is None:
        raise NotFound(f"There is no MCP server {name[:80]!r}.")
    return known, settings.mcp_servers[name]


@router.post("/settings/servers/{name}/edit")
async def plan_change(request: Request, service: Serves, name: str) -> Response:
    """Show what it would run or connect to, before that is saved."""
    form = await form_of(request)
    settings = await settings_now(service.satchel.settings)
    _, before = _known(settings, name)
    try:
        new = new_mcp_server(name, _changed(form, before), place="The entry", folder=settings.cwd)
        entry = replace(
            before, command=new.command, args=new.args, env=new.env, url=new.url, headers=new.headers
        )
        entry, values = kept_apart(settings, entry)
    except (ConfigError, UsageError) as error:
        return await _edit(request, settings, name, typed=form.get("place"), problem=str(error))
    return await _plan(request, settings, PlannedServer(entry=entry, values=values, is_change=True))


def _changed(form: Form, before: McpServerSettings) -> dict[str, Any]:
    """The entry as `_table` gives it: what the form leaves empty stays.

    Raises:
        UsageError: A line can't be read, or another server would get what was given for this one.
    """
    place, part, separator = (
        form.get("place"),
        "env" if before.command else "headers",
        "=" if before.command else "[:=]",
    )
    values = {
        name: form.get(f"value.{name}") or value
        for name, value in (before.env if before.command else before.headers).items()
        if not form.has(f"gone.{name}")
    } | _pairs(form.get("more"), separator)
    if not before.command:
        url = place or before.url
        kept = [name for name, value in values.items() if before.headers.get(name) == value]
        if before.oauth_env_client_secret and urlsplit(url)[:2] != urlsplit(before.url)[:2]:
            raise UsageError(
                "The client secret was given for the address before. Remove the server, and add it with the new one."
            )
        if kept and urlsplit(url)[:2] != urlsplit(before.url)[:2]:
            raise UsageError(
                f"{kept[0]} was given for the address before. Give the one of the new address as well, or remove it."
            )
        return {"url": url, part: values}
    words = _words(place) if place.strip() else [before.command, *before.args]
    return {"command": words[0], "args": words[1:], part: values}


async def _use(satchel: Satchel) -> None:
    await satchel.use_servers(await settings_now(satchel.settings))


# ---- One server


@router.get("/settings/servers/{name}")
async def server(request: Request, service: Serves, name: str) -> Response:
    """How it is, its tools, and what they did lately."""
    satchel, kept = service.satchel, kept_of(request)
    now = await settings_now(satchel.settings)
    known, entry = _known(now, name)
    status = next((each for each in satchel.mcp.status() if each.server == name), None)
    prefix = f"mcp__{name}__"
    uses = await kept.lately.uses(prefix)
    last = {use.tool: use for use in reversed(uses)}
    times = Counter(use.tool for use in uses)
    tools = [tool.spec for tool in satchel.mcp.known() if tool.spec.name.startswith(prefix)]
    part = part_of(FieldReader.of(request), f"{_HERE}/{name}", _MOST_TOOLS, tools)
    return await page(
        request,
        "server.html",
        title=name,
        current="/settings",
        server=known,
        entry=entry,
        live=status if entry.enabled else None,
        why=_why(status) if status is not None else "",
        state=_state(status, enabled=entry.enabled),
        is_own=known.file == str(now.config_path),
        tools=[
            (spec, spec.name.removeprefix(prefix), times[spec.name], last.get(spec.name))
            for spec in part.shown
        ],
        part=part,
        uses=uses[:_MOST_USES],
        prefix=prefix,
        login=kept.logins.get(name),
        can_log_in=known.has_login or (status is not None and _login_of(name) in status.reason),
    )


@router.post("/settings/servers/{name}/test")
async def test(request: Request, service: Serves, name: str) -> Response:
    """Start it and have it list what it offers."""
    await _use(service.satchel)
    return see_other(request, f"{_HERE}/{name}", say=await _tried(service.satchel, name))


async def _tried(satchel: Satchel, name: str) -> Saying:
    settings = satchel.settings
    if name in settings.mcp_servers and settings.mcp_servers[name].enabled:
        # The one that conversations use, so that they have its tools at once.
        status = next(each for each in await satchel.mcp.refresh(TRY_S, only=name) if each.server == name)
    else:
        status = (await try_server(settings, name)).status
    if status.state == "ready":
        text = f"{name} works: {counted(len(status.tools), 'tool')}, protocol {status.protocol}."
        return Saying(text=text, meta=" ".join(status.problems))
    reason = _why(status) or "it did not start in time"
    return Saying(
        text=f"{name} is unavailable: {reason}.", state="failed", meta=f"Its output is in {status.log}."
    )


def _why(status: McpStatus) -> str:
    """Why it is down, as a clause for somebody who has the page."""
    return status.reason.replace(f": {_login_of(status.server)}", " (“Log in”)")


def _login_of(name: str) -> str:
    """What the reason of a server that asks for a login ends with; see `LoginNeeded`."""
    return f"satchel mcp-server login {name}"


@router.post("/settings/servers/{name}/switch")
async def switch(request: Request, service: Serves, name: str) -> Response:
    """Switch it on or off."""
    enabled = (await form_of(request)).get("to") == "on"
    switch_server(await settings_now(service.satchel.settings), name, enabled=enabled)
    await _use(service.satchel)
    text = (
        f"{name} is on. Conversations can use it now." if enabled else f"{name} is off. Its tools are gone."
    )
    return see_other(request, f"{_HERE}/{name}", say=Saying(text=text))


@router.post("/settings/servers/{name}/approve")
async def approve(request: Request, service: Serves, name: str) -> Response:
    """Approve what the server says of itself now."""
    form = await form_of(request)
    wanted, satchel = form.get("tool"), service.satchel
    waiting = {each.name: each.now.sha256 for each in satchel.mcp.withheld(f"mcp__{name}__*")}
    if wanted not in waiting:
        raise NotFound(f"Nothing of {name[:80]} waits for approval under this name.")
    if waiting[wanted] != form.get("sha256"):
        raise UsageError(f"{wanted} has changed since this page was shown. Look at it again.")
    await satchel.mcp.approve(wanted)
    return see_other(
        request, f"{_HERE}/{name}", say=Saying(text=f"{wanted} was approved. It is used from now on.")
    )


@router.post("/settings/servers/{name}/remove")
async def remove(request: Request, service: Serves, name: str) -> Response:
    """Remove it, with its login, its approvals and its values."""
    login = kept_of(request).logins.pop(name, None)
    if login is not None:
        login.cancel()
    done = await remove_server(await settings_now(service.satchel.settings), name)
    await _use(service.satchel)
    problem = done.logged_out.problem if done.logged_out is not None else ""
    meta = f"Revoking its login failed ({problem}): it stays valid until it expires." if problem else ""
    return see_other(request, _HERE, say=Saying(text=f"{name} was removed from {done.file}.", meta=meta))


# ---- Logins


@router.post("/settings/servers/{name}/login")
async def log_in_to(request: Request, service: Serves, name: str) -> Response:
    """Begin a login; the page then shows where to go."""
    satchel, logins = service.satchel, kept_of(request).logins
    settings = await settings_now(satchel.settings)
    before = logins.pop(name, None)
    if before is not None:
        before.cancel()
    login = ServerLogin()

    async def use() -> None:
        await _use(satchel)
        await satchel.mcp.refresh(TRY_S, only=name)

    satchel.parts.background.start(partial(login.run, settings, name, then=use, limit_s=_LOGIN_S))
    await login.begun(_ADDRESS_S)
    if name in settings.mcp_servers:
        logins[name] = login
    return see_other(request, f"{_HERE}/{name}")


@router.post("/settings/servers/{name}/login/address")
async def paste(request: Request, name: str) -> Response:
    """Take the address that a browser on another machine could not open."""
    login = kept_of(request).logins.get(name)
    address = (await form_of(request)).get("address")
    if login is None or not await login.take(address, _ADDRESS_S):
        text = "That address does not belong to this login. It should begin with http://127.0.0.1:"
        return see_other(request, f"{_HERE}/{name}", say=Saying(text=text, state="failed"))
    return see_other(request, f"{_HERE}/{name}")


@router.post("/settings/servers/{name}/logout")
async def log_out_of(request: Request, service: Serves, name: str) -> Response:
    """Revoke the login and delete its tokens."""
    kept_of(request).logins.pop(name, None)
    satchel = service.satchel
    settings = await settings_now(satchel.settings)
    done = await log_out(settings, name)
    # Its connection has the token in memory. Started again, the server says whether it asks for a login.
    others = {other: entry for other, entry in settings.mcp_servers.items() if other != name}
    await satchel.use_servers(replace(settings, mcp_servers=others))
    await satchel.use_servers(settings)
    await satchel.mcp.refresh(TRY_S, only=name)
    text = "The login was revoked, and its tokens are deleted."
    if not done.was_revoked:
        text = "The tokens are deleted. They could not be revoked, so they stay valid until they expire."
    return see_other(request, f"{_HERE}/{name}", say=Saying(text=text, meta=done.problem))
