"""What the routes need: the open Satchel, the sessions in use, and the server's state."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated

from fastapi import Depends, Request

from satchel.errors import StorageError, StorageUnwritable
from satchel.memory import Memory
from satchel.messages import FileBlock
from satchel.runtime import Satchel
from satchel.runtime.capability_parts import CapabilityParts
from satchel.runtime.documents import DocumentOutcome, remember_sent
from satchel.runtime.other_agents.capturing import AgentsQueue
from satchel.server.metrics import Metrics
from satchel.server.open_sessions import OpenSessions
from satchel.server.proxy.proxy import MemoryProxy
from satchel.server.streams import Stopping

__all__ = ["Serves", "Service"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One open Satchel as the routes use it."""

    satchel: Satchel
    sessions: OpenSessions
    metrics: Metrics
    stopping: Stopping
    proxy: MemoryProxy
    queue: AgentsQueue

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

    async def uploaded(self, content: bytes, name: str) -> FileBlock:
        """Keep a file until its message comes; see `Uploads.add`."""
        parts = self.satchel.parts
        return await parts.pool.run(partial(parts.uploads.add, [content], name=name, now=parts.clock.now()))

    async def remember(self, content: bytes, name: str) -> DocumentOutcome:
        """Remember a document that was sent; see `remember_sent`."""
        memory, sandboxes = self.memory, self.satchel.parts.sandboxes
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
