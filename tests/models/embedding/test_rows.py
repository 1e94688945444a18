from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.errors import EmbedderError
from satchel.models.embedding import product, unit_rows
from tests.requirements import requirement

NAN, INF = float("nan"), float("inf")


@requirement("models:embedder:bad-output")
@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[1.0, 0.0]], r"model gave 1 vectors for 2 texts\. Nothing of this answer was used\."),
        ([[1.0, 0.0]] * 3, "gave 3 vectors for 2 texts"),
        (
            [[1.0], [1.0]],
            r"gave vectors of 1 numbers instead of 2\. Another model seems to answer under this name",
        ),
        ([[1.0, 0.0], [1.0]], "returned something other than rows of numbers of equal length"),
        ([["a", "b"], ["c", "d"]], "returned something other than rows of numbers of equal length"),
        ([None, None], "gave an array of shape"),
        ([[], []], "gave an array of shape"),
        ([1.0, 2.0], "gave an array of shape"),
        ([[1.0, 0.0], [0.5, NAN]], "gave NaN or infinity for text 2 of 2"),
        ([[1.0, -INF], [0.5, 1.0]], "gave NaN or infinity for text 1 of 2"),
        ([[1.0, None], [0.5, 1.0]], "gave NaN or infinity for text 1 of 2"),
        ([[1.0, 1.0], [0.0, 0.0]], "gave only zeros for text 2 of 2"),
        ([[10**400, 1], [1, 1]], "returned something other than rows of numbers of equal length"),
    ],
)
def test_what_is_no_set_of_vectors_is_refused_with_the_reason(rows: Any, message: str) -> None:
    with pytest.raises(EmbedderError, match=message):
        unit_rows(rows, count=2, dimension=2, source="model")


@requirement("models:embedder:unit-rows")
@given(
    st.lists(
        st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=3, max_size=3).filter(any),
        max_size=5,
    )
)
def test_every_finite_nonzero_vector_gets_unit_length(rows: list[list[float]]) -> None:
    matrix = unit_rows(rows, count=len(rows), dimension=3, source="model")
    assert matrix.shape == (len(rows), 3)
    assert matrix.dtype == np.float32
    assert np.linalg.norm(matrix, axis=1) == pytest.approx(np.ones(len(rows)), abs=1e-6)


def test_an_unknown_dimension_is_taken_from_the_rows() -> None:
    assert unit_rows([[3.0, 4.0]], count=1, dimension=0, source="model").tolist() == [
        pytest.approx([0.6, 0.8], abs=1e-7)
    ]
    assert unit_rows([], count=0, dimension=0, source="model").shape == (0, 0)


@given(st.integers(0, 700), st.integers(0, 400), st.integers(0, 3) | st.just(65))
def test_a_product_in_slices_is_the_whole_product(count: int, dimension: int, columns: int) -> None:
    numbers = np.random.default_rng(count)
    rows = numbers.standard_normal((count, dimension), dtype=np.float32)
    right = numbers.standard_normal((dimension, columns) if columns else dimension, dtype=np.float32)
    assert product(rows, right) == pytest.approx(rows @ right, abs=1e-3)
