"""The tools of one session: which are in its prompt, which are reached through the bridge, and when to look again."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path

from satchel.config import mask_text
from satchel.errors import StorageError
from satchel.loop import Toolbox
from satchel.runtime.builds import Builds
from satchel.runtime.parts import Parts
from satchel.tools import Annotations, ModeGate, PlannedCall, Registry, Tool, ToolSpec
from satchel.tools.deferral import Bridge, ToolFinder, split_tools


class SessionTools:
    """Keeps the definitions in the prompt the same from the first message on, because providers cache the prompt.

    It waits for executables and MCP servers before the first message, and takes in what changes between messages. A
    tool that appears later is reached through the bridge. A tool that disappears stays in the prompt; a call of it is
    answered with an error. A tool that changes keeps its old definition in the prompt, but calls
    are validated against the new one, which `tool_describe` shows.

    Attributes:
        gate: Decides whether an MCP server may be fetched.
        registry: The current tools, without the bridge.
        toolbox: The current tools for the loop, with the bridge.
    """

    def __init__(
        self,
        load: Callable[[bool], Awaitable[Registry]],
        *,
        finder: ToolFinder,
        parts: Parts,
        gate: ModeGate,
        cwd: Path,
        builds: Builds | None,
    ) -> None:
        """Nothing is offered before `update`. `load(True)` waits for the tools that are still being discovered; the
        catalogue of `builds` may get other ones.
        """
        self.gate = gate
        self.registry = Registry(())
        self.toolbox = Toolbox()
        self._load = load
        self._finder = finder
        self._bridge = Bridge(finder)
        self._parts = parts
        self._cwd = cwd
        self._builds = builds
        self._prompt: tuple[Tool, ...] = ()
        self._is_fixed = False
        self._most_bytes = sys.maxsize
        self._version: object = None
        self._has_all = False

    async def update(self, *, wait: bool) -> None:
        """Load the current tools; `wait` also waits for discovery."""
        self._show(await self._load(wait))

    def fit(self, most_bytes: int) -> None:
        """Another model is asked, whose requests have room for so many bytes of definitions: it has cached none."""
        if most_bytes != self._most_bytes:
            self._most_bytes = most_bytes
            self._is_fixed = False
            self._show(self.registry)

    def fix(self) -> None:
        """Keep the definitions as they are from now on: the first message is about to be sent."""
        self._is_fixed = True

    def _show(self, registry: Registry) -> None:
        by_name = {tool.spec.name: tool for tool in registry.tools}
        if not self._is_fixed:
            self._prompt, deferred = self._split(registry.tools)
            definitions = None
        else:
            self._prompt = tuple(by_name.get(tool.spec.name, tool) for tool in self._prompt)
            in_prompt = {tool.spec.name for tool in self._prompt}
            deferred = tuple(tool for tool in registry.tools if tool.spec.name not in in_prompt)
            definitions = self.toolbox.definitions
        self._bridge.defer(deferred, others=self._prompt)
        self.registry = registry
        # Without any tool, there is nothing that the bridge could reach.
        bridge = self._bridge.tools if self._prompt or deferred else ()
        self.toolbox = Toolbox((*self._prompt, *bridge), deferred=deferred, definitions=definitions)

    def _split(self, tools: Sequence[Tool]) -> tuple[tuple[Tool, ...], tuple[Tool, ...]]:
        """The tools in the prompt and those behind the bridge, which names those that the window has no room for."""
        above = self._parts.settings.tools.defer_above
        left = self._most_bytes - sum(tool.spec.definition.size for tool in self._bridge.tools)
        prompt, deferred = split_tools(tools, defer_above=above, most_bytes=left)
        whole, _ = split_tools(tools, defer_above=above)
        self._bridge = Bridge(self._finder, named=[tool.spec.name for tool in whole if tool not in prompt])
        return prompt, deferred

    async def _begin_servers(self) -> None:
        """Start MCP servers whose tools are not known: in mode `auto` in the sandbox, and fetched after a question."""
        mcp, boxing = self._parts.mcp, self._parts.boxes.workspace(self._cwd)
        entries = mcp.unmet()
        if not entries:
            return
        if self.gate.mode != "auto" or await boxing.lacking("mcp"):
            for entry in entries:
                mcp.begin_first(entry.name, None, self._cwd)
            return
        planned = [
            PlannedCall(
                call_id=f"start_{entry.name}",
                spec=ToolSpec(
                    name=f"mcp__{entry.name}__start",
                    description="",
                    input_schema={},
                    source="mcp",
                    annotations=Annotations(boxed=True),
                ),
                input={"command": mask_text(" ".join([entry.command, *entry.args]))},
            )
            for entry in entries
        ]
        for entry, decision in zip(entries, await self.gate.decide(planned), strict=True):
            if decision.allowed:
                mcp.begin_first(entry.name, decision.box, self._cwd)
            else:
                mcp.hold_back(entry.name, decision.reason)

    async def ensure_ready(self) -> list[str]:
        """Wait until all tools are known. Later calls only look for changes, and return nothing.

        Returns:
            What the user should know about the tools.
        """
        external = self._parts.external
        version = await self._version_now()
        if self._has_all:
            if self._version != version:
                self._version = version
                await self._begin_servers()
                await self.update(wait=True)
            return []
        await self._begin_servers()
        await self.update(wait=True)
        self._version = version
        self._has_all = external.is_complete
        if not self._has_all:
            return [
                "Some executables have not printed their schemas yet. They are available from the next message on."
            ]
        return [*external.notices, *self._parts.mcp.outages()]

    async def refresh(self) -> Registry:
        """See `Session.refresh_tools`."""
        await self._parts.external.refresh()
        await self._parts.mcp.refresh()
        self._has_all = True
        self._version = await self._version_now()
        await self.update(wait=True)
        return self.registry

    async def _version_now(self) -> object:
        """Changes when MCP servers or the catalogue of capabilities have other tools than before, or the user has
        changed rules or approved a tool, at whichever machine.

        Searches leave out what a rule denies.
        """
        await self._parts.agreed.look()
        catalogue: int | None = None
        if self._builds is not None:
            with suppress(StorageError):
                catalogue = await self._builds.catalogue.version()
        parts = self._parts
        return parts.mcp.version, catalogue, parts.settings.permissions, parts.agreed.known
