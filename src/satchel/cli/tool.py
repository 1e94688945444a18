"""`satchel tool`: list, show, run, approve and create tools."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from satchel.cli.commands import CommandGroup, Text, confirm, json_object, json_option, said_json
from satchel.cli.opening import opened
from satchel.cli.output import is_terminal, say, say_rows, tell
from satchel.cli.settings import read_settings
from satchel.cli.signals import run_in_good_order
from satchel.errors import NotFound, SatchelError, UsageError
from satchel.runtime import Satchel
from satchel.runtime.lines import approval_lines
from satchel.tools.external import LANGUAGES, failure, new_tool
from satchel.tools.mcp import McpDefinition, WithheldTool
from satchel.tui.terminal_text import one_line

T = TypeVar("T")

_MOST_STDIN = 64_000_000
"""The most bytes of input on stdin: far more than a model passes to a tool."""
_SOURCES = ("builtin", "plugin", "external", "capability", "mcp", "skill")


def _with_satchel(command: Callable[..., Awaitable[T]]) -> Callable[..., T]:
    """Gives a command an open Satchel, as its first argument."""

    @wraps(command)
    def run(**given: Any) -> T:
        async def body() -> T:
            async with opened(read_settings(), with_notices=False) as satchel:
                return await command(satchel, **given)

        return run_in_good_order(body)

    return run


@click.group(cls=CommandGroup)
def tool() -> None:
    """List, show, run, approve and create tools.

    A tool is any executable in SATCHEL_HOME/tools that prints its schema for --schema, and for a call reads JSON from
    stdin and prints JSON.
    """


@tool.command("list")
@click.option("--source", type=click.Choice(_SOURCES), help="Only tools from this source.")
@json_option
@_with_satchel
async def list_(satchel: Satchel, source: str | None) -> None:
    """List all tools, and the files in the tools' folders that can't be used, with the reason."""
    entries = [entry for entry in await satchel.tooling.entries() if source in (None, entry.source)]
    if said_json(entries):
        return
    say_rows((each.name, each.source, each.status, one_line(each.description, 80)) for each in entries)
    for entry in entries:
        if entry.reason and (entry.status != "available" or entry.source != "builtin"):
            tell(f"! {entry.name}: {entry.reason}")
    if not entries:
        tell("There are no tools.")


@tool.command()
@click.argument("name", type=Text)
@json_option
@_with_satchel
async def show(satchel: Satchel, name: str) -> None:
    """Show a tool's description and input."""
    registry = await satchel.tools()
    entries = [entry for entry in await satchel.tooling.entries() if entry.name == name]
    found = registry.get(name)
    if not entries:
        close = registry.close_matches(name)
        hint = f"Did you mean {' or '.join(close)}?" if close else "`satchel tool list` lists them."
        raise NotFound(f"There is no tool {name!r}. {hint}")
    shown: dict[str, Any] = asdict(entries[0])
    if found is not None:
        shown["input_schema"] = dict(found.spec.input_schema)
        if found.spec.returns is not None:
            shown["returns"] = dict(found.spec.returns)
    if said_json(shown):
        return
    origin = f", {shown['origin']}" if shown["origin"] else ""
    say(f"{shown['name']}  ({shown['source']}{origin})  {shown['status']}\n{shown['description']}".rstrip())
    if shown["reason"]:
        tell(f"! {shown['reason']}")
    if "input_schema" in shown:
        say(json.dumps(shown["input_schema"], ensure_ascii=False, indent=2))
    if "returns" in shown:
        say(f"Returns:\n{json.dumps(shown['returns'], ensure_ascii=False, indent=2)}")


@tool.command()
@click.argument("name", type=Text)
@click.argument(
    "input", type=Text, default="{}", callback=lambda _, __, given: _stdin() if given == "-" else given
)
@json_option
@_with_satchel
async def run(satchel: Satchel, name: str, input: str) -> int:
    """Run a tool with JSON, and print the envelope: {"tool_success": true, "result": …} or the error.

    INPUT is a JSON object; "-" reads it from stdin. The exit code is 0 with tool_success, otherwise 1, or 2 if INPUT
    is not a JSON object.
    """
    try:
        parsed = json_object(input, '{"path": "notes.md"}')
    except UsageError as error:
        _say_envelope(failure(str(error), "INVALID_INPUT"))
        raise
    envelope = await satchel.tooling.run(name, parsed, progress=_tell_progress)
    _say_envelope(envelope)
    return 0 if envelope["tool_success"] else 1


def _say_envelope(envelope: Mapping[str, Any]) -> None:
    if not said_json(envelope):
        say(json.dumps(envelope, ensure_ascii=False, indent=2))


def _stdin() -> str:
    raw = sys.stdin.buffer.read(_MOST_STDIN + 1)
    if len(raw) > _MOST_STDIN:
        raise UsageError(f"The input on stdin is longer than {_MOST_STDIN // 1_000_000} MB.")
    return raw.decode("utf-8", "replace")


async def _tell_progress(data: Mapping[str, Any]) -> None:
    if is_terminal(sys.stderr):
        tell(one_line(json.dumps(data.get("progress", dict(data)), ensure_ascii=False)))


@tool.command()
@json_option
@_with_satchel
async def refresh(satchel: Satchel) -> None:
    """Scan the tool folders again, ask executables that gave no schema, and list the tools of MCP servers again."""
    tell("Refreshing tools...")
    await satchel.external.refresh()
    await satchel.mcp.refresh()
    count = len((await satchel.tools()).tools)
    notices = (*satchel.external.notices, *(n.text for n in satchel.notices if n.part == "mcp"))
    state = satchel.external.state
    for notice in notices:
        tell(f"! {notice}")
    is_said = said_json({"tools": count, "notices": notices, "scan": state})
    if state == "failed":
        raise SatchelError("The folders of external tools could not be scanned.")
    if not is_said:
        say(f"Tools refreshed. {count} tools available.")


@tool.command()
@click.argument("name", type=Text)
@click.option("--yes", is_flag=True, help="Don't ask.")
@json_option
@_with_satchel
async def approve(satchel: Satchel, name: str, yes: bool) -> None:
    """Approve the current content of an executable, or the current description of an MCP server's tool.

    A tool that has changed is not used until you approve it. NAME is the tool's name or the path of its file;
    mcp__SERVER__* stands for all tools of a server that wait for approval. On a terminal, they are shown first.
    """
    asks = not yes and is_terminal(sys.stdin)
    if name.startswith("mcp__"):
        if asks:
            for tool in satchel.mcp.withheld(name):
                tell("\n".join(described_lines(tool)))
            confirm("Have you read it, and may models see it?")
        approved = await satchel.mcp.approve(name)
        if not said_json({"approved": [tool.name for tool in approved]}):
            for tool in approved:
                say("\n".join(described_lines(tool)))
        return
    if asks:
        for entry in await satchel.tooling.entries():
            if entry.source == "external" and name in (entry.name, entry.origin):
                tell(f"{entry.name}  {entry.origin}\n  {entry.reason}".rstrip())
        confirm("Have you reviewed it, and may it run?")
    record = await satchel.external.approve(name)
    if not said_json({"name": record.name, "path": str(record.path), "sha256": record.sha256}):
        say("\n".join(approval_lines(record)))


def described_lines(tool: WithheldTool) -> list[str]:
    """A server's current description of a tool, and how it differs from the approved one."""
    before = _said_lines(tool.before) if tool.before is not None else []
    now = _said_lines(tool.now)
    return [
        tool.name,
        *(f"  - {line}" for line in before if line not in now),
        *(f"  {'+' if line not in before else ' '} {line}" for line in now),
    ]


def _said_lines(definition: McpDefinition) -> list[str]:
    properties = definition.input_schema.get("properties", {})
    hints = ", ".join(f"{key}={str(value).lower()}" for key, value in definition.hints.items())
    return [
        *(f"description: {line}" for line in definition.description.splitlines()),
        # Invisible characters are escaped: they may be what has changed.
        *(f"{json.dumps(name)}: {json.dumps(part)}" for name, part in properties.items()),
        *([f"annotations: {hints}"] if hints else []),
    ]


@tool.command()
@click.argument("name", type=Text)
@click.option(
    "--lang", type=click.Choice(LANGUAGES), default="python", show_default=True, help="The language."
)
@click.option(
    "--dir", "folder", type=click.Path(path_type=Path), help="The folder. Default: SATCHEL_HOME/tools."
)
@json_option
def new(name: str, lang: str, folder: Path | None) -> None:
    """Create a working tool with a passing test, as a starting point."""
    settings = read_settings()
    path, test = new_tool(folder or settings.home / "tools", name, language=lang)
    if said_json({"tool": str(path), "test": str(test)}):
        return
    say(str(path))
    say(str(test))
    tell(f"Edit it, test it with {test}, then approve it: satchel tool approve {name}")
