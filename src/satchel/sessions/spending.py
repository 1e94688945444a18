"""What sessions cost on one day, without reading logs that did not change."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import anyio
import anyio.to_thread

from satchel.sessions.index import Known, LogFile, SessionIndex, files_in, read_on, stat_log

__all__ = ["Spending"]


class Spending:
    """Adds up what the logs of one home say was spent on a day.

    A log only grows while somebody holds its lock, so all logs are looked at when the folder of locks changed, and
    otherwise only those that are locked. What was read of a log is kept, and reading goes on from there.
    """

    def __init__(self, root: Path, index: SessionIndex, lane: anyio.CapacityLimiter) -> None:
        self._root = root
        self._index = index
        self._lane = lane
        self._known: dict[str, Known] = {}
        self._locks_changed_at = -1

    async def on(self, day: str, *, excluding: Collection[str]) -> float:
        """US dollars spent on a local day in all sessions but some.

        Args:
            day: As "2026-11-21".
            excluding: Ids of sessions whose logs are left alone.
        """
        files = await anyio.to_thread.run_sync(self._changed, set(excluding), limiter=self._lane)
        stored: dict[str, Known] = {}
        if missing := [file.name for file in files if file.name not in self._known]:
            stored, _ = await self._index.stored(missing)
        for file in files:
            known = self._known.get(file.name) or stored.get(file.name)
            if known is None or not known.is_current(file):
                reading = await anyio.to_thread.run_sync(read_on, file, known, limiter=self._lane)
                if reading is None:
                    continue  # It can't be read; lists leave it out too.
                known = reading.known
            self._known[file.name] = known
        return sum(
            known.summary.cost_on(day)
            for known in list(self._known.values())
            if known.file.session_id not in excluding
        )

    def _changed(self, excluding: Collection[str]) -> list[LogFile]:
        """The logs whose state is another than the one that was read."""
        locks = self._root / ".locks"
        try:
            # Before the logs are looked at: a lock that is taken or released meanwhile makes the next call look again.
            changed_at = locks.stat().st_mtime_ns
            locked = {lock.name for lock in locks.iterdir()} - set(excluding)
        except FileNotFoundError:
            changed_at, locked = 0, set()
        if changed_at != self._locks_changed_at:
            files = files_in(self._root)
            here = {file.name for file in files}
            self._known = {name: known for name, known in self._known.items() if name in here}
            self._locks_changed_at = changed_at
        else:
            paths = [k.file.path for k in self._known.values() if k.file.session_id in locked]
            # A session's log is made after its lock.
            for session_id in locked - {k.file.session_id for k in self._known.values()}:
                paths += self._root.glob(f"*/*_{session_id}.jsonl")
            files = [file for path in paths if (file := stat_log(self._root, path)) is not None]
        return [
            file
            for file in files
            if file.session_id not in excluding
            and not ((known := self._known.get(file.name)) and known.is_current(file))
        ]
