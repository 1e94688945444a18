"""An embedder that a program brings, in whatever form it has one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from satchel.errors import EmbedderError, UsageError
from satchel.models.embedding import HashingEmbedder, OwnEmbedding, as_embedder
from satchel.models.port import EmbedderInfo

pytestmark = pytest.mark.anyio

ROWS = [[3.0, 4.0], [0.0, 2.0]]


class Awaited:
    async def embed(self, texts: Sequence[str], role: str) -> Any:
        return np.array(ROWS[: len(texts)])


class Plain:
    model = "mine"

    def embed(self, texts: Sequence[str], role: str) -> Any:
        return ROWS[: len(texts)]


class ByName:
    async def embed(self, texts: Sequence[str], *, role: str) -> Any:
        return ROWS[: len(texts)]


class WithRecord:
    info = EmbedderInfo(id="mine/2", dimension=2, max_tokens=64, threshold=0.4)

    def embed(self, texts: Sequence[str], role: str) -> Any:
        return ROWS[: len(texts)]


def function(texts: Sequence[str], role: str) -> Any:
    return ROWS[: len(texts)]


def encode(sentences: Sequence[str], prompt_name: str | None = None) -> Any:
    assert prompt_name is None
    return ROWS[: len(sentences)]


class Called:
    async def __call__(self, texts: Sequence[str], role: str) -> Any:
        return ROWS[: len(texts)]


@pytest.mark.parametrize(
    ("given", "id"),
    [
        (Awaited(), "own:Awaited"),
        (Plain(), "own:mine"),
        (ByName(), "own:ByName"),
        (WithRecord(), "mine/2"),
        (function, "own:function"),
        (encode, "own:encode"),
        (Called(), "own:Called"),
    ],
)
async def test_whatever_embeds_is_an_embedder_with_rows_of_unit_length(given: OwnEmbedding, id: str) -> None:
    embedder = as_embedder(given)
    assert embedder.info.id == id
    rows = await embedder.embed(["a", "b"], "document")
    assert rows.dtype == np.float32
    assert np.allclose(rows, [[0.6, 0.8], [0.0, 1.0]])
    assert embedder.info.dimension == 2
    assert (await embedder.embed([], "query")).shape == (0, 2)


async def test_an_embedder_stays_as_it_is() -> None:
    embedder = HashingEmbedder()
    assert as_embedder(embedder) is embedder


@pytest.mark.parametrize("given", [5, object(), Plain])
def test_what_can_not_embed_is_refused_in_words(given: Any) -> None:
    with pytest.raises(UsageError, match=r"an object with a method embed\(texts, role\)"):
        as_embedder(given)


@pytest.mark.parametrize(
    "answer",
    [
        lambda texts: [[1.0]],  # one row for two texts
        lambda texts: [[1.0], [float("nan")]],
        lambda texts: None,
        lambda texts: 1 / 0,
    ],
)
async def test_what_fails_or_answers_nonsense_is_an_error_of_the_embedder(
    answer: Callable[[Sequence[str]], Any],
) -> None:
    with pytest.raises(EmbedderError, match=r"^own:"):
        await as_embedder(lambda texts, role: answer(texts)).embed(["a", "b"], "query")
