"""The vectors of a space: one matrix that a question is compared with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from satchel.memory.candidates.arrays import STORED, Floats, from_stored
from satchel.memory.candidates.columns import Column
from satchel.models.embedding import product

__all__ = ["BestPassages", "Cosines", "Scale", "Second", "VectorArrays", "Vectors"]


_ROWS_IN_CACHE = 256
"""Of a matrix that is multiplied right after it was gathered."""


class Cosines(NamedTuple):
    """How near a query is to the vectors of a space, or m queries at once.

    Attributes:
        best: The best cosine of each row that has vectors, shape (rows,) or (rows, m); `rows` says which. Dead rows are
            among them.
        every: The cosine of every vector, shape (n,) or (n, m).
    """

    best: Floats
    rows: Any
    every: Floats


class BestPassages(NamedTuple):
    """The passage of each of n rows that is nearest to a query.

    Attributes:
        vectors: Shape (n, d); zeros where a row has no vector.
        numbers: Shape (n,): which of the row's passages it is, from 0; -1 where there is none.
    """

    vectors: Any
    numbers: Any


class VectorArrays(NamedTuple):
    """Vectors of rows, which may have several each.

    Attributes:
        matrix: Shape (n, d), float32, unit rows.
        rows: The row that each group of vectors belongs to.
        starts: The first vector of each group.
    """

    matrix: Any
    rows: Any
    starts: Any


class Scale(NamedTuple):
    """Translates the cosines of one model into those that another one gives to texts that are as near: piecewise linear
    through points at which both are known.

    Attributes:
        given: Cosines of the one model, ascending, the first -1 and the last 1.
        wanted: Those of the other.
    """

    given: tuple[float, ...]
    wanted: tuple[float, ...]

    def __call__(self, cosines: Any) -> Any:
        """Translate cosines of any shape; a text is as near to itself as before."""
        return np.interp(cosines, self.given, self.wanted).astype(np.float32)


class Second(NamedTuple):
    """The model of the rows in other languages, whose vectors stand beside those of the first.

    A query that is compared with both has the vector of the first and then that of the second, and zeros where one of
    them can't read it; the rows of that one are then not compared.

    Attributes:
        model: Its id in the database.
        dimension: The length of its vectors.
        scale: From its cosines to those of the first; None leaves them as they are.
    """

    model: int
    dimension: int
    scale: Scale | None = None


class Vectors:
    """The many vectors that were read first, and what was added since."""

    def __init__(self, dimension: int) -> None:
        """Start with none; `dimension` is the length of each vector."""
        self.dimension = dimension
        self._base: VectorArrays | None = None
        self._matrix = Column(np.float32, dimension)
        self._rows = Column(np.int32)
        self._starts = Column(np.int64)
        self._places: tuple[Any, Any] | None = None

    def append(self, found: Sequence[tuple[int, bytes]]) -> None:
        """Add the vectors of rows, as they are stored."""
        matrix = from_stored(b"".join(blob for _, blob in found), self.dimension)
        width = self.dimension * STORED.itemsize
        counts = np.array([len(blob) // width for _, blob in found], dtype=np.int64)
        rows = np.array([row for row, _ in found], dtype=np.int32)
        starts = np.cumsum(counts) - counts
        self._places = None
        if self._base is None and not len(self._matrix):
            # The first are many. They stay as they are, so that later ones need no room at their end.
            self._base = VectorArrays(matrix, rows, starts)
            return
        self._starts.extend(starts + len(self._matrix))
        self._rows.extend(rows)
        self._matrix.extend(matrix)

    def parts(self) -> Iterator[VectorArrays]:
        """All vectors, those of dead rows included; `starts` count within each part."""
        if self._base is not None:
            yield self._base
        if len(self._matrix):
            yield VectorArrays(self._matrix.values, self._rows.values, self._starts.values)

    @property
    def size_bytes(self) -> int:
        """Of the matrix."""
        return sum(part.matrix.nbytes for part in self.parts())

    def without(self, found: Cosines, left_out: Any) -> Cosines:
        """What `cosines` found, without some rows: shape (rows,), bool."""
        rows, counts = self.counts()
        kept = ~left_out[rows]
        return Cosines(
            best=found.best[kept], rows=found.rows[kept], every=found.every[np.repeat(kept, counts)]
        )

    def cosines(self, query: Floats) -> Cosines:
        """Compare queries with every vector; shape (d,) or (d, m), unit length."""
        products = [product(part.matrix, query) for part in self.parts()]
        if not products:
            nothing = np.empty((0, *query.shape[1:]), dtype=np.float32)
            return Cosines(best=nothing, rows=np.empty(0, dtype=np.int64), every=nothing)
        every = products[0] if len(products) == 1 else np.concatenate(products)
        rows, starts = self._rows_and_starts()
        best = every if len(starts) == len(every) else np.maximum.reduceat(every, starts, axis=0)
        return Cosines(best=best, rows=rows, every=every)

    def cosines_of(self, query: Floats, wanted: Any) -> Cosines:
        """Compare a query with the vectors of some rows alone.

        Args:
            query: As in `cosines`.
            wanted: Which rows, shape (rows,), bool.
        """
        if not (parts := list(self.parts())):
            return self.cosines(query)
        rows, starts = self._rows_and_starts()
        groups = np.flatnonzero(wanted[rows])
        if len(groups) > len(rows) // 2:  # Gathering vectors takes twice as long as passing over them.
            found = self.cosines(query)
            return Cosines(best=found.best[groups], rows=rows[groups], every=found.every)
        counts = np.diff(starts, append=sum(len(part.matrix) for part in parts))[groups]
        firsts, sources = _places_of(starts[groups], counts)
        every = np.empty((len(sources), *query.shape[1:]), dtype=np.float32)
        at = 0
        for block in _gathered(parts, sources, at_once=_ROWS_IN_CACHE):
            every[at : at + len(block)] = product(block, query)
            at += len(block)
        best = every if len(firsts) == len(every) else np.maximum.reduceat(every, firsts, axis=0)
        return Cosines(best=best, rows=rows[groups], every=every)

    def counts(self) -> tuple[Any, Any]:
        """The rows that have vectors, and how many each has."""
        rows, starts = self._rows_and_starts() if self._base is not None else (np.empty(0, np.int32),) * 2
        ends = np.append(starts[1:], sum(len(part.matrix) for part in self.parts()))
        return rows, (ends - starts)[: len(rows)]

    def best_passages(self, rows: Any, query: Floats) -> BestPassages:
        """The passages of some rows that are nearest to a query; shape (d,), unit length."""
        found = np.zeros((len(rows), self.dimension), dtype=np.float32)
        numbers = np.full(len(rows), -1, dtype=np.int64)
        every = self.cosines(query).every
        if not len(every):
            return BestPassages(found, numbers)
        owners, starts = self._rows_and_starts()
        order = np.argsort(owners, kind="stable")
        ends = np.r_[starts[1:], len(every)]
        # A row that was embedded again has several groups; the last one counts.
        places = order[np.maximum(np.searchsorted(owners, rows, side="right", sorter=order) - 1, 0)]
        parts = list(self.parts())
        offsets = np.cumsum([0, *(len(part.matrix) for part in parts)])
        for at, place in enumerate(places.tolist()):
            if owners[place] != rows[at]:
                continue
            best = int(starts[place]) + int(every[starts[place] : ends[place]].argmax())
            part = int(np.searchsorted(offsets, best, side="right")) - 1
            found[at] = parts[part].matrix[best - offsets[part]]
            numbers[at] = best - int(starts[place])
        return BestPassages(found, numbers)

    def _rows_and_starts(self) -> tuple[Any, Any]:
        if self._places is None:
            parts = list(self.parts())
            offsets = np.cumsum([0, *(len(part.matrix) for part in parts)])
            self._places = (
                np.concatenate([part.rows for part in parts]),
                np.concatenate([part.starts + offset for part, offset in zip(parts, offsets, strict=False)]),
            )
        return self._places


def _places_of(starts: Any, counts: Any) -> tuple[Any, Any]:
    """The places of groups that begin at `starts`, one group after the other; and where each begins among those."""
    firsts = np.cumsum(counts) - counts
    return firsts, np.repeat(starts - firsts, counts) + np.arange(int(counts.sum()))


def _gathered(parts: Sequence[VectorArrays], sources: Any, *, at_once: int) -> Iterator[Any]:
    """Rows of all matrices by their numbers, some at a time."""
    offset = np.cumsum([0, *(len(part.matrix) for part in parts)])
    for at in range(0, len(sources), at_once):
        wanted = sources[at : at + at_once]
        rows = np.empty((len(wanted), parts[0].matrix.shape[1]), dtype=np.float32)
        for part, first in zip(parts, offset.tolist(), strict=False):
            here = (wanted >= first) & (wanted < first + len(part.matrix))
            rows[here] = part.matrix[wanted[here] - first]
        yield rows
