"""Time as a value: who needs the time is given a clock."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Protocol

__all__ = ["Clock", "ManualClock", "SystemClock"]


class Clock(Protocol):
    """Tells the time of day, and a monotonic count of seconds for durations."""

    def now(self) -> datetime:
        """The time of day with its local offset; never naive."""

    def monotonic_s(self) -> float:
        """Seconds since an arbitrary start; never goes back."""


class SystemClock:
    """The machine's own clock, in the local time zone."""

    def now(self) -> datetime:
        """The time of day with the local offset of this moment."""
        return datetime.now(UTC).astimezone()

    def monotonic_s(self) -> float:
        """`time.monotonic`."""
        return time.monotonic()


@dataclass(slots=True)
class ManualClock:
    """A clock that stands still until it is told to move: for tests and replays."""

    at: datetime = field(default_factory=lambda: datetime(2026, 1, 1, 12, tzinfo=UTC))
    elapsed_s: float = 0.0

    def now(self) -> datetime:
        """The time that it was set to."""
        return self.at

    def monotonic_s(self) -> float:
        """The seconds that it was moved by."""
        return self.elapsed_s

    def advance(self, seconds: float) -> None:
        """Move both readings on.

        Args:
            seconds: How far; not negative.
        """
        self.at += timedelta(seconds=seconds)
        self.elapsed_s += seconds
