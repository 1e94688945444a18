"""Whether a clause speaks of the past or the future."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping
from typing import Final

from satchel.memory.dates.spans import Tense

__all__ = ["clause_around", "tense_of"]

_FAR: Final = 200
"""Characters around a date that are looked at: a long sentence says nothing about its far end, and searching it for
each of its dates would be quadratic."""
_DATE: Final = "\N{CURRENCY SIGN}"
"""Stands for the date itself, whose words have no tense."""


def clause_around(text: str, start: int, end: int, ends: list[int]) -> str:
    """The clause that a date stands in, with a sign in the place of the date; `ends` is where clauses end, in order."""
    earlier, later = bisect_left(ends, start + 1), bisect_left(ends, end)
    left = max(ends[earlier - 1] if earlier else 0, start - _FAR)
    right = min(ends[later] if later < len(ends) else len(text), end + _FAR)
    return f"{text[left:start]}{_DATE}{text[end:right]}"


def tense_of(clause: str, signs: Mapping[str, re.Pattern[str]]) -> Tense:
    """The tense of a clause: that of its verb; of several, the last one before the date, or the first one after it.

    Of the signs, `past`, `future` and `present` find verbs; a present one counts where there is no other. Where a
    language has them: `auxiliary`, before which a verb that looks past is none; `since`, after which everything is
    past; `arranged`, after which everything is still to come, unless there is `planned`; and `perfect`, which is past
    though a present form stands nearer.
    """
    place = clause.index(_DATE)
    before = clause[:place]
    if "since" in signs and signs["since"].search(before):
        return "past"
    if "arranged" in signs and signs["arranged"].search(before):
        # "It had been moved to Friday", "it was planned for Friday": what became of it is not said.
        return "unknown" if signs["planned"].search(before) else "future"
    found: list[tuple[int, Tense]] = []
    for tense in ("past", "future", "present"):
        for match in signs[tense].finditer(clause) if tense in signs else ():
            # "Will quit": some verbs look the same in the past, and are no past after an auxiliary.
            if (
                tense == "past"
                and "auxiliary" in signs
                and signs["auxiliary"].search(clause[: match.start()])
            ):
                continue
            found.append((match.start(), tense))
    found = [verb for verb in found if verb[1] != "present"] or found
    earlier = [verb for verb in found if verb[0] < place]
    if not earlier:
        return min(found, default=(0, "unknown"), key=lambda verb: verb[0])[1]
    if (
        any(tense == "past" for _, tense in earlier)
        and "perfect" in signs
        and signs["perfect"].search(before)
    ):
        return "past"
    return max(earlier, key=lambda verb: verb[0])[1]
