"""The vectors of a space: one matrix that a question is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import Any, NamedTuple

import numpy as np

from satchel.memory.find.candidates.arrays import STORED, Column, Floats, Ints
from satchel.models.embedding import product


class Cosines(NamedTuple):
    """How near a query, or m at once, is to the vectors of some rows: `counts` is how many each row has, `best` the
    best of each, (rows,) or (rows, m), and `every` that of each vector, (n,) or (n, m).
    """

    rows: Ints
    counts: Ints
    best: Floats
    every: Floats

    def only(self, kept: Any) -> Cosines:
        """The same of those rows alone that are kept: shape (rows,), bool."""
        if kept.all():
            return self
        every = self.every[np.repeat(kept, self.counts)]
        return Cosines(self.rows[kept], self.counts[kept], self.best[kept], every)

    def scaled(self, scale: Scale | None) -> Cosines:
        """The same on another scale, if one is given."""
        return self if scale is None else self._replace(best=scale(self.best), every=scale(self.every))


class BestPassages(NamedTuple):
    """Of each of n rows the passage that is nearest to a query: its vector, (n, d), zeros where there is none, and its
    number in the row from 0, or -1.
    """

    vectors: Any
    numbers: Any


class Scale(NamedTuple):
    """Translates cosines of one model into what another gives to texts as near: piecewise linear through points
    `given`, ascending from -1 to 1, and `wanted`.
    """

    given: tuple[float, ...]
    wanted: tuple[float, ...]

    def __call__(self, cosines: Any) -> Any:
        """Translate cosines of any shape; a text is as near to itself as before."""
        return np.interp(cosines, self.given, self.wanted).astype(np.float32)


class Second(NamedTuple):
    """The model of the rows in other languages. A query that is compared with both has the vector of the first and then
    that of this one, and zeros where one of them can't read it; the rows of that one are then not compared. `scale`
    leads from its cosines to those of the first.
    """

    model: int
    dimension: int
    scale: Scale | None = None


class Vectors:
    """The vectors that a model gave to rows, or to their cues. A row may have several, one after the other."""

    def __init__(self, dimension: int = 0) -> None:
        """Start with none; `dimension` is the length of each vector."""
        self.dimension = dimension
        self._matrix = Column(np.float32, dimension)
        self._rows = Column(np.int64)  # Of each group, the vectors of one row; like the two below.
        self._starts = Column(np.int64)
        self._counts = Column(np.int64)
        self._groups = Column(np.int64)  # Of each row; -1 for none.

    def __len__(self) -> int:
        """How many rows have vectors, the dead ones included."""
        return len(self._rows)

    def has(self, rows: Any = slice(None)) -> Any:
        """Which of these rows have vectors: bool."""
        return self._groups.values[rows] >= 0

    def add_rows(self, count: int) -> None:
        """So many rows were added. They have no vectors yet."""
        self._groups.extend(np.full(count, -1))

    def append(self, rows: Ints, stored: Sequence[bytes]) -> None:
        """Take vectors as they are stored, for rows of which those that are -1 or have some already are left out."""
        new = (rows >= 0) & ~self.has(rows)
        if not new.all():
            rows, stored = rows[new], list(compress(stored, new.tolist()))
        if not len(rows):
            return
        width = self.dimension * STORED.itemsize
        counts = np.fromiter(map(len, stored), dtype=np.int64) // width
        self._groups.values[rows] = len(self) + np.arange(len(rows))
        self._starts.extend(len(self._matrix) + np.cumsum(counts) - counts)
        self._counts.extend(counts)
        self._rows.extend(rows)
        matrix = np.frombuffer(b"".join(stored), STORED).reshape(-1, self.dimension)
        self._matrix.extend(matrix, room=len(self._groups))

    def cosines(self, query: Floats) -> Cosines:
        """Compare queries with every vector; shape (d,) or (d, m), unit length."""
        every = product(self._matrix.values, query)
        starts = self._starts.values
        best = every if len(starts) == len(every) else np.maximum.reduceat(every, starts, axis=0)
        return Cosines(rows=self._rows.values, counts=self._counts.values, best=best, every=every)

    def counts_of(self, rows: Ints) -> Ints:
        """How many vectors each of some rows has."""
        counts = np.zeros(len(rows), dtype=np.int64)
        has = self.has(rows)
        counts[has] = self._counts.values[self._groups.values[rows[has]]]
        return counts

    def best_passages(self, rows: Ints, query: Floats) -> BestPassages:
        """The passages of some rows that are nearest to a query; shape (d,), unit length."""
        found = np.zeros((len(rows), self.dimension), dtype=np.float32)
        numbers = np.full(len(rows), -1, dtype=np.int64)
        for at, group in enumerate(self._groups.values[rows].tolist()):
            if group >= 0:
                start = self._starts.values[group]
                passages = self._matrix.values[start : start + self._counts.values[group]]
                numbers[at] = best = (passages @ query).argmax()
                found[at] = passages[best]
        return BestPassages(found, numbers)
