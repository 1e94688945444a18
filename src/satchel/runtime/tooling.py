"""Every tool of an open Satchel: where executables and servers are looked for, what there is, running one by hand."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio

from satchel.capabilities import CapabilityTools, not_active
from satchel.clock import Clock
from satchel.config import Settings
from satchel.config.home import expanded
from satchel.errors import SatchelError, UsageError
from satchel.events import Event, ToolProgress
from satchel.loop import CallEnvironment, PermittedByUser, Toolbox, ToolCallRecord, TurnLimits, run_call
from satchel.memory import Receipt
from satchel.memory.toolset import MemoryTools
from satchel.models import ChatModel
from satchel.runtime.home import Home
from satchel.runtime.parts import Parts
from satchel.runtime.pictures import picture_file
from satchel.runtime.plugins import plugin_notices, plugin_tools
from satchel.runtime.projects import SessionScope
from satchel.runtime.rules import withheld_from_searches
from satchel.runtime.skills import skill_tools
from satchel.runtime.spill import spill_into
from satchel.runtime.tool_display import DISPLAYS
from satchel.runtime.tool_index import ToolIndex
from satchel.runtime.web import close_state, web_tools
from satchel.tools import (
    Registry,
    StaticToolset,
    Tool,
    ToolContext,
    ToolResult,
    Toolset,
    builtin_tools,
    filtered,
)
from satchel.tools.boxed import Workspaces
from satchel.tools.builtin.standalone import SHIPPED, shipped_path, take_as_seen, to_json
from satchel.tools.external import ExternalTools, FolderKind, ToolFolder, failure, success
from satchel.tools.mcp import McpStatus, McpToolset
from satchel.tools.mcp.places import fetched_from
from satchel.tools.mcp.sampling import Sampler
from satchel.tools.mcp.server import ServerHost
from satchel.tools.pins import ApprovedElsewhere
from satchel.version import __version__

_MOST_DISCOVERY_S: Final = 5.0
"""How long a first message waits for executables that were never asked: two rounds of a second, and some."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolEntry:
    """One line of `satchel tool list`.

    Attributes:
        source: "builtin", "plugin", "external", "capability", "mcp" or "skill".
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


class Tooling:
    """The tools of one home.

    Attributes:
        capabilities: Tools that the agent made; None if the database can't be opened.
    """

    def __init__(self, parts: Parts, home: Home) -> None:
        self.capabilities: CapabilityTools | None = None
        self._parts = parts
        self._home = home
        self._is_discovering = False
        self.skills = skill_tools(parts.settings, parts.sandboxes)
        parts.boxes.skills = lambda: [skill.folder for skill in self.skills.skills.all]
        self.finder = ToolIndex(
            parts.settings.home / "tool-index.db",
            embedder=home.embedder,
            clock=parts.clock,
            home=parts.settings.home,
        )

    async def registry(
        self,
        *,
        wait: bool = True,
        servers: bool = True,
        own: Sequence[Toolset] = (),
        scope: SessionScope | None = None,
    ) -> Registry:
        """What can be called, in the order in which a model is told.

        Args:
            wait: Wait until the executables in the tools' folders were found, and until MCP servers that were never
                met have listed their tools, ten seconds at most; else those that are known by now.
            servers: Wait for those servers too.
            own: The tools of the embedding program. Those that it runs itself replace others of the same name.
            scope: What the session remembers with; None is the user's own memory.
        """
        settings, parts = self._parts.settings, self._parts
        if not self._is_discovering:
            self._is_discovering = True
            parts.background.start(parts.external.discover)
            parts.mcp.begin()
        if wait:
            await parts.external.wait(max(_MOST_DISCOVERY_S, 3 * settings.tools.schema_timeout_s))
        served = StaticToolset(await parts.mcp.tools() if wait and servers else parts.mcp.known())
        toolsets: list[Toolset] = [
            builtin_tools(
                home=settings.home,
                withheld=withheld_from_searches(settings),
                bash_timeout_s=settings.agent.tool_timeout_s,
                boxes=parts.boxes,
            ),
            web_tools(settings, spawn=parts.background.start),
        ]
        scope = scope or SessionScope(memory=self._home.memory, spaces=self._home.spaces)
        if scope.spaces is not None:
            await scope.spaces.refresh()
        if scope.memory is not None:
            toolsets.append(
                MemoryTools(
                    scope.memory,
                    also=scope.also,
                    forget=self.forget,
                    small_model=self._small_model,
                    picture=partial(picture_file, self._home.sessions),
                    shared=scope.spaces,
                    forget_shared=self._home.forget_shared,
                )
            )
        if self.capabilities is not None:
            toolsets.append(self.capabilities)
        # Capabilities bring `read_docs` for skills too.
        self.skills.reads = self.capabilities is None
        toolsets.append(self.skills)
        by_caller = {tool.spec.name for one in own for tool in await one.tools() if tool.spec.client_side}
        left_out = {*settings.tools.disabled, *parts.external.replaced}
        if "bash" in left_out:
            left_out.add("jobs")  # which reads what `bash` started
        kept = [
            filtered(
                toolset,
                lambda spec: spec.name not in left_out and (spec.client_side or spec.name not in by_caller),
            )
            for toolset in (*toolsets, *own, plugin_tools(settings.home), served)
        ]
        for notice in plugin_notices(settings.home):
            parts.notices.post_once(notice)
        return await Registry.load([*kept[:-1], parts.external, kept[-1]])

    async def forget(self, ids: Sequence[str]) -> Receipt:
        """Forget memories everywhere, and say what the store lost."""
        return (await self._home.forget(ids)).store

    async def _small_model(self) -> ChatModel | None:
        """The model for small work, or None where there is no language model."""
        try:
            small = await self._parts.models.small()
        except SatchelError:
            return None  # What asks for it does its work without one too.
        return None if small.provider == "none" else small

    async def entries(self) -> tuple[ToolEntry, ...]:
        """Everything that there is: what is offered, in that order, then what is not, with the reason."""
        registry = await self.registry()
        external = self._parts.external
        found = [
            ToolEntry(
                name=tool.spec.name,
                source=tool.spec.source,
                description=tool.spec.description,
                status="available",
                reason=_reason(external, tool),
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
            for entry in external.entries
            if entry.status != "available"
        ]
        if self.capabilities is not None:
            found += [
                ToolEntry(
                    name=capability.tool_name,
                    source="capability",
                    description=capability.description,
                    status=capability.status,
                    reason=not_active(capability),
                    origin=f"capability {capability.name}",
                )
                for capability in await self.capabilities.inactive()
            ]
            found += [
                ToolEntry(
                    name=name,
                    source="skill",
                    description=skill.manifest.description,
                    status="available",
                    origin=f"capability {name}",
                )
                for name, skill in (await self.capabilities.own_skills()).items()
            ]
        for status in self._parts.mcp.status():
            found += _of_server(status)
        found += [
            ToolEntry(
                name=skill.name,
                source="skill",
                description=skill.front.description,
                status="available",
                reason=" ".join(skill.problems),
                origin=str(skill.folder),
            )
            for skill in self.skills.skills.all
        ]
        found += [
            ToolEntry(
                name=problem.path.name,
                source="skill",
                description="",
                status="unusable",
                reason=problem.reason,
                origin=str(problem.path),
            )
            for problem in self.skills.skills.problems
        ]
        return tuple(found)

    async def run(
        self,
        name: str,
        input: Mapping[str, Any],
        *,
        progress: Callable[[Mapping[str, Any]], Awaitable[None]],
    ) -> dict[str, Any]:
        """Run a tool that the user names, outside of any conversation: nothing is written down, nobody is asked.

        Returns:
            The envelope (DESIGN 6); of an unknown name one with the code NOT_FOUND.
        """
        # A server that hangs does not hold up what is none of its.
        registry = await self.registry(servers=False)
        if registry.get(name) is None:
            registry = await self.registry()
        tool = registry.get(name)
        if tool is None:
            return self._not_offered(name, registry.close_matches(name))
        tools = [_Overwriting(t) if t.spec.name == "file_write" else t for t in registry.tools]
        try:
            called = await self.call(
                Toolbox(tools),
                name,
                input,
                call_id="user",
                cwd=self._parts.settings.cwd,
                progress=progress,
                # A program reads the result: it gets the whole.
                most_chars=sys.maxsize,
            )
        except UsageError as error:
            return failure(str(error), "INVALID_INPUT")
        if tool.spec.source == "external" and isinstance(called.data, dict):
            return called.data
        if called.error_code not in ("", "TOOL_FAILED"):
            return failure(called.result, called.error_code)
        value, is_error = to_json(
            name, ToolResult(text=called.result, is_error=called.is_error, data=called.data)
        )
        return failure(called.result, "TOOL_FAILED") if is_error else success(value)

    async def call(
        self,
        toolbox: Toolbox,
        name: str,
        input: Mapping[str, Any],
        *,
        call_id: str,
        cwd: Path,
        progress: Callable[[Mapping[str, Any]], Awaitable[None]],
        most_chars: int,
    ) -> ToolCallRecord:
        """Make a call that is allowed, outside of any conversation. Long results go to `results/` of the home.

        Raises:
            NotFound, UsageError: As `run_call`.
        """
        parts, settings = self._parts, self._parts.settings
        folder = settings.home / "results"
        state: dict[str, Any] = {}

        async def show(events: Sequence[Event]) -> None:
            for event in events:
                if isinstance(event, ToolProgress):
                    await progress(event.data)

        try:
            return await run_call(
                name,
                input,
                call_id=call_id,
                turn=0,
                environment=CallEnvironment(
                    tools=toolbox,
                    gate=PermittedByUser(),
                    pool=parts.pool,
                    spill=spill_into(folder, parts.pool, clean=parts.redactor().redacted_text),
                    session_id="",
                    cwd=cwd,
                    roots=(),
                    spill_dir=folder,
                    state=state,
                    environ=settings.environ,
                ),
                emit=show,
                clock=parts.clock,
                limits=TurnLimits(tool_timeout_s=settings.agent.tool_timeout_s, max_result_chars=most_chars),
            )
        finally:
            with anyio.CancelScope(shield=True):
                await close_state(state)

    def _not_offered(self, name: str, close: Sequence[str]) -> dict[str, Any]:
        if self._parts.mcp.withheld(name):
            text = f"Tool '{name}' can't be run before it is approved: satchel tool approve {name}"
            return failure(text, "NOT_APPROVED")
        for entry in self._parts.external.entries:
            if entry.name == name and entry.status != "available":
                code = "NOT_APPROVED" if entry.status == "changed" else "NOT_EXECUTABLE"
                return failure(f"Tool '{name}' can't be run: {entry.reason}", code)
        hint = f"Did you mean {' or '.join(close)}?" if close else "`satchel tool list` lists them."
        return failure(f"There is no tool {name!r}. {hint}", "NOT_FOUND")


class _Overwriting:
    """`file_write` without a session, in which the file could have been read before it is replaced."""

    def __init__(self, tool: Tool) -> None:
        self.spec = tool.spec
        self.effects = tool.effects
        self._call = tool.call

    async def call(self, input: Mapping[str, Any], context: ToolContext) -> ToolResult:
        take_as_seen(input["path"], context)
        return await self._call(input, context)


def tool_folders(settings: Settings) -> tuple[ToolFolder, ...]:
    """Where executables are looked for, in the order in which they count."""
    folders = [ToolFolder(path=settings.home / "tools", kind="user")]
    place, kind = _named_in(settings)
    user_home = settings.environ.get("HOME", "")
    for text in settings.tools.dirs:
        accepted = settings.project_tools if kind == "project" else None
        folders.append(ToolFolder(path=place / expanded(text, user_home), kind=kind, accepted=accepted))
    if settings.project is not None and settings.project_trusted:
        folders.append(
            ToolFolder(
                path=settings.project / ".satchel" / "tools", kind="project", accepted=settings.project_tools
            )
        )
    return tuple(folders)


def mcp_tools(
    settings: Settings,
    clock: Clock,
    *,
    spawn: Callable[[Callable[[], Coroutine[Any, Any, None]]], None],
    tell: Callable[[str], None],
    sampler: Sampler | None = None,
    boxes: Workspaces | None = None,
    elsewhere: ApprovedElsewhere | None = None,
) -> McpToolset:
    """The tools of the MCP servers that are set up; nothing is started yet."""
    host = ServerHost(
        home=settings.home,
        # A checkout that nobody trusts must not run its code by way of the user's own servers.
        cwd=settings.cwd if settings.project_trusted else settings.home,
        environ=settings.environ,
        lookup=settings.secret,
        clock=clock,
        spawn=spawn,
        tell=tell,
        timeout_s=settings.agent.tool_timeout_s,
        version=__version__,
        roots=(settings.cwd,) if settings.project_trusted else (),
        sampler=sampler,
        boxes=boxes,
        elsewhere=elsewhere or ApprovedElsewhere(),
    )
    return McpToolset(settings.mcp_servers, host, waits=settings.agent.mode == "auto")


def _named_in(settings: Settings) -> tuple[Path, FolderKind]:
    """What a relative folder in `[tools] dirs` is below of, and whose it is: what a project names is the project's."""
    source = settings.sources.get("tools.dirs", "")
    if settings.project is not None and source == str(settings.project / ".satchel" / "config.toml"):
        return settings.project / ".satchel", "project"
    return (settings.home if source == str(settings.config_path) else settings.cwd), "dirs"


def fetching(settings: Settings) -> dict[str, tuple[str, ...]]:
    """The MCP servers that a package runner fetches, with the hosts that it needs."""
    return {name: hosts for name, entry in settings.mcp_servers.items() if (hosts := fetched_from(entry))}


def external_tools(
    settings: Settings,
    clock: Clock,
    *,
    boxes: Workspaces | None = None,
    elsewhere: ApprovedElsewhere | None = None,
) -> ExternalTools:
    """The toolset of executables; nothing is looked at yet. `boxes` runs their boxed calls."""
    return ExternalTools(
        tool_folders(settings),
        home=settings.home,
        environ=settings.environ,
        clock=clock,
        builtin=tuple(DISPLAYS),
        replaceable=SHIPPED,
        disabled=settings.tools.disabled,
        schema_timeout_s=settings.tools.schema_timeout_s,
        run_timeout_s=settings.agent.tool_timeout_s,
        boxes=boxes,
        elsewhere=elsewhere or ApprovedElsewhere(),
        asks_boxed=settings.agent.mode == "auto",
    )


def _of_server(status: McpStatus) -> list[ToolEntry]:
    """What a server does not offer, and the server itself where it does not serve."""
    origin = f"MCP server {status.server}"
    entries = [
        ToolEntry(
            name=tool.name,
            source="mcp",
            description=tool.now.description,
            status="changed" if tool.before is not None else "new",
            reason=f"{tool.name} is not offered: its definition {'changed' if tool.before else 'came'} after the "
            f"server's tools were accepted. Look at it, then type: satchel tool approve {tool.name}",
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
            "off": "It is switched off (enabled = false).",
            "starting": f"It is still starting; what it says is in {status.log}.",
        }.get(status.state, f"It is not available: {status.reason}. What it said is in {status.log}.")
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
