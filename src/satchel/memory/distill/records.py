"""The results and the status of distilling, as frozen dataclasses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeAlias

from satchel.memory.store.spending import SpentRow
from satchel.messages import Usage
from satchel.plain import as_json

Outcome: TypeAlias = Literal["facts", "nothing", "failed", "given_up"]
"""The outcome of a window: it was read and yielded facts, or none; it failed and will be retried; it failed too often
and was given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowResult:
    """The result of one window.

    Attributes:
        turns: Of each conversation in it, the first and the last turn.
        titles: What the reader called conversations.
        reason: Why the small model judged it worth remembering or not. It is not stored.
        facts: The ids of new facts.
        confirmed: The ids of known facts that got this window as a further source.
        dropped: For each other proposal, why it was not stored.
        error: What failed, or "".
    """

    turns: Mapping[str, tuple[int, int]]
    outcome: Outcome
    titles: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    facts: tuple[str, ...] = ()
    confirmed: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DistillReport:
    """The result of one run.

    Attributes:
        pending: The number of episodes that are still pending. If `stopped` is "", another process is reading them.
        stopped: Why the run stopped early, or "".
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
class DistillStatus:
    """The status of distilling.

    Attributes:
        pending: The number of episodes to read, in so many `conversations`; the oldest was stored at `waiting_since`.
        read: The number of episodes that were read completely.
        last_at: When a window was last read, or None.
        trouble: The last error if no window was read since, otherwise "".
        failed_since: The number of failures since a window was last read.
    """

    pending: int
    conversations: int
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
        """The total of all calls."""
        return sum((row.usage for row in self.spent), Usage())


def status_to_json(status: DistillStatus) -> dict[str, Any]:
    """Convert a status to JSON data; times are in ISO 8601."""
    shown: dict[str, Any] = as_json(status)
    del shown["spent"]
    return {**shown, "usage": as_json(status.usage)}
