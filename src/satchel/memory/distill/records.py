"""What distilling tells of itself. Plain frozen data."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeAlias

from satchel.messages import Usage, usage_to_json

__all__ = [
    "DistillReport",
    "DistillStatus",
    "Outcome",
    "SpentRow",
    "WindowResult",
    "report_to_json",
    "status_to_json",
]

Outcome: TypeAlias = Literal["facts", "nothing", "failed", "given_up"]
"""What a window came to: it was read and gave facts, or none; it failed and is read again later; it failed too often
and is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowResult:
    """One window of a conversation that was read.

    Attributes:
        session: The conversation, from turn `first_turn` to `last_turn`.
        reason: The small model's, why it is worth reading on or not. It is told and never stored.
        facts: The ids of the facts that are in the store now because of it.
        confirmed: Ids of facts that were there and rest on these words too from now on.
        dropped: Why each of the other proposals was not stored.
        error: What failed, or "".
    """

    session: str
    first_turn: int
    last_turn: int
    outcome: Outcome
    reason: str = ""
    facts: tuple[str, ...] = ()
    confirmed: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DistillReport:
    """One run.

    Attributes:
        windows: What was read, in order.
        usage: Of all calls of both models.
        pending: Episodes that still wait; without a reason in `stopped`, another process is reading them.
        stopped: Why the run ended before all was read, or "".
    """

    windows: tuple[WindowResult, ...] = ()
    usage: Usage = field(default_factory=Usage)
    pending: int = 0
    stopped: str = ""

    @property
    def facts(self) -> tuple[str, ...]:
        """The ids of all facts that were stored."""
        return tuple(id for window in self.windows for id in window.facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpentRow:
    """What one model cost on one local day ("2026-11-21")."""

    day: str
    purpose: str
    provider: str
    model: str
    calls: int
    usage: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class DistillStatus:
    """How distilling is.

    Attributes:
        pending: Episodes that wait to be read, the oldest of them stored at `waiting_since`.
        read: Episodes that were read whole.
        facts: Facts that rest on episodes.
        windows: Windows by what they came to.
        last_at: When a window was read last, or None.
        trouble: The last error, as long as no window was read since; or "".
        failed_since: How many attempts failed since a window was read last.
    """

    pending: int
    waiting_since: datetime | None
    read: int
    facts: int
    windows: dict[str, int]
    last_at: datetime | None
    trouble: str
    failed_since: int
    spent: tuple[SpentRow, ...]

    @property
    def usage(self) -> Usage:
        """Of all calls so far."""
        return sum((row.usage for row in self.spent), Usage())


def report_to_json(report: DistillReport) -> dict[str, Any]:
    """A run as plain JSON data."""
    return {
        "windows": [
            {
                "session": window.session,
                "turns": [window.first_turn, window.last_turn],
                "outcome": window.outcome,
                "reason": window.reason,
                "facts": list(window.facts),
                "confirmed": list(window.confirmed),
                "dropped": list(window.dropped),
                "error": window.error,
            }
            for window in report.windows
        ],
        "facts": list(report.facts),
        "usage": usage_to_json(report.usage),
        "pending": report.pending,
        "stopped": report.stopped,
    }


def status_to_json(status: DistillStatus) -> dict[str, Any]:
    """The status as plain JSON data; times in ISO 8601."""
    return {
        "pending": status.pending,
        "waiting_since": None if status.waiting_since is None else status.waiting_since.isoformat(),
        "read": status.read,
        "facts": status.facts,
        "windows": dict(status.windows),
        "last_at": None if status.last_at is None else status.last_at.isoformat(),
        "trouble": status.trouble,
        "failed_since": status.failed_since,
        "usage": usage_to_json(status.usage),
    }
