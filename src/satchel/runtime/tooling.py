"""The tools beside a conversation: where executables are looked for, what there is, and running one by hand."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio

from satchel import __version__
from satchel.clock import Clock
from satchel.config import Settings
from satchel.loop import Toolbox
from satchel.runtime.web import close_state
from satchel.tools import Tool, ToolContext
from satchel.tools.builtin.standalone import SHIPPED, shipped_path, take_as_seen, to_json
from satchel.tools.external import ExternalTools, FolderKind, ToolFolder, failure, success
from satchel.tools.mcp import McpStatus, McpToolset

if TYPE_CHECKING:
    from satchel.runtime.satchel import Satchel

__all__ = ["ToolEntry", "external_tools", "list_tools", "mcp_tools", "run_tool", "tool_folders"]

_OWN: Final = (
    "ask_user", "browser", "deep_memory", "execute_capability", "forget_memory", "list_mcp_resources",
    "lookup_capability", "read_docs", "read_mcp_resource", "recall_memory", "request_capability", "store_memory",
    "think", "todo", "tool_call", "tool_describe", "tool_search", "web_fetch", "web_search", *SHIPPED,
)  # fmt: skip
"""Names of Satchel's own tools (DESIGN 6); an executable may take one of them only where it is shipped as one too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolEntry:
    """One line of `satchel tool list`.

    Attributes:
        source: "builtin", "external", "capability" or "mcp".
        status: "available" where it is offered to models; else why not, in a word.
        reason: The same in a sentence, or what to know of it; "" where there is nothing.
        origin: Where it comes from, in words for people; "" for what is part of Satchel.
    """

    name: str
    source: str
    description: str
    status: str
    reason: str = ""
    origin: str = ""


def tool_folders(settings: Settings) -> tuple[ToolFolder, ...]:
    """Where executables are looked for, in the order in which they count."""
    folders = [ToolFolder(path=settings.home / "tools", kind="user")]
    place, kind = _named_in(settings)
    user_home = settings.environ.get("HOME", "")
    for text in settings.tools.dirs:
        expanded = user_home + text[1:] if user_home and (text == "~" or text.startswith("~/")) else text
        folders.append(ToolFolder(path=place / expanded, kind=kind))
    if settings.project is not None and settings.project_trusted:
        folders.append(ToolFolder(path=settings.project / ".satchel" / "tools", kind="project"))
    return tuple(folders)


def mcp_tools(
    settings: Settings, clock: Clock, *, spawn: Callable[[Callable[[], Coroutine[Any, Any, None]]], None]
) -> McpToolset:
    """The tools of the MCP servers that are set up; nothing is started yet.

    Args:
        settings: Say which.
        clock: Measures the pauses after failures.
        spawn: Runs something in the background.
    """
    return McpToolset(
        settings.mcp_servers,
        home=settings.home,
        # A checkout that nobody trusts must not run its code by way of the user's own servers.
        cwd=settings.cwd if settings.project_trusted else settings.home,
        environ=settings.environ,
        lookup=settings.secret,
        clock=clock,
        spawn=spawn,
        timeout_s=settings.agent.tool_timeout_s,
        version=__version__,
        roots=(settings.cwd,) if settings.project_trusted else (),
    )


def _named_in(settings: Settings) -> tuple[Path, FolderKind]:
    """What a relative folder in `[tools] dirs` is below of, and whose it is: what a project names is the project's."""
    source = settings.sources.get("tools.dirs", "")
    if settings.project is not None and source == str(settings.project / ".satchel" / "config.toml"):
        return settings.project / ".satchel", "project"
    return (settings.home if source == str(settings.config_path) else settings.cwd), "dirs"


def external_tools(settings: Settings, clock: Clock) -> ExternalTools:
    """The toolset of executables; nothing is looked at yet."""
    return ExternalTools(
        tool_folders(settings),
        home=settings.home,
        environ=settings.environ,
        clock=clock,
        builtin=_OWN,
        replaceable=SHIPPED,
        disabled=settings.tools.disabled,
        schema_timeout_s=settings.tools.schema_timeout_s,
        run_timeout_s=settings.agent.tool_timeout_s,
    )


async def list_tools(satchel: Satchel) -> tuple[ToolEntry, ...]:
    """Everything that there is: what is offered, in that order, then what is not, with the reason."""
    registry = await satchel.tools()
    found = [
        ToolEntry(
            name=tool.spec.name,
            source=tool.spec.source,
            description=tool.spec.description,
            status="available",
            reason=_reason(satchel.external, tool),
            origin=tool.spec.origin,
        )
        for tool in registry.tools
    ]
    found += [
        ToolEntry(
            name=entry.name,
            source="external",
            description=entry.description,
            status=entry.status,
            reason=entry.reason,
            origin=str(entry.path),
        )
        for entry in satchel.external.entries
        if entry.status != "available"
    ]
    for status in satchel.mcp.status():
        found += _of_server(status)
    return tuple(found)


def _of_server(status: McpStatus) -> list[ToolEntry]:
    """What a server does not offer, and the server itself where it does not serve."""
    origin = f"MCP server {status.server}"
    entries = [
        ToolEntry(
            name=tool.name,
            source="mcp",
            description=tool.now.description,
            status="changed" if tool.before is not None else "new",
            reason=f"{'The instructions of the server are' if tool.is_server else f'{tool.name} is'} withheld: "
            f"{'changed' if tool.before else 'new'} since you approved the server. Read the description, then run: "
            f"satchel tool approve {tool.name}",
            origin=origin,
        )
        for tool in status.withheld
    ]
    entries += [
        ToolEntry(
            name=status.server, source="mcp", description="", status="skipped", reason=problem, origin=origin
        )
        for problem in status.problems
    ]
    if status.state in ("down", "off", "starting"):
        reason = {
            "off": "It is disabled (enabled = false).",
            "starting": f"It is still starting. Its output is in {status.log}.",
        }.get(status.state, f"It is unavailable: {status.reason}. Its output is in {status.log}.")
        entries.append(
            ToolEntry(
                name=status.server,
                source="mcp",
                description="",
                status=status.state,
                reason=reason,
                origin=origin,
            )
        )
    return entries


def _reason(external: ExternalTools, tool: Tool) -> str:
    name = tool.spec.name
    match tool.spec.source:
        case "external":
            return next(
                (e.reason for e in external.entries if e.name == name and e.status == "available"), ""
            )
        case "builtin" if name in SHIPPED:
            return f"Shipped as an executable too: {shipped_path(name)}"
        case _:
            return ""


async def run_tool(
    satchel: Satchel,
    name: str,
    input: Mapping[str, Any],
    *,
    progress: Callable[[Mapping[str, Any]], Awaitable[None]],
) -> dict[str, Any]:
    """Run a tool that the user names, outside of any conversation: nothing is written down, nobody is asked.

    Args:
        satchel: Knows the tools.
        name: Of the tool.
        input: Its arguments.
        progress: Is told how far it is.

    Returns:
        The envelope (DESIGN 6); of an unknown name one with the code NOT_FOUND.
    """
    # A server that hangs does not hold up what is none of its.
    registry = await satchel.tools(servers=False)
    if registry.get(name) is None:
        registry = await satchel.tools()
    tool = registry.get(name)
    if tool is None:
        return _not_offered(satchel, name, registry.close_matches(name))
    problem = Toolbox([tool]).problem(tool, input)
    if problem:
        return failure(problem, "INVALID_INPUT")
    settings = satchel.settings
    state: dict[str, Any] = {}
    limit_s = tool.spec.timeout_s or settings.agent.tool_timeout_s
    context = ToolContext(
        session_id="",
        turn=0,
        call_id="user",
        cwd=settings.cwd,
        # The user asked for this call in person: they may go wherever they may go.
        roots=(Path("/"),),
        spill_dir=settings.home / "results",
        state=state,
        progress=progress,
        blocking=satchel.pool.run,
        clock=satchel.clock,
        timeout_s=limit_s,
        environ=settings.environ,
    )
    if name == "file_write" and tool.spec.source == "builtin":
        take_as_seen(input["path"], context)
    try:
        with anyio.move_on_after(limit_s):
            result = await tool.call(input, context)
            if tool.spec.source == "external" and isinstance(result.data, dict):
                return result.data
            value, is_error = to_json(name, result)
            return failure(result.text, "TOOL_FAILED") if is_error else success(value)
    # A boundary: a tool's defect is told like any other failure of it.
    except Exception as error:  # noqa: BLE001
        return failure(f"Tool '{name}' failed: {type(error).__name__}: {error}", "TOOL_CRASHED")
    finally:
        with anyio.CancelScope(shield=True):
            await close_state(state)
    return failure(f"Tool '{name}' timed out after {limit_s:g}s", "TOOL_TIMEOUT")


def _not_offered(satchel: Satchel, name: str, close: Sequence[str]) -> dict[str, Any]:
    if satchel.mcp.withheld(name):
        text = f"Tool '{name}' can't be run before it is approved: satchel tool approve {name}"
        return failure(text, "NOT_APPROVED")
    for entry in satchel.external.entries:
        if entry.name == name and entry.status != "available":
            code = "NOT_APPROVED" if entry.status == "changed" else "NOT_EXECUTABLE"
            return failure(f"Tool '{name}' can't be run: {entry.reason}", code)
    hint = f"Did you mean {' or '.join(close)}?" if close else "`satchel tool list` lists them."
    return failure(f"There is no tool {name!r}. {hint}", "NOT_FOUND")
