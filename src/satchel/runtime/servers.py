"""Management of single MCP servers: their known state, a trial start, logging in and out, and removal."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread

from satchel.clock import Clock, SystemClock
from satchel.config import (
    McpServerSettings,
    Settings,
    add_mcp_servers,
    change_mcp_server,
    mask_address,
    masked_command,
    plain_values,
    remove_mcp_server,
    set_value,
)
from satchel.config.keys import store_values, stored_keys
from satchel.errors import ConfigError, NotFound, SatchelError, UsageError
from satchel.runtime.tooling import mcp_tools
from satchel.tools import Tool
from satchel.tools.mcp import (
    LoginStore,
    McpPrompt,
    McpResource,
    McpStatus,
    McpToolset,
    PinStore,
    filled_in,
    listening,
    read_redirect,
)
from satchel.tools.mcp.definitions import RESERVED
from satchel.tools.mcp.places import fetched_from, folder, program
from satchel.tools.visible import visible

_KEPT: Final = "MCP_"
"""The names of values that are kept for servers begin with this."""
TRY_S = 60.0
"""For a server to list its tools; a package runner may have to download it first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownServer:
    """The known state of a server, without starting it.

    Attributes:
        transport: "stdio", "http" or "sse".
        address: Its command line, or its address without the parts that may be secret.
        file: The settings file or the environment variable that defines it.
        tools: The number of its tools; None if it was never started.
        waiting: The number of definitions that wait for approval.
        has_login: Whether there is a login, which may have expired.
        problem: Why it can't be used, as a sentence, or "".
    """

    name: str
    transport: str
    address: str
    file: str
    enabled: bool
    tools: int | None
    waiting: int
    has_login: bool
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStart:
    """What starting a server would do.

    Attributes:
        command: The whole command line, as a shell would take it; "" for an address.
        program: The path of the program; "" if there is none.
        folder: Where it starts.
        hosts: From where a package runner fetches it first.
    """

    command: str
    program: str
    folder: str
    hosts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedServer:
    """The result of a trial start.

    Attributes:
        resources: Its resources, templates last.
        took_s: Seconds until it had listed its tools.
    """

    status: McpStatus
    tools: tuple[Tool, ...]
    resources: tuple[McpResource, ...]
    prompts: tuple[McpPrompt, ...]
    took_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedIn:
    """The result of a login.

    Attributes:
        issuer: The authorization server; "" if it publishes no metadata.
        scope: The granted scopes, separated by spaces.
        kept_in: Where the tokens are, in words.
    """

    issuer: str
    scope: str
    kept_in: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedOut:
    """The result of a logout.

    Attributes:
        was_revoked: Whether the authorization server revoked the login.
        problem: Why revoking failed, as a clause; "" if it did not, or is not supported.
    """

    was_revoked: bool
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """The result of removing a server; `had_values`: values of its variables and headers were kept in the home."""

    file: str
    had_pins: bool
    had_values: bool
    logged_out: LoggedOut | None


def known_servers(settings: Settings) -> tuple[KnownServer, ...]:
    """Every server in the settings, by name."""
    return tuple(_known(settings, settings.mcp_servers[name]) for name in sorted(settings.mcp_servers))


def _known(settings: Settings, entry: McpServerSettings) -> KnownServer:
    pins, problem, has_login = None, "", False
    try:
        pins = PinStore(settings.home, SystemClock()).load(entry)
        has_login = LoginStore(settings.home).exists(filled_in(entry, settings.secret))
    except SatchelError as error:
        problem = str(error)
    command = masked_command(entry.command, entry.args)
    return KnownServer(
        name=entry.name,
        transport="stdio" if entry.command else entry.transport,
        address=command if entry.command else mask_address(entry.url),
        file=_file_of(settings, entry.name),
        enabled=entry.enabled,
        tools=sum(each.name not in RESERVED for each in pins.offered) if pins is not None else None,
        waiting=len(pins.waiting) if pins is not None else 0,
        has_login=has_login,
        problem=problem,
    )


def start_of(settings: Settings, server: McpServerSettings) -> ServerStart:
    """What starting a server would do. Nothing is started."""
    words = (server.command, *server.args)
    environ = settings.environ
    found = shutil.which(program(server, settings.home, environ), path=environ.get("PATH"))
    start = settings.cwd if settings.project_trusted else settings.home
    return ServerStart(
        command=visible(" ".join(map(shlex.quote, words))) if server.command else "",
        program=found or "",
        folder=str(folder(server, start, environ)),
        hosts=fetched_from(server),
    )


def kept_apart(
    settings: Settings, server: McpServerSettings, *, client_secret: str = ""
) -> tuple[McpServerSettings, Mapping[str, str]]:
    """Take the values of `env` and `headers` out of an entry, so that the settings file holds none.

    A value with a `${VARIABLE}` in it stays. The client secret is kept in the same way.

    Returns:
        The entry, which refers to them, and the values, for `add_server`.
    """
    plain = {place.split(".", 2)[2] for place in plain_values(server)}
    taken = {*settings.environ, *settings.secrets, *stored_keys(settings.home)}
    values: dict[str, str] = {}

    def kept(name: str, value: str) -> str:
        stem = re.sub(r"[^A-Z0-9]", "_", f"{_KEPT}{server.name}_{name}".upper())
        names = (stem, *(f"{stem}_{number}" for number in range(2, 100)))
        variable = next(each for each in names if each not in taken and each not in values)
        values[variable] = value
        return variable

    def apart(given: Mapping[str, str]) -> Mapping[str, str]:
        return {
            name: f"${{{kept(name, value)}}}" if name in plain else value for name, value in given.items()
        }

    changed = replace(server, env=apart(server.env), headers=apart(server.headers))
    if client_secret:
        changed = replace(changed, oauth_env_client_secret=kept("client_secret", client_secret))
    return changed, values


def add_server(
    settings: Settings,
    server: McpServerSettings,
    *,
    path: Path | None = None,
    values: Mapping[str, str] = {},
) -> None:
    """Add a server to a settings file; to the user's own, unless `path` is another. `values` are what `kept_apart` took
    out of it.

    Raises:
        ConfigError: The file has a server of this name, or is invalid; it is unchanged.
        StorageUnwritable: It can't be written.
    """
    path = path or settings.config_path
    with _kept(settings.home, values):
        if not add_mcp_servers(path, (server,)):
            raise ConfigError(
                f"{path} already has an MCP server {server.name}. Remove it first: "
                f"satchel mcp-server remove {server.name}"
            )


@contextmanager
def _kept(home: Path, values: Mapping[str, str]) -> Iterator[None]:
    """Keep values by new names, to which the block lets an entry refer, so that whoever reads the entry finds them.

    Raises:
        ConfigError: A name is not new any more: what was saved meanwhile has its value.
    """
    if not values.keys().isdisjoint(stored_keys(home)):
        raise ConfigError("This was saved already, or another server like it. Look at the list of servers.")
    if values:
        store_values(home, values)
    try:
        yield
    except SatchelError:
        if values:
            store_values(home, dict.fromkeys(values))
        raise


async def change_server(
    settings: Settings, server: McpServerSettings, *, values: Mapping[str, str] = {}
) -> LoggedOut | None:
    """Change a server of the user's own settings. `values` are what `kept_apart` took out of it. Values that nothing
    refers to any more are removed, and so is the login at another address.

    Raises:
        NotFound: There is no such server.
        ConfigError: It is defined elsewhere, or the file is invalid; it is unchanged.
        StorageError: A file can't be written.
    """
    before = _entry(settings, server.name)
    _check_own(settings, server.name)
    logged_out = None
    if before.url != server.url:
        with suppress(ConfigError):  # as in `remove_server`
            logged_out = await _log_out(settings.home, filled_in(before, settings.secret))
    own = _own_values(settings, before)

    def change() -> None:
        with _kept(settings.home, values):
            change_mcp_server(settings.config_path, server)

    await anyio.to_thread.run_sync(change)
    texts = (*server.env.values(), *server.headers.values(), f"${{{server.oauth_env_client_secret}}}")
    gone = {name for name in own if not any(f"${{{name}}}" in text for text in texts)}
    if gone:
        await anyio.to_thread.run_sync(store_values, settings.home, dict.fromkeys(gone))
    return logged_out


def _check_own(settings: Settings, name: str) -> None:
    file = _file_of(settings, name)
    if file != str(settings.config_path):
        raise ConfigError(f"{name} is defined by {file}. Change it there.")


def switch_server(settings: Settings, name: str, *, enabled: bool) -> None:
    """Switch a server of the user's own settings on or off.

    Raises:
        NotFound: There is no such server.
        ConfigError: It is defined elsewhere, or the file is invalid.
    """
    _entry(settings, name)
    _check_own(settings, name)
    set_value(settings.config_path, f"mcp_servers.{name}.enabled", None if enabled else False)


async def try_server(settings: Settings, name: str) -> TriedServer:
    """Start a server, even if it is disabled, and have it list what it offers.

    Raises:
        NotFound: There is no such server.
    """
    entry = replace(_entry(settings, name), enabled=True)
    clock = SystemClock()
    notices: list[str] = []
    async with _toolset(replace(settings, mcp_servers={name: entry}), clock, notices.append) as toolset:
        begun_s = clock.monotonic_s()
        (status,) = await toolset.refresh(TRY_S)
        took_s = clock.monotonic_s() - begun_s
        is_ready = status.state == "ready"
        resources = await toolset.resources() if is_ready else ()
        prompts = await toolset.prompts() if is_ready else ()
        problems = (*status.problems, *(notices if is_ready else ()))
        return TriedServer(
            status=replace(status, problems=problems),
            tools=tuple(tool for tool in toolset.known() if tool.spec.name in status.tools),
            resources=resources,
            prompts=prompts,
            took_s=took_s,
        )


async def log_in(
    settings: Settings,
    name: str,
    *,
    show: Callable[[str], Awaitable[None]],
    pasted: Callable[[Callable[[str], bool]], Coroutine[Any, Any, None]],
    limit_s: float,
) -> LoggedIn:
    """Have the user log in to a server in a browser, and store the tokens.

    Args:
        settings: With the server.
        name: Of the server.
        show: Shows the user the address to open.
        pasted: Called with a function that takes the address to which a browser on another machine was redirected, and
            returns whether it belongs to this login. Cancelled when the login ends.
        limit_s: For the whole login.

    Raises:
        NotFound: There is no such server.
        UsageError: The server is a program, or has an Authorization header.
        SatchelError: The login failed. An earlier login is unchanged.
    """
    entry = filled_in(_entry(settings, name), settings.secret)
    if not entry.url:
        raise UsageError(f"{name} is a program; only servers with an address have a login.")
    if any(header.lower() == "authorization" for header in entry.headers):
        raise UsageError(
            f"[mcp_servers.{name}] headers has an Authorization, which is used in place of a login. Remove it first."
        )
    secret = None
    if entry.oauth_env_client_secret:
        secret = settings.secret(entry.oauth_env_client_secret)
        if secret is None:
            raise ConfigError(
                f"mcp_servers.{name}.oauth_env_client_secret names {entry.oauth_env_client_secret}, which is not set."
            )
    from satchel.tools.mcp import oauth  # noqa: PLC0415  loads the SDK

    store = LoginStore(settings.home)
    failure: Exception | None = None
    login = None
    with anyio.move_on_after(limit_s):
        async with listening(entry.oauth_redirect_port) as redirects, anyio.create_task_group() as group:
            group.start_soon(pasted, lambda address: redirects.offer(read_redirect(address)))
            try:
                login = await oauth.log_in(
                    entry,
                    redirect_uri=redirects.uri,
                    client_secret=secret,
                    present=show,
                    redirected=redirects.wait,
                    clock=SystemClock(),
                )
            except SatchelError as error:
                failure = error  # raised below, outside the task group, which would wrap it
            group.cancel_scope.cancel()
    if failure is not None:
        raise failure
    if login is None:
        seconds = "1 second" if limit_s == 1 else f"{limit_s:g} seconds"
        raise SatchelError(f"Nobody logged in to {name} within {seconds}. Nothing was changed.")
    async with store.locked():  # or a renewal that has begun would replace it
        kept_in = await store.save(entry, login)
    return LoggedIn(issuer=login.issuer, scope=login.scope, kept_in=kept_in)


async def log_out(settings: Settings, name: str) -> LoggedOut:
    """Have the authorization server revoke a login, and delete it even if that fails.

    Raises:
        NotFound: There is no such server, or no login.
        StorageError: The login can't be deleted.
    """
    entry = filled_in(_entry(settings, name), settings.secret)
    found = await _log_out(settings.home, entry)
    if found is None:
        raise NotFound(f"There is no login at {name}.")
    return found


async def _log_out(home: Path, entry: McpServerSettings) -> LoggedOut | None:
    store = LoginStore(home)
    if not store.exists(entry):
        return None
    was_revoked, problem = False, ""
    async with store.locked():  # or a renewal that has begun would bring it back
        try:
            login = await store.load(entry)
            if login is not None:
                from satchel.tools.mcp import oauth  # noqa: PLC0415  loads the SDK

                was_revoked = await oauth.revoke(login)
        except SatchelError as error:
            problem = str(error)
        await store.delete(entry)
    return LoggedOut(was_revoked=was_revoked, problem=problem)


async def remove_server(settings: Settings, name: str) -> Removed:
    """Remove a server from the settings, with its login and its approvals.

    Raises:
        NotFound: There is no such server.
        ConfigError: It is defined in the environment. Nothing was changed.
        StorageError: A file can't be written.
    """
    entry = _entry(settings, name)
    file = _file_of(settings, name)
    if not Path(file).is_absolute():
        raise ConfigError(f"{name} is set by {file} in the environment. Unset it there.")
    logged_out = None
    # If a variable is not set, its login can't be identified.
    with suppress(ConfigError):
        logged_out = await _log_out(settings.home, filled_in(entry, settings.secret))
    remove_mcp_server(Path(file), name)
    had_pins = PinStore(settings.home, SystemClock()).forget(entry)
    values = _own_values(settings, entry)
    store_values(settings.home, dict.fromkeys(values))
    return Removed(file=file, had_pins=had_pins, had_values=bool(values), logged_out=logged_out)


def _own_values(settings: Settings, entry: McpServerSettings) -> set[str]:
    """The names of the values in the home that only this entry refers to."""

    def named(server: McpServerSettings) -> set[str]:
        texts = (*server.env.values(), *server.headers.values())
        found = {name for name in stored for text in texts if f"${{{name}}}" in text}
        return found | ({server.oauth_env_client_secret} & stored.keys())

    stored = {name: "" for name in stored_keys(settings.home) if name.startswith(_KEPT)}
    others = [server for server in settings.mcp_servers.values() if server.name != entry.name]
    return named(entry).difference(*map(named, others))


def _entry(settings: Settings, name: str) -> McpServerSettings:
    entry = settings.mcp_servers.get(name)
    if entry is None:
        raise NotFound(f"There is no MCP server {name!r}. `satchel mcp-server list` lists them.")
    return entry


def _file_of(settings: Settings, name: str) -> str:
    part = "command" if settings.mcp_servers[name].command else "url"
    return settings.sources.get(f"mcp_servers.{name}.{part}", "")


@asynccontextmanager
async def _toolset(
    settings: Settings, clock: Clock, tell: Callable[[str], None]
) -> AsyncIterator[McpToolset]:
    async with anyio.create_task_group() as group:

        def spawn(function: Callable[[], Coroutine[Any, Any, None]]) -> None:
            group.start_soon(function)

        toolset = mcp_tools(settings, clock, spawn=spawn, tell=tell)
        try:
            yield toolset
        finally:
            with anyio.CancelScope(shield=True):
                await toolset.aclose()
            group.cancel_scope.cancel()
