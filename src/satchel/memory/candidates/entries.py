"""Which rows have a stem, and how often: the lexical side of a space."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from satchel.memory.candidates.array_file import NewColumn
from satchel.memory.candidates.arrays import Floats, Ints
from satchel.memory.candidates.columns import Column
from satchel.memory.lexicon import ASKED

__all__ = ["Entries", "EntryArrays", "Postings"]

_MAX_STEMS = 4096
"""The number of stems whose postings are kept. A conversation of days asks for fewer."""


class Postings(NamedTuple):
    """The living rows that have a stem, ascending; how often each has it; and the rows that have it in a question."""

    rows: Ints
    counts: Floats
    asked: Ints


class EntryArrays(NamedTuple):
    """One entry for each different stem of a row, in the order of rows.

    Attributes:
        stems: uint32, hashes of stems; 0 where the row was erased.
        rows: int32, ascending.
        counts: uint16, how often the row has the stem, and the bit `ASKED`.
    """

    stems: Any
    rows: Any
    counts: Any


@dataclass(slots=True)
class _Known:
    """Postings that were looked up, and how much of the entries they are of."""

    postings: Postings
    entries: int
    deaths: int


class Entries:
    """The entries of a space: a part that does not change, and what was added since.

    Looking up a stem scans all entries once. Afterwards only what changed is looked at.
    """

    def __init__(self, base: EntryArrays | None = None) -> None:
        """Start with the entries of a file, or with none."""
        self._base = base
        self._stem = Column(np.uint32)
        self._row = Column(np.int32)
        self._count = Column(np.uint16)
        self._known: dict[int, _Known] = {}
        self._deaths = 0

    def append(self, entries: EntryArrays) -> None:
        """Add the entries of new rows, which come after all others."""
        self._stem.extend(entries.stems)
        self._row.extend(entries.rows)
        self._count.extend(entries.counts)

    def note_deaths(self) -> None:
        """Rows have died: postings that are kept may name them."""
        self._deaths += 1

    def parts(self) -> Iterator[EntryArrays]:
        """All entries, those of dead rows included."""
        if self._base is not None:
            yield self._base
        yield EntryArrays(self._stem.values, self._row.values, self._count.values)

    @property
    def size_bytes(self) -> int:
        """Of the entries."""
        return sum(array.nbytes for part in self.parts() for array in part)

    def freeze(self, number: Any) -> dict[str, NewColumn]:
        """All entries as the columns of a file.

        Args:
            number: The new number of each row, or -1 for those that are left out.
        """
        parts = [_renumbered(part, number) for part in self.parts()]
        stems, rows, counts = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        if (rows[1:] < rows[:-1]).any():
            order = np.argsort(rows, kind="stable")
            stems, rows, counts = stems[order], rows[order], counts[order]
        return {
            "entry_stem": NewColumn.of(stems, "<u4"),
            "entry_row": NewColumn.of(rows, "<i4"),
            "entry_count": NewColumn.of(counts, "<u2"),
        }

    def postings(self, stem: int, alive: Any) -> Postings:
        """The living rows that have a stem.

        Args:
            stem: Its hash.
            alive: Which rows are alive, shape (rows,), bool.
        """
        known = self._known.get(stem)
        if known is None:
            # A scan takes 0.6 ms for two million entries, and leaves nothing to sort or to keep in order.
            found = [_having(part, stem) for part in self.parts()]
            if len(self._known) >= _MAX_STEMS:
                self._known.clear()
            known = self._known[stem] = _Known(_joined(found), len(self._stem), deaths=-1)
        elif known.entries < len(self._stem):
            since = slice(known.entries, None)
            new = EntryArrays(self._stem.values[since], self._row.values[since], self._count.values[since])
            known.postings = _joined([known.postings, _having(new, stem)])
            known.entries, known.deaths = len(self._stem), -1
        if known.deaths < self._deaths:
            known.postings = _living(known.postings, alive)
            known.deaths = self._deaths
        return known.postings


def _having(part: EntryArrays, stem: int) -> Postings:
    at = np.flatnonzero(part.stems == np.uint32(stem))
    rows = part.rows[at].astype(np.int64)
    counts = part.counts[at]
    return Postings(
        rows=rows, counts=(counts & (ASKED - 1)).astype(np.float32), asked=rows[(counts & ASKED) != 0]
    )


def _renumbered(part: EntryArrays, number: Any) -> EntryArrays:
    rows = number[part.rows]
    kept = rows >= 0
    if kept.all():
        return EntryArrays(part.stems, rows, part.counts)
    return EntryArrays(part.stems[kept], rows[kept], part.counts[kept])


def _joined(found: list[Postings]) -> Postings:
    with_rows = [one for one in found if len(one.rows)]
    if len(with_rows) <= 1:
        return with_rows[0] if with_rows else found[0]
    return Postings(*(np.concatenate(parts) for parts in zip(*with_rows, strict=True)))


def _living(postings: Postings, alive: Any) -> Postings:
    kept = alive[postings.rows]
    if kept.all():
        return postings
    return Postings(
        rows=postings.rows[kept],
        counts=postings.counts[kept],
        asked=postings.asked[alive[postings.asked]],
    )


_MOST_FIXED = 512
"""So many rows are corrected one by one; after more changes, a stem is spread anew."""


class Spread(NamedTuple):
    """How often rows have a stem, neighbours included.

    Attributes:
        rows: The rows that it is given for, or None for every row. The others have 0.
        counts: float32.
    """

    rows: Any
    counts: Floats


@dataclass(slots=True)
class _Kept:
    spread: Spread
    touched: int


class SpreadCounts:
    """Keeps what `spread` and `fix` compute for stems, as long as there is room: the commonest words are in every
    other question, and have the most rows.
    """

    def __init__(self, most_bytes: int) -> None:
        """Start empty."""
        self._most_bytes = most_bytes
        self._bytes = 0
        self._kept: dict[int, _Kept] = {}
        self._touched: list[int] = []

    def touch(self, rows: Ints) -> None:
        """What these rows have, or their neighbours, has changed."""
        if not self._kept:
            return
        self._touched.extend(rows.tolist())
        if len(self._touched) > 16 * _MOST_FIXED:
            self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._kept.clear()
        self._touched.clear()
        self._bytes = 0

    def get(
        self,
        stem: int,
        *,
        rows: int,
        spread: Callable[[], Spread],
        fix: Callable[[Ints], Floats],
    ) -> Spread:
        """What is kept for a stem, up to date.

        Args:
            stem: Its hash.
            rows: The number of rows.
            spread: Computes it for all rows.
            fix: Computes it for some rows.
        """
        known = self._kept.get(stem)
        if known is not None and len(self._touched) - known.touched > _MOST_FIXED:
            self._bytes -= _size(known.spread)
            known = None
        if known is None:
            known = self._keep(stem, spread())
        elif known.touched < len(self._touched):
            changed = np.array(sorted(set(self._touched[known.touched :])), dtype=np.int64)
            self._bytes -= _size(known.spread)
            known.spread = _fixed(known.spread, changed, fix(changed), rows)
            known.touched = len(self._touched)
            self._bytes += _size(known.spread)
        return known.spread

    def _keep(self, stem: int, spread: Spread) -> _Kept:
        if self._bytes > self._most_bytes:
            self.clear()
        known = self._kept[stem] = _Kept(spread, len(self._touched))
        self._bytes += _size(spread)
        return known


def _size(spread: Spread) -> int:
    return int(spread.counts.nbytes) + (0 if spread.rows is None else int(spread.rows.nbytes))


def _fixed(spread: Spread, changed: Ints, counts: Floats, size: int) -> Spread:
    """The same with other counts for some rows."""
    if spread.rows is None:
        every = np.zeros(size, dtype=np.float32)
        every[: len(spread.counts)] = spread.counts
        every[changed] = counts
        return Spread(None, every)
    stays = np.ones(size, dtype=np.bool_)
    stays[changed] = False
    kept = stays[spread.rows]
    have = counts > 0
    return Spread(
        np.concatenate([spread.rows[kept], changed[have].astype(np.int32)]),
        np.concatenate([spread.counts[kept], counts[have]]),
    )
