"""Whether a clause speaks of the past or the future."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from satchel.memory.text.dates.spans import Tense

_FAR: Final = 200
"""Characters around a date that are looked at: a long sentence says nothing about its far end."""
_BEFORE_VERB: Final = 40
"""Characters before a verb that its auxiliary stands in."""
_DATE: Final = "\N{CURRENCY SIGN}"
"""Stands for every character of a date, whose own words have no tense."""


class Clauses:
    """The clauses of a text, and the verbs in them.

    Of the signs of a language, `clause` finds where clauses end; `past`, `future` and `present` find verbs, and a
    present one counts where there is no other. Where a language has them: `auxiliary`, before which a verb that looks
    past is none; `since`, after which everything is past; `arranged`, after which everything is still to come, unless
    there is `planned`; `perfect`, which is past though a present form stands nearer; and `unclear`, which says nothing
    about what became of it ("I wanted to come on Monday").
    """

    def __init__(
        self, text: str, dates: Sequence[tuple[int, int]], signs: Mapping[str, re.Pattern[str]]
    ) -> None:
        """Take a text apart; `dates` says where its dates begin and end, in order."""
        parts: list[str] = []
        reached = 0
        for start, end in dates:
            parts += (text[reached:start], _DATE * (end - start))
            reached = end
        self._plain = text
        self._text = "".join(parts) + text[reached:]
        self._signs = signs
        self._ends = [match.end() for match in signs["clause"].finditer(self._text)]
        self._verbs = sorted(self._found())

    def _found(self) -> Iterator[tuple[int, Tense]]:
        tenses: tuple[Tense, ...] = ("past", "future", "present")
        for tense in tenses:
            for match in self._signs[tense].finditer(self._text) if tense in self._signs else ():
                # "Will quit": some verbs look the same in the past, and are no past after an auxiliary.
                before = self._text[max(match.start() - _BEFORE_VERB, 0) : match.start()]
                if tense != "past" or not self._has("auxiliary", before):
                    yield match.start(), tense

    def _has(self, sign: str, text: str) -> bool:
        return sign in self._signs and self._signs[sign].search(text) is not None

    def _bounds(self, start: int, end: int) -> tuple[int, int]:
        earlier, later = bisect_left(self._ends, start + 1), bisect_left(self._ends, end)
        left = max(self._ends[earlier - 1] if earlier else 0, start - _FAR)
        right = min(self._ends[later] if later < len(self._ends) else len(self._text), end + _FAR)
        return left, right

    def comes_yearly(self, start: int, end: int) -> bool:
        """Whether the clause of a date speaks of what comes every year, or of a birth, whose year isn't said."""
        left, right = self._bounds(start, end)
        return self._has("yearly", self._plain[left:right])

    def tense(self, start: int, end: int) -> Tense:
        """The tense around a date: that of the last verb before it in its clause, or of the first one after it."""
        left, right = self._bounds(start, end)
        before = self._text[left:start]
        if self._has("unclear", self._text[left:right]):
            return "unknown"
        if self._has("since", before):
            return "past"
        if self._has("arranged", before):
            # "It had been moved to Friday", "it was planned for Friday": what became of it is not said.
            return "unknown" if self._has("planned", before) else "future"
        verbs = self._verbs[bisect_left(self._verbs, (left, "")) : bisect_left(self._verbs, (right, ""))]
        verbs = [verb for verb in verbs if verb[1] != "present"] or verbs
        earlier = [verb for verb in verbs if verb[0] < start]
        if not earlier:
            return verbs[0][1] if verbs else "unknown"
        if any(tense == "past" for _, tense in earlier) and self._has("perfect", before):
            return "past"
        return earlier[-1][1]
