"""`satchel mcp-server`: list, add, try and remove MCP servers, and log in to remote ones."""

from __future__ import annotations

import codecs
import os
import sys
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import anyio
import anyio.to_thread
import click

from satchel.cli.commands import CommandGroup, Text, confirm, json_option, said_json
from satchel.cli.output import say, say_rows, tell
from satchel.cli.settings import read_settings
from satchel.config import new_mcp_server, plain_values
from satchel.errors import UsageError
from satchel.runtime.lines import counted
from satchel.runtime.servers import (
    KnownServer,
    LoggedOut,
    TriedServer,
    add_server,
    known_servers,
    log_in,
    log_out,
    remove_server,
    try_server,
)
from satchel.tui.terminal_text import one_line

_MOST_SHOWN = 20
"""The most resources that `test` shows; a server may have a thousand."""
_TRUST_AGAIN = (
    "! This changed the project's settings, so they are ignored until you type: satchel config trust"
)
_MAX_PASTED = 65_536
"""The longest pasted address, in characters."""


@click.group("mcp-server", cls=CommandGroup)
def mcp_server() -> None:
    """List, add, try and remove MCP servers, and log in to remote ones."""


@mcp_server.command("list")
@json_option
def list_() -> None:
    """List the MCP servers in the settings and their known state. Starts nothing."""
    servers = known_servers(read_settings())
    if said_json([_to_json(server) for server in servers]):
        return
    say_rows(
        (server.name, server.transport, _state(server), one_line(server.address, 80)) for server in servers
    )
    for server in servers:
        if server.problem:
            tell(f"! {server.name}: {server.problem}")
    if not servers:
        tell(
            "The settings name no MCP servers. Add one: satchel mcp-server add NAME -- COMMAND, or --url URL"
        )


def _state(server: KnownServer) -> str:
    """Its state in a few words."""
    if not server.enabled:
        return "off"
    words = ["never started" if server.tools is None else counted(server.tools, "tool")]
    if server.waiting:
        words.append(f"{server.waiting} to approve")
    if server.has_login:
        words.append("logged in")
    return ", ".join(words)


def _to_json(server: KnownServer) -> dict[str, Any]:
    found = asdict(server)
    found["logged_in"] = found.pop("has_login")
    return found


@mcp_server.command()
@click.argument("name", type=Text)
@click.argument("command", type=Text, nargs=-1)
@click.option("--url", type=Text, default="", help="The address of a remote server.")
@click.option(
    "--header", "headers", type=Text, multiple=True, metavar="NAME=VALUE", help="A header of every request."
)
@click.option("--env", type=Text, multiple=True, metavar="NAME=VALUE", help="A variable for the program.")
@click.option("--sse", is_flag=True, help="Use the older transport, HTTP with server-sent events.")
@click.option(
    "--client-id", type=Text, default="", help="The OAuth client to log in as, if you registered one."
)
@click.option("--client-secret-env", type=Text, default="", help="The environment variable with its secret.")
@click.option("--project", is_flag=True, help="Add it to the project's settings instead of yours.")
@json_option
def add(
    name: str,
    command: Sequence[str],
    url: str,
    headers: Sequence[str],
    env: Sequence[str],
    sse: bool,
    client_id: str,
    client_secret_env: str,
    project: bool,
) -> None:
    """Add a server to your settings: a program (`add NAME -- COMMAND ARGS…`), or an address (`add NAME --url URL`).

    Write ${VARIABLE} instead of a secret: its value is read when the server is used. `satchel config import-mcp`
    copies the servers of other programs.
    """
    settings = read_settings()
    table: dict[str, Any] = {
        "command": command[0] if command else "",
        "args": list(command[1:]),
        "url": url,
        "headers": _pairs("--header", headers),
        "env": _pairs("--env", env),
        "transport": "sse" if sse else "",
        "oauth_client_id": client_id,
        "oauth_env_client_secret": client_secret_env,
    }
    server = new_mcp_server(
        name,
        {key: value for key, value in table.items() if value},
        place="satchel mcp-server add",
        # A project's own entry stays relative, so that it fits every checkout.
        folder=None if project else settings.cwd,
    )
    path = (
        (settings.project or settings.cwd) / ".satchel" / "config.toml" if project else settings.config_path
    )
    add_server(settings, server, path=path)
    for place in plain_values(server):
        tell(
            f"! The value of {place} is in plain text in {path}. Use a ${{VARIABLE}} to keep it out of the file."
        )
    if project:
        tell(_TRUST_AGAIN)
    if not said_json({"name": name, "file": str(path)}):
        tell(f"{name} was added to {path}. Try it: satchel mcp-server test {name}")


def _pairs(option: str, given: Sequence[str]) -> Mapping[str, str]:
    pairs = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key:
            # The value may be secret.
            raise UsageError(f"{option} takes NAME=VALUE, but one value has no name or no =.")
        pairs[key] = value
    return pairs


@mcp_server.command()
@click.argument("name", type=Text)
@click.option("--yes", is_flag=True, help="Don't ask.")
@json_option
def remove(name: str, yes: bool) -> None:
    """Remove a server from the settings, with its login and its approvals."""
    settings = read_settings()
    if not yes and name in settings.mcp_servers:
        server = next(each for each in known_servers(settings) if each.name == name)
        tell(f"{name}: {server.address}\n  in {server.file}")
        more = ["its login"] if server.has_login else []
        more += ["its approvals"] if server.tools is not None else []
        forgotten = f", and delete {' and '.join(more)}" if more else ""
        confirm(f"Remove it{forgotten}?", doing="removing")
    removed = anyio.run(remove_server, settings, name)
    logged_out = removed.logged_out is not None
    data = {
        "name": name,
        "file": removed.file,
        "forgot_approvals": removed.had_pins,
        "logged_out": logged_out,
    }
    if said_json(data):
        return
    tell(f"{name} was removed from {removed.file}.")
    if removed.file != str(settings.config_path):
        tell(_TRUST_AGAIN)
    if removed.had_pins:
        tell("  Its approvals were deleted.")
    if removed.had_values:
        tell("  The values of its variables and headers were deleted.")
    if removed.logged_out is not None:
        tell(f"  {_logged_out(removed.logged_out)}")


@mcp_server.command()
@click.argument("name", type=Text)
@json_option
def test(name: str) -> int:
    """Start a server and show what it offers. The exit code is 1 if it is unavailable."""
    tried = anyio.run(try_server, read_settings(), name)
    if said_json(_tried_to_json(tried)):
        return 0 if tried.status.state == "ready" else 1
    status = tried.status
    if status.state != "ready":
        tell(f"{name} is unavailable: {status.reason or 'it did not start in time'}.")
        tell(f"  Its output is in {status.log}.")
        return 1
    say(f"{name}: ready in {tried.took_s:.1f} s, {status.transport}, protocol {status.protocol}")
    if not tried.tools:
        say("  It offers no tools.")
    rows = [(tool.spec.name, tool.spec.description) for tool in tried.tools]
    shown = tried.resources[:_MOST_SHOWN]
    rows += [(one_line(each.mention, 60), each.description or each.name) for each in shown]
    if len(tried.resources) > len(shown):
        rows.append((f"… and {len(tried.resources) - len(shown)} more resources", ""))
    rows += [(f"/{prompt.command}", prompt.description) for prompt in tried.prompts]
    say_rows(((name, one_line(what, 60)) for name, what in rows), indent="  ")
    if status.instructions:
        say("  Its instructions for using the tools:")
        for line in status.instructions.splitlines():
            say(f"  > {line}".rstrip())
    for withheld in status.withheld:
        tell(f"  ! {withheld.name} waits for your approval: satchel tool approve {withheld.name}")
    for problem in status.problems:
        tell(f"  ! {problem}")
    return 0


def _tried_to_json(tried: TriedServer) -> dict[str, Any]:
    status = tried.status
    return {
        "name": status.server,
        "state": status.state,
        "reason": status.reason,
        "transport": status.transport,
        "protocol": status.protocol,
        "took_s": round(tried.took_s, 3),
        "tools": [{"name": tool.spec.name, "description": tool.spec.description} for tool in tried.tools],
        "resources": [
            {"uri": each.uri, "name": each.name, "description": each.description} for each in tried.resources
        ],
        "prompts": [{"name": each.command, "description": each.description} for each in tried.prompts],
        "instructions": status.instructions,
        "waiting": [withheld.name for withheld in status.withheld],
        "problems": list(status.problems),
        "log": str(status.log),
    }


@mcp_server.command()
@click.argument("name", type=Text)
@click.option("--no-browser", is_flag=True, help="Print the address only.")
@click.option(
    "--timeout", type=click.FloatRange(1, 3600), default=300.0, show_default=True, help="In seconds."
)
@json_option
def login(name: str, no_browser: bool, timeout: float) -> None:
    """Log in to a remote server in your browser (OAuth).

    The address is also printed, for a browser on another machine. If that browser can't open the last page, paste that
    page's address here.
    """
    settings = read_settings()

    async def show(address: str) -> None:
        tell(f"Log in to {name} at this address:\n\n  {address}\n")
        if not no_browser and _has_display(settings.environ):
            await anyio.to_thread.run_sync(webbrowser.open, address)
        tell("If the browser can't open the last page, paste that page's address here.")

    done = anyio.run(partial(log_in, settings, name, show=show, pasted=_read_pasted, limit_s=timeout))
    if said_json({"name": name, "issuer": done.issuer, "scope": done.scope, "kept_in": done.kept_in}):
        return
    tell(f"You are logged in to {name}{f' with the scope {done.scope}' if done.scope else ''}.")
    tell(f"  The tokens are kept in {done.kept_in}. Try it: satchel mcp-server test {name}")


async def _read_pasted(offer: Callable[[str], bool]) -> None:
    """Read lines from stdin until one is the address; returns at once if stdin can't be waited for."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    line = ""
    try:
        descriptor = sys.stdin.fileno()
        while True:
            await anyio.wait_readable(descriptor)
            data = os.read(descriptor, 4096)
            if not data:
                return
            line += decoder.decode(data)
            *whole, line = line.split("\n")
            for each in filter(str.strip, whole):
                if not offer(each):
                    tell("That address does not belong to this login. It should begin with http://127.0.0.1:")
            line = line[-_MAX_PASTED:]
    except (OSError, ValueError):
        return  # stdin is not a file, is closed, or is a kind of file that can't be waited for


def _has_display(environ: Mapping[str, str]) -> bool:
    # Without a display, the standard library would open a browser in this terminal.
    return sys.platform == "darwin" or bool(environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY"))


@mcp_server.command()
@click.argument("name", type=Text)
@json_option
def logout(name: str) -> None:
    """Revoke the login at a server and delete its tokens."""
    done = anyio.run(log_out, read_settings(), name)
    if not said_json({"name": name, "revoked": done.was_revoked, "problem": done.problem}):
        tell(f"{name}: {_logged_out(done)}")


def _logged_out(done: LoggedOut) -> str:
    if done.was_revoked:
        return "The login was revoked, and its tokens are deleted."
    if done.problem:
        return f"The tokens are deleted. Revoking them failed ({done.problem}), so they stay valid until they expire."
    return "The tokens are deleted. The server does not revoke tokens, so they stay valid until they expire."
