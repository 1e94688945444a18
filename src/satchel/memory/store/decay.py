"""How a memory fades: computed when it is read, from its priority, its rate and the time since it was last used.

Nothing is ever written for it: no request updates a row, and nothing that faded is deleted. Below the floor a memory
is no longer shown by itself; search finds it all the same.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal, TypeAlias

from satchel.memory.records import MemoryRecord

DecayCycle: TypeAlias = Literal["day", "request"]
"""What a rate of decay counts: days, or chat requests (seed-0, "Memory tiers and decay")."""

FLOOR = 0.05
"""The priority below which a memory stops surfacing (seed-0)."""

LASTING_IMPORTANCE = 5
"""The importance from which a memory below the floor is shown all the same: an allergy matters, however old it is."""

EPISODE_DECAY_RATE = 0.001
"""Of what was said, word for word: it is the record that facts rest on, and all there is where no language model
distils. At the rate of its tier it would fall silent after 25 days; at this one after 500 unused ones."""

_DAY_S = 86_400.0
_HALVES_DAYS = 30.0
FACTORS = ("importance", "recency", "priority")
_SWING = 0.1  # Each of the three moves a score by at most a tenth (DESIGN 5).


def cycles_since(record: MemoryRecord, now: datetime) -> float:
    """Days since a memory was last used or, where it never was, stored; not below 0."""
    since = record.last_accessed or record.created_at
    return max(0.0, (now - since).total_seconds() / _DAY_S)


def priority_now(record: MemoryRecord, now: datetime) -> float:
    """The priority that is left, 0 to 1: what was set, less the rate for each day since the last use.

    Use reinforces: it begins the count anew. `repository.fading` counts chat requests too.
    """
    return max(0.0, record.priority - record.decay_rate * cycles_since(record, now))


def recency_weight(age_days: float) -> float:
    """Weigh a memory by its age: 1.0 up to 7 days, falling linearly to 0.5 at 90 days (seed-2, section 4.3)."""
    return 1.0 - 0.5 * min(max((age_days - 7.0) / 83.0, 0.0), 1.0)


def factors(importance: int, age_days: float, priority: float) -> tuple[float, float, float]:
    """What importance (1 to 5), the days since it was said and the priority that is left multiply a score by: each in
    [0.9, 1.1], in the order of `FACTORS`. Importance 3, a priority of one half and an age of a month change nothing.
    """
    halvings = age_days / _HALVES_DAYS
    return (
        1.0 + _SWING * (importance - 3) / 2,
        1.0 - _SWING + 2 * _SWING * 0.5 ** (0.0 if halvings < 0.0 else min(halvings, 60.0)),
        1.0 - _SWING + 2 * _SWING * priority,
    )
