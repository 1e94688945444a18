"""Which rows have a stem, and how often: the lexical side of a space."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from satchel.memory.find.candidates.arrays import Column, Floats, Ints
from satchel.memory.text.lexicon import ASKED

_MAX_STEMS = 4096
"""The number of stems whose postings are kept. A conversation of days asks for fewer."""


_PART = np.float32(0.75)
"""How often a row has a stem that only begins or ends a longer word in it: .5 and 1 find about as much."""


class Postings(NamedTuple):
    """The living rows that have a stem, ascending; how often each has it, less than once where it is a part of a
    compound; and the rows that have it in a question.
    """

    rows: Ints
    counts: Floats
    asked: Ints

    @property
    def whole(self) -> Ints:
        """The rows that have it as a word of its own."""
        return self.rows[self.counts >= 1]


class Entries:
    """The entries of a space. Looking up a stem scans all of them once, afterwards only those that were added since."""

    def __init__(self) -> None:
        self._stem = Column(np.uint32)
        self._row = Column(np.int32)
        self._count = Column(np.uint16)
        self._known: dict[int, tuple[Postings, int]] = {}  # With the number of entries that were looked at.

    def append(self, stems: Any, rows: Any, counts: Any) -> None:
        """Add the entries of new rows, which come after all others: one for each different stem of a row, in the order
        of rows. The counts say how often the row has the stem, with the bit `ASKED`.
        """
        self._stem.extend(stems)
        self._row.extend(rows)
        self._count.extend(counts)

    def note_deaths(self) -> None:
        """Rows have died: postings that are kept may name them."""
        self._known.clear()

    def postings(self, stem: int, alive: Any) -> Postings:
        """The living rows that have a stem; `alive` says which live, shape (rows,), bool."""
        known, seen = self._known.get(stem, (None, 0))
        if known is None or seen < len(self._stem):
            # A scan takes 0.6 ms for two million entries, and leaves nothing to sort or to keep in order.
            at = seen + np.flatnonzero(self._stem.values[seen:] == np.uint32(stem))
            at = at[alive[self._row.values[at]]]
            rows, counts = self._row.values[at].astype(np.int64), self._count.values[at]
            found = Postings(
                rows=rows,
                counts=np.maximum((counts & (ASKED - 1)).astype(np.float32), _PART),
                asked=rows[(counts & ASKED) != 0],
            )
            if known is not None:
                both: Any = zip(known, found, strict=True)
                found = Postings(*(np.concatenate(parts) for parts in both))
            if len(self._known) >= _MAX_STEMS:
                self._known.clear()
            self._known[stem] = known, _ = found, len(self._stem)
        return known
