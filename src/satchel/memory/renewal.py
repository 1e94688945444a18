"""What was said later than a line that is to be shown, and takes its place, so that an old value stands alone seldom.

Three things tell of it. A memory that supersedes a fact, or a fact that was drawn from a turn, is certain; two that
comparing has linked may replace one another (`outdating`, `grouping`); and among the candidates of this very message, a
regression finds the user's later turn that the message needs instead of an earlier one. docs/decisions/0034 has its
figures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from satchel.memory.choosing import Weights, is_assistants
from satchel.memory.outdating import strength_of
from satchel.memory.records import MemoryRecord

if TYPE_CHECKING:
    from satchel.memory.weighed import Weighed

__all__ = ["later_features", "later_turns", "renew"]

_BESIDE = 0.3
"""From this probability on, a memory that may replace another one is shown before it (decision 33)."""
_LATER_CHANCE = 0.01
_INSTEAD = 0.03
"""A turn for which the user's later turns count together as much as that isn't shown; the likeliest of them is, from
`_LATER_CHANCE` on. Decision 34 has the curve: these show as much of what is needed as 0.1 would, less .04, and half as
many outdated values alone."""

Strength: TypeAlias = Callable[[MemoryRecord, MemoryRecord], tuple[float, float]]
"""`outdating.strength_of` an earlier and a later turn."""


def _strength(earlier: MemoryRecord, later: MemoryRecord) -> tuple[float, float]:
    return strength_of(earlier.content, later.content)


def later_features(
    weighed: Weighed,
    weights: Weights,
    at: int,
    others: Sequence[int],
    strengths: Sequence[tuple[float, float]],
) -> dict[str, Any]:
    """Measure a turn against later turns of the user: arrays of shape (n,) by name, see `choosing.LATER_FEATURES`.

    Args:
        weighed: Both are of it.
        weights: For the log-odds of lines.
        at: The turn that is to be shown.
        others: The later ones, n of them.
        strengths: Of each of these, `outdating.strength_of`.
    """
    places = np.array(others, dtype=np.int64)
    log_odds = np.clip(weights.line.log_odds(weighed.features), -20, 20)
    alike = weighed.alike[at, places]
    base = np.array([strength for strength, _ in strengths])
    found = {
        "outdating": base + np.array([more for _, more in strengths]) * np.maximum(alike, 0),
        "earlier": np.full(len(places), log_odds[at]),
        "later": log_odds[places],
        "alike": alike,
        "later_covered": weighed.features["covered"][places],
    }
    if "called" in weighed.features:
        found["later_called"] = weighed.features["called"][places]
    return found


def later_turns(weighed: Weighed, at: int) -> list[int]:
    """The places of what the user said after a turn, in other sessions: one of them may take its place."""
    records = weighed.records
    earlier = records[at]
    if earlier.kind != "episode" or weighed.told[at]:
        return []
    return [
        place
        for place, later in enumerate(records)
        if later.kind == "episode"
        and later.trust == "user"
        and not is_assistants(later)
        and later.said_at > earlier.said_at
        and later.source.session != earlier.source.session
    ]


def renew(
    chosen: Sequence[int],
    weighed: Weighed,
    weights: Weights,
    *,
    strength: Strength = _strength,
) -> tuple[list[tuple[int, MemoryRecord]], dict[int, str]]:
    """Put what was said later before what it may replace, and leave out turns that are likely out of date.

    Args:
        chosen: The places of what is to be shown, surest first.
        weighed: What they are of.
        weights: Of the features.
        strength: See `outdating.strength_of`; for the earlier one and the later one.

    Returns:
        What to show, each with the place of the line for which it is shown; and what is left out, with the reason.
    """
    likely = {at: _likely_later(at, weighed, weights, strength) for at in chosen}
    left_out = {
        at: f"{weighed.records[some[0][1]].id} may say it later"
        for at, some in likely.items()
        if 1 - math.prod(1 - chance for chance, _ in some) >= _INSTEAD
    }
    shown: dict[str, tuple[int, MemoryRecord]] = {}
    for at in chosen:
        least = 1.0 if weighed.told[at] else _BESIDE
        later = [one.memory for one in weighed.later[at] if one.is_certain or one.weight >= least][:1]
        later += [
            weighed.records[place]
            for chance, place in likely[at][:1]
            if chance >= _LATER_CHANCE and place not in left_out
        ]
        if at not in left_out:
            later.append(weighed.records[at])
        for record in later:
            shown.setdefault(record.id, (at, record))
    return list(shown.values()), left_out


def _likely_later(
    at: int,
    weighed: Weighed,
    weights: Weights,
    strength: Strength,
) -> list[tuple[float, int]]:
    """Later turns of the user with the chance that the message needs each instead of a turn: the likeliest first."""
    others = later_turns(weighed, at)
    if not others:
        return []
    strengths = [strength(weighed.records[at], weighed.records[place]) for place in others]
    log_odds = weights.later.log_odds(later_features(weighed, weights, at, others, strengths))
    chances = 1 / (1 + np.exp(-np.clip(log_odds, -30, 30)))
    return sorted(zip(chances.tolist(), others, strict=True), reverse=True)
