"""What the sessions of a home cost on one day, without reading logs that have not changed."""

from __future__ import annotations

from collections.abc import Collection

import anyio
import anyio.to_thread

from satchel.sessions.index import KnownLog, SessionIndex, read_on
from satchel.sessions.logs import LogFile, Logs

__all__ = ["Spending"]


class Spending:
    """Adds up what was spent on a day, from the logs.

    Only logs that may have grown are looked at. What is known of a log is kept, and only its new lines are read.
    """

    def __init__(self, logs: Logs, index: SessionIndex, lane: anyio.CapacityLimiter) -> None:
        self._logs = logs
        self._index = index
        self._lane = lane
        self._checking = anyio.Lock()
        self._known: dict[str, KnownLog] = {}
        self._day = ""
        self._costs: dict[str, float] = {}
        self._is_complete = False

    async def on(self, day: str, *, open_here: Collection[str]) -> float:
        """US dollars spent on a local day.

        Args:
            day: As "2026-11-21".
            open_here: Ids of sessions whose logs are not read; their journals know what they cost.
        """
        known_at_once = await self._logs.spent(day, open_here)
        if known_at_once is not None:
            return known_at_once
        async with self._checking:
            files = await anyio.to_thread.run_sync(self._changed, set(open_here), limiter=self._lane)
            stored: dict[str, KnownLog] = {}
            if missing := [file.name for file in files if file.name not in self._known]:
                stored, _ = await self._index.stored(missing)
            for file in files:
                known = self._known.get(file.name) or stored.get(file.name)
                if known is None or not known.is_current(file):
                    reading = await anyio.to_thread.run_sync(
                        read_on, self._logs, file, known, limiter=self._lane
                    )
                    if reading is None:
                        continue  # It can't be read; lists leave it out as well.
                    known = reading.known
                self._known[file.name] = known
                self._costs.pop(file.name, None)
            # Not before everything is read, because this call may be cancelled.
            self._is_complete = True
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

    def _changed(self, open_here: Collection[str]) -> list[LogFile]:
        """The logs that have changed since they were read."""
        files = self._logs.growing(open_here)
        if files is None or not self._is_complete:
            self._is_complete = False
            files = self._logs.files()
            for name in self._known.keys() - {file.name for file in files}:
                del self._known[name]
                self._costs.pop(name, None)
        return [
            file
            for file in files
            if file.session_id not in open_here
            and not ((known := self._known.get(file.name)) and known.is_current(file))
        ]
