"""What the sessions of a home cost on one day, without reading logs that have not changed."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import anyio
import anyio.to_thread

from satchel.sessions.index import KnownLog, LogFile, SessionIndex, files_in, read_on, stat_log

__all__ = ["Spending"]


class Spending:
    """Adds up what was spent on a day, from the logs.

    A log grows only while its writer's lock is held. So every log is checked for changes when the folder of locks has
    changed, and only the locked ones otherwise. What is known of a log is kept, and only its new lines are read.
    """

    def __init__(self, root: Path, index: SessionIndex, lane: anyio.CapacityLimiter) -> None:
        self._root = root
        self._index = index
        self._lane = lane
        self._checking = anyio.Lock()
        self._known: dict[str, KnownLog] = {}
        self._day = ""
        self._costs: dict[str, float] = {}
        self._locks_changed_at = -1

    async def on(self, day: str, *, open_here: Collection[str]) -> float:
        """US dollars spent on a local day.

        Args:
            day: As "2026-11-21".
            open_here: Ids of sessions whose logs are not read; their journals know what they cost.
        """
        async with self._checking:
            changed_at, files = await anyio.to_thread.run_sync(
                self._changed, set(open_here), limiter=self._lane
            )
            stored: dict[str, KnownLog] = {}
            if missing := [file.name for file in files if file.name not in self._known]:
                stored, _ = await self._index.stored(missing)
            for file in files:
                known = self._known.get(file.name) or stored.get(file.name)
                if known is None or not known.is_current(file):
                    reading = await anyio.to_thread.run_sync(read_on, file, known, limiter=self._lane)
                    if reading is None:
                        continue  # It can't be read; lists leave it out as well.
                    known = reading.known
                self._known[file.name] = known
                self._costs.pop(file.name, None)
            # Not before everything is read, because this call may be cancelled.
            self._locks_changed_at = changed_at
            if day != self._day:
                self._day, self._costs = day, {}
            for name, known in self._known.items():
                if name not in self._costs:
                    self._costs[name] = known.summary.cost_on(day)
            return sum(
                cost
                for name, cost in self._costs.items()
                if self._known[name].file.session_id not in open_here
            )

    def _changed(self, open_here: Collection[str]) -> tuple[int, list[LogFile]]:
        """When the folder of locks changed, and the logs that have changed since they were read."""
        locks = self._root / ".locks"
        try:
            # Read before the logs are checked, so that a lock that changes meanwhile is noticed by the next call.
            changed_at = locks.stat().st_mtime_ns
            locked = {lock.name for lock in locks.iterdir()} - set(open_here)
        except FileNotFoundError:
            changed_at, locked = 0, set()
        if changed_at != self._locks_changed_at:
            files = files_in(self._root)
            for name in self._known.keys() - {file.name for file in files}:
                del self._known[name]
                self._costs.pop(name, None)
        else:
            paths = [k.file.path for k in self._known.values() if k.file.session_id in locked]
            # A session's lock exists before its log.
            for session_id in locked - {k.file.session_id for k in self._known.values()}:
                paths += self._root.glob(f"*/*_{session_id}.jsonl")
            files = [file for path in paths if (file := stat_log(self._root, path)) is not None]
        return changed_at, [
            file
            for file in files
            if file.session_id not in open_here
            and not ((known := self._known.get(file.name)) and known.is_current(file))
        ]
