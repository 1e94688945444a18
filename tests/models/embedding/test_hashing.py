from __future__ import annotations

import subprocess
import sys

import anyio
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.errors import EmbedderError
from satchel.models.embedding import HASHING, HashingEmbedder
from tests.requirements import requirement


def embed(*texts: str) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    async def run() -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
        return await HashingEmbedder().embed(texts, "document")

    return anyio.run(run)


@requirement("models:embedder:hashing")
def test_texts_that_share_words_are_near_and_others_are_not() -> None:
    vectors = embed(
        "The network at home is down",
        "the NETWORK, at home: is down?",
        "home networking went down",
        "My sister is allergic to shellfish",
    )
    near = vectors @ vectors[0]
    assert near[1] == pytest.approx(1, abs=1e-6)
    assert near[2] > HASHING.threshold > near[3]


@requirement("models:embedder:unit-rows")
@given(st.lists(st.text(st.characters(), max_size=40), max_size=6))
def test_any_text_gets_a_row_of_unit_length_that_depends_on_it_alone(texts: list[str]) -> None:
    vectors = embed(*texts)
    assert vectors.shape == (len(texts), HASHING.dimension)
    assert vectors.dtype == np.float32
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(len(texts)), abs=1e-6)
    for text, vector in zip(texts, vectors, strict=True):
        assert (embed(text)[0] == vector).all()


def test_the_bits_are_the_same_in_another_process() -> None:
    program = (
        "import anyio, hashlib\n"
        "from satchel.models.embedding import HashingEmbedder\n"
        "rows = anyio.run(HashingEmbedder().embed, ['the same words, in the same order'], 'query')\n"
        "print(hashlib.sha256(rows.tobytes()).hexdigest())"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(seen) == 1


@pytest.mark.anyio
async def test_a_closed_one_refuses() -> None:
    embedder = HashingEmbedder()
    await embedder.aclose()
    await embedder.aclose()
    with pytest.raises(EmbedderError, match="closed"):
        await embedder.embed(["a"], "query")
