"""The shapes of numbers that searching works with."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

__all__ = ["Floats", "Ints", "Matrix"]

Ints: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]
Floats: TypeAlias = np.ndarray[tuple[int], np.dtype[np.float32]]
Matrix: TypeAlias = np.ndarray[tuple[int, int], np.dtype[np.float32]]
