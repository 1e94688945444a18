"""What the routes need: the open Satchel, the sessions in use, and the server's state."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from fastapi import Depends, HTTPException, Query, Request

from satchel.errors import NotFound, StorageError, StorageUnwritable
from satchel.memory import Memory
from satchel.messages import FileBlock
from satchel.runtime import Satchel
from satchel.runtime.capability_parts import CapabilityParts
from satchel.runtime.documents import DocumentOutcome, remember_sent
from satchel.runtime.elsewhere import Elsewhere
from satchel.runtime.other_agents.capturing import AgentsQueue
from satchel.runtime.projects import Project, project_to_json
from satchel.runtime.spaces import Spaces
from satchel.server.metrics import Metrics
from satchel.server.open_sessions import OpenSessions
from satchel.server.page_import import PageImport
from satchel.server.proxy.proxy import MemoryProxy
from satchel.server.streams import DataEvent, EventStream, ServerEvent, Stopping
from satchel.sessions.branches import folded


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One open Satchel as the routes use it."""

    satchel: Satchel
    sessions: OpenSessions
    elsewhere: Elsewhere
    metrics: Metrics
    stopping: Stopping
    proxy: MemoryProxy
    queue: AgentsQueue
    importing: PageImport

    def check_running(self) -> None:
        """Begin nothing more once the server stops.

        Raises:
            HTTPException: It does (503).
        """
        if self.stopping.has_begun:
            raise HTTPException(503, "The server is stopping.")

    def stream(
        self, events: AsyncGenerator[ServerEvent, None] | AsyncGenerator[DataEvent, None], **more: Any
    ) -> EventStream:
        """The answer that sends events as they come; see `EventStream`."""
        return EventStream(events, stopping=self.stopping, metrics=self.metrics, **more)

    async def check_here(self, session_id: str) -> None:
        """Have a request carried out by the server that has a session open, by its full id, if that is another one.

        Raises:
            SessionInUse: It is; see `PassingOn`.
        """
        if not self.satchel.has_open(session_id):
            await self.satchel.sessions.check_served(session_id)

    @property
    def memory(self) -> Memory:
        """The memory.

        Raises:
            StorageError: It is off or could not be opened.
        """
        if self.satchel.memory is None:
            raise StorageError(
                "Memory is off (memory.enabled) or could not be opened. `satchel doctor` shows why."
            )
        return self.satchel.memory

    @property
    def spaces(self) -> Spaces:
        """What the user shares with others.

        Raises:
            NotFound: The home is the only one of its server.
        """
        found = self.satchel.home.spaces
        if found is None:
            raise NotFound("Nobody else uses this server, so nothing is shared.")
        return found

    async def project_memory(self, project: Project) -> Memory:
        """The memory of a project. Errors as of `memory`."""
        return await self.satchel.home.memory_in(project.id) or self.memory

    async def memory_named(self, project: str) -> Memory:
        """The memory of the project with this id or name; the user's own for "".

        Raises:
            NotFound: There is no such project.
            StorageError: As of `memory`.
        """
        return await self.project_memory(self.satchel.home.projects.find(project)) if project else self.memory

    async def memory_with(self, id: str) -> Memory:
        """The memory that has this id: the user's own, or that of a project. Errors as of `memory`."""
        found = [
            one for one in await self.satchel.home.memories() if await one.known([await one.full_id(id)])
        ]
        return found[0] if found else self.memory

    async def undo(self, change: str, *later: str) -> str:
        """Undo changes of the user's own memories or of a project's; see `Memory.undo`. Errors as of `memory`, too."""
        own = self.memory
        for memory in await self.satchel.home.memories():
            with suppress(NotFound):
                return await memory.undo(change, *later)
        return await own.undo(change, *later)  # says that there is none

    async def project_to_json(self, project: Project) -> dict[str, Any]:
        """A project with the numbers of its conversations, memories and documents."""
        memory = await self.project_memory(project)
        return project_to_json(
            project,
            conversations=len(folded(await self.satchel.home.sessions_in(project.id))),
            memories=await memory.count(),
            documents=len(await memory.documents()),
        )

    async def delete_project(self, project: Project) -> None:
        """Delete a project, whoever follows its conversations; see `Satchel.delete_project`.

        Raises:
            HTTPException: A turn is running in one of them (409).
        """
        infos = await self.satchel.home.sessions_in(project.id)
        for info in infos:
            self.sessions.check_still(info.id)
        for info in infos:
            await self.sessions.delete(info.id)
        await self.satchel.delete_project(project)

    async def uploaded(self, content: bytes, name: str) -> FileBlock:
        """Keep a file until its message comes; see `Uploads.add`."""
        parts = self.satchel.parts
        return await parts.pool.run(partial(parts.uploads.add, [content], name=name, now=parts.clock.now()))

    async def drop_uploaded(self, files: Sequence[FileBlock]) -> None:
        """Forget files whose message was refused."""
        if files:
            await self.satchel.parts.pool.run(self.satchel.parts.uploads.drop, files)

    async def remember(self, content: bytes, name: str, *, project: str = "") -> DocumentOutcome:
        """Remember a document that was sent, in a project or as the user's own; see `remember_sent`."""
        memory, sandboxes = await self.memory_named(project), self.satchel.parts.sandboxes
        try:
            return await remember_sent(
                content, name, home=self.satchel.settings.home, memory=memory, sandboxes=sandboxes
            )
        except OSError as error:
            raise StorageUnwritable(f"The document can't be stored: {error.strerror}.") from error

    @property
    def capabilities(self) -> CapabilityParts:
        """What is done with capabilities.

        Raises:
            StorageError: The database could not be opened.
        """
        if self.satchel.capabilities is None:
            raise StorageError("Capabilities are unavailable. `satchel doctor` shows why.")
        return self.satchel.capabilities


def _service(request: Request) -> Service:
    found: Service = request.app.state.service
    return found


Serves = Annotated[Service, Depends(_service)]
"""The argument of a route that gets the service."""
InProject = Annotated[
    str, Query(max_length=100, description="Of the project with this id or name; without it, your own.")
]
