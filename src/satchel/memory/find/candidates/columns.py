"""Arrays that grow."""

from __future__ import annotations

from typing import Any

import numpy as np


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
