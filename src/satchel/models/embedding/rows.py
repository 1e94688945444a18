"""The one check that every vector passes, wherever it comes from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from satchel.errors import EmbedderError

if TYPE_CHECKING:
    from satchel.models.port import Vectors

__all__ = ["unit_rows"]


def unit_rows(rows: Sequence[Any] | Vectors, *, count: int, dimension: int, source: str) -> Vectors:
    """Check what an embedding model gave, and bring it to unit length.

    Args:
        rows: What should be `count` rows of numbers.
        count: How many texts were sent.
        dimension: How long each row must be; 0 where not known yet: then all must be as long as the first.
        source: Names the model in errors.

    Returns:
        Shape (count, dimension), float32, contiguous, every row of unit length.

    Raises:
        EmbedderError: The count or a length is wrong, a value is no finite number, or a row is all zeros.
    """
    import numpy as np  # noqa: PLC0415  - 0.1 s; only who embeds needs it

    if len(rows) != count:
        raise EmbedderError(
            f"{source} gave {len(rows)} vectors for {count} texts. Nothing of this answer was used."
        )
    if count == 0:
        return np.zeros((0, dimension), np.float32)
    try:
        # In float64, since the square of a large float32 has no place in one.
        matrix = np.asarray(rows, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise EmbedderError(
            f"{source} gave something else than equally long rows of numbers. Is it an embedding model?"
        ) from error
    if matrix.ndim != 2 or matrix.shape[1] == 0:
        raise EmbedderError(
            f"{source} gave an array of shape {matrix.shape} instead of {count} rows of numbers."
        )
    if dimension and matrix.shape[1] != dimension:
        raise EmbedderError(
            f"{source} gave vectors of {matrix.shape[1]} numbers instead of {dimension}. Another model "
            "seems to answer under this name; name it by its own."
        )
    bad = ~np.isfinite(matrix).all(axis=1)
    if bad.any():
        raise EmbedderError(f"{source} gave NaN or infinity for text {int(bad.argmax()) + 1} of {count}.")
    # Scaled by the largest value first: squares of very small and very large values stay numbers.
    largest = np.abs(matrix).max(axis=1, keepdims=True)
    if not largest.all():
        raise EmbedderError(
            f"{source} gave only zeros for text {int((largest == 0).argmax()) + 1} of {count}."
        )
    matrix /= largest
    matrix /= np.sqrt(np.einsum("ij,ij->i", matrix, matrix))[:, None]
    return np.ascontiguousarray(matrix, dtype=np.float32)
