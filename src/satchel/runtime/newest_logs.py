"""Reads the newest session logs, which are the only place that keeps what happened, each again only when it changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, TypeVar

import anyio.to_thread

from satchel.errors import NotFound, StorageError
from satchel.sessions import SessionInfo, SessionStore
from satchel.sessions.view import SessionTurn

__all__ = ["NewestLogs"]

T = TypeVar("T")

_MOST_SESSIONS: Final = 40


@dataclass(frozen=True, slots=True)
class _Read(Generic[T]):
    """What a log held when its file looked like this."""

    stamp: tuple[int, int, int]
    found: tuple[T, ...]


class NewestLogs(Generic[T]):
    """What a function finds in the turns of the sessions that were used last."""

    def __init__(
        self, sessions: SessionStore, find: Callable[[SessionInfo, SessionTurn], Iterable[T]]
    ) -> None:
        """Read nothing yet. `find` is called in a worker thread."""
        self._sessions = sessions
        self._find = find
        self._read: dict[str, _Read[T]] = {}

    async def read(self) -> tuple[T, ...]:
        """What there is in the 40 sessions that were used last, in order in each. A log that can't be read is left out.

        Raises:
            StorageError: The list of sessions can't be read.
        """
        infos = sorted(await self._sessions.list(), key=lambda info: info.last_at, reverse=True)
        read: dict[str, _Read[T]] = {}
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
        return tuple(one for log in read.values() for one in log.found)

    async def _log(self, info: SessionInfo, stamp: tuple[int, int, int]) -> _Read[T]:
        found: list[T] = []
        await self._sessions.read_turns(info.id, lambda turn: found.extend(self._find(info, turn)))
        return _Read(stamp, tuple(found))


def _stamp(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns
