"""What models were shown of memory lately, read from the session logs, which are the only place that keeps it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, Literal

import anyio.to_thread

from satchel.errors import NotFound, StorageError
from satchel.events import MemorySurfaced, SurfacedMemory
from satchel.runtime.lines import one_line
from satchel.sessions import SessionInfo, SessionStore
from satchel.sessions.view import SessionTurn

__all__ = ["SurfacedBlock", "Surfacings"]

_MOST_SESSIONS: Final = 40
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


@dataclass(frozen=True, slots=True)
class _Read:
    """What a log held when its file looked like this."""

    stamp: tuple[int, int, int]
    found: tuple[SurfacedBlock, ...]


class Surfacings:
    """Reads the newest sessions, each again only when its log has changed."""

    def __init__(self, sessions: SessionStore) -> None:
        """Read nothing yet."""
        self._sessions = sessions
        self._read: dict[str, _Read] = {}

    async def newest(self) -> tuple[SurfacedBlock, ...]:
        """What was shown in the 40 sessions that were used last, newest first. A log that can't be read is left out.

        Raises:
            StorageError: The list of sessions can't be read.
        """
        infos = sorted(await self._sessions.list(), key=lambda info: info.last_at, reverse=True)
        read: dict[str, _Read] = {}
        for info in infos[:_MOST_SESSIONS]:
            known = self._read.get(info.id)
            try:
                # A log from which words were removed is another file.
                stamp = await anyio.to_thread.run_sync(_stamp, info.path)
                is_known = known is not None and known.stamp == stamp
                read[info.id] = known if known is not None and is_known else await self._log(info, stamp)
            except (NotFound, StorageError, OSError):
                continue
        self._read = read
        found = [one for log in read.values() for one in log.found]
        return tuple(sorted(found, key=lambda one: one.at, reverse=True))

    async def of(self, memory_id: str) -> tuple[tuple[SurfacedBlock, SurfacedMemory], ...]:
        """When one memory was shown in those sessions, newest first."""
        return tuple(
            (one, memory) for one in await self.newest() for memory in one.memories if memory.id == memory_id
        )

    async def _log(self, info: SessionInfo, stamp: tuple[int, int, int]) -> _Read:
        found: list[SurfacedBlock] = []

        def visit(turn: SessionTurn) -> None:
            found.extend(
                SurfacedBlock(
                    session=info.id,
                    title=info.title,
                    turn=turn.number,
                    at=turn.at,
                    words=one_line(turn.said, _MOST_WORDS),
                    memories=shown.memories,
                    standing=shown.standing,
                )
                for shown in turn.of(MemorySurfaced)
                if shown.memories
            )

        await self._sessions.read_turns(info.id, visit)
        return _Read(stamp, tuple(found))


def _stamp(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns
