"""The shapes of numbers that searching works with, how vectors are stored, and what numpy lacks."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np

Ints: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]
Floats: TypeAlias = np.ndarray[tuple[int], np.dtype[np.float32]]
Matrix: TypeAlias = np.ndarray[tuple[int, int], np.dtype[np.float32]]

STORED: Final = np.dtype("<f2")
"""In the database. The numbers of unit rows lose at most 2.5e-4 each, and no figure of search moves by more than .001
(docs/decisions/0050-growth.md)."""


def to_stored(rows: Matrix) -> bytes:
    """Unit rows as the database has them: float16, one after the other."""
    return rows.astype(STORED).tobytes()


def distinct(numbers: Ints) -> Ints:
    """The different numbers, ascending: `np.unique` without its loading of numpy's masked arrays, 15 ms of a start."""
    ordered = np.sort(numbers)
    is_first = np.ones(len(ordered), dtype=np.bool_)
    is_first[1:] = ordered[1:] != ordered[:-1]
    return ordered[is_first]


def is_in(ascending: Ints, rows: Ints) -> Any:
    """Which of `rows` are in an ascending array; shape of `rows`, bool."""
    if not len(ascending):
        return np.zeros(len(rows), dtype=np.bool_)
    place = np.minimum(np.searchsorted(ascending, rows), len(ascending) - 1)
    return ascending[place] == rows


class Column:
    """An array that is extended at its end without being copied each time."""

    __slots__ = ("_array", "_length")

    def __init__(self, dtype: Any, width: int | None = None) -> None:
        """Start empty; `width` is the length of each row of a matrix, None for plain values."""
        self._length = 0
        self._array = np.empty(0 if width is None else (0, width), dtype=dtype)

    def extend(self, values: Any, *, room: int = 0) -> None:
        """Append values, shape (n,) or (n, width); make room for so many in all, where there is not enough."""
        need = self._length + len(values)
        if need > len(self._array):
            # Half as much again: a store that grows row by row is copied ten times on its way to a hundredfold. What is
            # not filled yet takes no memory.
            grown = np.empty((max(need * 3 // 2, room), *self._array.shape[1:]), self._array.dtype)
            grown[: self._length] = self._array[: self._length]
            self._array = grown
        self._array[self._length : need] = values
        self._length = need

    @property
    def values(self) -> Any:
        """The filled part; a view, valid until the next `extend`."""
        return self._array[: self._length]

    def __len__(self) -> int:
        return self._length
