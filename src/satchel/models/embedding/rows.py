"""The check that every vector passes, whatever its source, and products of vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from satchel.errors import EmbedderError

if TYPE_CHECKING:
    from satchel.models.port import Vectors

MULTIPLICATIONS_AT_ONCE = 262_144
"""From some size on, OpenBLAS wakes its threads, which then spin for about 20 ms. Measured with numpy 2.4's OpenBLAS
0.3.31: matrices of 2,000 x 64 x 20 and vectors of 1,200 x 384 wake them; nothing up to this size does. In slices of it,
a product of 2,000 x 64 x 20 takes 0.25 ms of CPU instead of 21, one of 100,000 x 384 takes 13 ms instead of 25."""


def product(rows: Vectors, columns: Any) -> Any:
    """`rows @ columns` on the calling thread alone.

    Args:
        rows: Shape (n, d), float32.
        columns: Shape (d,) or (d, m), float32.

    Returns:
        Shape (n,) or (n, m), float32.
    """
    import numpy as np  # noqa: PLC0415  - takes 0.1 s, and only embedding needs it

    found = np.empty((len(rows), *columns.shape[1:]), np.float32)
    step = max(1, MULTIPLICATIONS_AT_ONCE // max(1, columns.size))
    # numpy multiplies a stack of slices one by one; calling it for each of 150 takes 5 % of the time.
    at = len(rows) // step * step
    if at:
        stack = (at // step, step)
        np.matmul(rows[:at].reshape(*stack, -1), columns, out=found[:at].reshape(*stack, *columns.shape[1:]))
    if at < len(rows):
        np.dot(rows[at:], columns, out=found[at:])
    return found


def unit_rows(rows: Sequence[Any] | Vectors, *, count: int, dimension: int, source: str) -> Vectors:
    """Check the output of an embedding model and normalise it to unit length.

    Args:
        rows: The output, which should be `count` rows of numbers.
        count: The number of texts that were sent.
        dimension: The length of each row; 0 if it isn't known yet, and all rows must have the same length.
        source: The name of the model, for errors.

    Returns:
        Shape (count, dimension), float32, contiguous, every row of unit length.

    Raises:
        EmbedderError: The count or a length is wrong, a value is not a finite number, or a row is all zeros.
    """
    import numpy as np  # noqa: PLC0415  - takes 0.1 s, and only embedding needs it

    if len(rows) != count:
        raise EmbedderError(
            f"{source} gave {len(rows)} vectors for {count} texts. Nothing of this answer was used."
        )
    if count == 0:
        return np.zeros((0, dimension), np.float32)
    try:
        # In float64, because the square of a large float32 overflows.
        matrix = np.asarray(rows, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise EmbedderError(
            f"{source} returned something other than rows of numbers of equal length. Is it an embedding model?"
        ) from error
    if matrix.ndim != 2 or matrix.shape[1] == 0:
        raise EmbedderError(
            f"{source} gave an array of shape {matrix.shape} instead of {count} rows of numbers."
        )
    if dimension and matrix.shape[1] != dimension:
        raise EmbedderError(
            f"{source} gave vectors of {matrix.shape[1]} numbers instead of {dimension}. Another model "
            "seems to answer under this name; use its own name."
        )
    bad = ~np.isfinite(matrix).all(axis=1)
    if bad.any():
        raise EmbedderError(f"{source} gave NaN or infinity for text {int(bad.argmax()) + 1} of {count}.")
    # Divide by the largest value first, so that squares neither overflow nor underflow.
    largest = np.abs(matrix).max(axis=1, keepdims=True)
    if not largest.all():
        raise EmbedderError(
            f"{source} gave only zeros for text {int((largest == 0).argmax()) + 1} of {count}."
        )
    matrix /= largest
    matrix /= np.sqrt(np.einsum("ij,ij->i", matrix, matrix))[:, None]
    return np.ascontiguousarray(matrix, dtype=np.float32)
