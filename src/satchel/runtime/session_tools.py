"""When the tools of a session are known, and when they have to be looked at again."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

from satchel.config import mask_text
from satchel.errors import StorageError
from satchel.runtime.builds import Builds
from satchel.runtime.offered_tools import OfferedTools
from satchel.runtime.parts import Parts
from satchel.tools import Annotations, ModeGate, PlannedCall, Registry, ToolSpec


@dataclass(slots=True, eq=False)
class SessionTools:
    """Waits for executables and MCP servers before the first message, and takes in what changes between messages.

    Attributes:
        gate: Decides whether an MCP server may be fetched.
        builds: Their catalogue may get other tools; None where nothing is built.
    """

    offered: OfferedTools
    _: KW_ONLY
    parts: Parts
    gate: ModeGate
    cwd: Path
    builds: Builds | None
    _version: object = field(default=None, init=False)
    _has_all: bool = field(default=False, init=False)

    async def _begin_servers(self) -> None:
        """Start MCP servers whose tools are not known: in mode `auto` in the sandbox, and fetched after a question."""
        mcp, boxing = self.parts.mcp, self.parts.boxes.workspace(self.cwd)
        entries = mcp.unmet()
        if not entries:
            return
        if self.gate.mode != "auto" or await boxing.lacking("mcp"):
            for entry in entries:
                mcp.begin_first(entry.name, None, self.cwd)
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
                mcp.begin_first(entry.name, decision.box, self.cwd)
            else:
                mcp.hold_back(entry.name, decision.reason)

    async def ensure_ready(self) -> list[str]:
        """Wait until all tools are known. Later calls only look for changes, and return nothing.

        Returns:
            What the user should know about the tools.
        """
        external = self.parts.external
        version = await self._version_now()
        if self._has_all:
            if self._version != version:
                self._version = version
                await self._begin_servers()
                await self.offered.update(wait=True)
            return []
        await self._begin_servers()
        await self.offered.update(wait=True)
        self._version = version
        self._has_all = external.is_complete
        if not self._has_all:
            return [
                "Some executables have not printed their schemas yet. They are available from the next message on."
            ]
        return [*external.notices, *self.parts.mcp.outages()]

    async def refresh(self) -> Registry:
        """See `Session.refresh_tools`."""
        await self.parts.external.refresh()
        await self.parts.mcp.refresh()
        self._has_all = True
        self._version = await self._version_now()
        await self.offered.update(wait=True)
        return self.offered.registry

    async def _version_now(self) -> object:
        """Changes when MCP servers or the catalogue of capabilities have other tools than before, or rules change.

        Searches leave out what a rule denies.
        """
        catalogue: int | None = None
        if self.builds is not None:
            with suppress(StorageError):
                catalogue = await self.builds.catalogue.version()
        return self.parts.mcp.version, catalogue, self.parts.settings.permissions
