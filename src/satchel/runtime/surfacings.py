"""What models were shown of memory lately, read from the session logs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from satchel.events import MemorySurfaced, SurfacedMemory
from satchel.runtime.lines import one_line
from satchel.runtime.newest_logs import NewestLogs
from satchel.sessions import SessionInfo, SessionStore
from satchel.sessions.view import SessionTurn

__all__ = ["SurfacedBlock", "Surfacings"]

_MOST_WORDS: Final = 200
"""Characters of the message that a memory was shown with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SurfacedBlock:
    """One block of memories that a model was shown.

    Attributes:
        words: The beginning of the message that it was shown with.
        memories: What it contained, best first, with what spoke most for each.
        standing: As in `MemorySurfaced`.
    """

    session: str
    title: str
    turn: int
    at: datetime
    words: str
    memories: tuple[SurfacedMemory, ...]
    standing: Literal["", "profile", "agenda"]


class Surfacings:
    """Reads the newest sessions."""

    def __init__(self, sessions: SessionStore) -> None:
        """Read nothing yet."""
        self._logs = NewestLogs(sessions, _shown_in)

    async def newest(self) -> tuple[SurfacedBlock, ...]:
        """What was shown in the sessions that were used last, newest first; see `NewestLogs.read`."""
        return tuple(sorted(await self._logs.read(), key=lambda one: one.at, reverse=True))

    async def of(self, memory_id: str) -> tuple[tuple[SurfacedBlock, SurfacedMemory], ...]:
        """When one memory was shown in those sessions, newest first."""
        return tuple(
            (one, memory) for one in await self.newest() for memory in one.memories if memory.id == memory_id
        )


def _shown_in(info: SessionInfo, turn: SessionTurn) -> Iterator[SurfacedBlock]:
    for shown in turn.of(MemorySurfaced):
        if shown.memories:
            yield SurfacedBlock(
                session=info.id,
                title=info.title,
                turn=turn.number,
                at=turn.at,
                words=one_line(turn.said, _MOST_WORDS),
                memories=shown.memories,
                standing=shown.standing,
            )
