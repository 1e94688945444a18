"""Time as a value: code that needs the time receives a clock."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone
from typing import Protocol


def local_day(at: datetime) -> str:
    """The day that budgets, usage and records of calls count by, as "2026-11-21": in the zone of the time."""
    return f"{at:%Y-%m-%d}"


def in_zone_of(aware: datetime, at: datetime) -> datetime:
    """A naive time in the zone of another time, with the offset that the zone has on the naive time's own day.

    A time that was stored or read from the system clock only has an offset. If the system's zone had that offset at
    that time, it is taken for the zone; otherwise, and before 1970, the offset itself.
    """
    is_system = isinstance(aware.tzinfo, timezone) and aware.astimezone().utcoffset() == aware.utcoffset()
    return at.astimezone() if is_system and at.year >= 1970 else at.replace(tzinfo=aware.tzinfo)


class Clock(Protocol):
    """Provides the time of day, and monotonic seconds for durations."""

    def now(self) -> datetime:
        """The time of day with its local offset; never naive."""

    def monotonic_s(self) -> float:
        """Seconds since an arbitrary start; never decreases."""


class SystemClock:
    """The system clock, in the local time zone."""

    def now(self) -> datetime:
        """The current time with the current local offset."""
        return datetime.now(UTC).astimezone()

    def monotonic_s(self) -> float:
        """`time.monotonic`."""
        return time.monotonic()


class ManualClock:
    """A clock that moves only when it is told to, for tests and replays."""

    __slots__ = ("at", "elapsed_s")

    def __init__(self, at: datetime = datetime(2026, 1, 1, 12, tzinfo=UTC), elapsed_s: float = 0.0) -> None:
        """Show this time of day, and so many seconds since the start."""
        self.at = at
        self.elapsed_s = elapsed_s

    def now(self) -> datetime:
        """The time that the clock shows."""
        return self.at

    def monotonic_s(self) -> float:
        """The seconds by which the clock was moved."""
        return self.elapsed_s

    def advance(self, seconds: float) -> None:
        """Move both readings forward.

        Args:
            seconds: How far; not negative.
        """
        self.at += timedelta(seconds=seconds)
        self.elapsed_s += seconds
