from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest

from satchel.clock import ManualClock
from satchel.errors import EmbedderError
from satchel.models.embedding import MiniLmEmbedder, find_weights, open_embedder
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

DISTRACTORS = (
    "My sister Mara is allergic to shellfish.",
    "The cat slept on the sofa all afternoon.",
    "We will fly to Lisbon in the second week of May.",
    "He prefers tea without sugar in the morning.",
    "The invoice of the dentist is due on Friday.",
    "She started to learn the violin last year.",
    "Tomatoes need a lot of sun and regular watering.",
    "The meeting about the budget was moved to Thursday.",
)


def opened(home: Path) -> MiniLmEmbedder:
    embedder = open_embedder("minilm", home=home, environ={}, clock=ManualClock())
    assert isinstance(embedder, MiniLmEmbedder)
    return embedder


@requirement("models:embedder:default")
async def test_it_finds_what_is_meant_without_a_common_word(minilm_home: Path) -> None:
    embedder = opened(minilm_home)
    texts = ["WiFi problem", "network configuration issue at home", *DISTRACTORS]
    vectors = await embedder.embed(texts, "document")
    scores = vectors @ vectors[0]
    assert scores[1] == pytest.approx(0.50, abs=0.005)
    assert scores[2:].max() < 0.15
    assert vectors.shape == (10, 384)
    assert vectors.dtype == np.float32
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-6)
    await embedder.aclose()


@requirement("models:embedder:default")
async def test_vectors_are_those_of_the_reference_model(minilm_home: Path) -> None:
    # From a forward pass written in numpy with float64, straight from the model's description.
    embedder = opened(minilm_home)
    vectors = await embedder.embed(
        ["WiFi problem", "", "The quick brown fox, jumping over 13 lazy dogs; naïve café!"], "query"
    )
    expected = [
        [-0.01319857, 0.03940226, 0.03236601, 0.00776705],
        [-0.1188384, 0.04829872, -0.00254811, -0.01101117],
        [0.02381604, 0.03752368, 0.02239417, 0.05549212],
    ]
    assert vectors[:, :4] == pytest.approx(np.array(expected), abs=1e-6)
    await embedder.aclose()


@requirement("models:embedder:unit-rows")
async def test_a_vector_does_not_depend_on_what_else_is_embedded_and_the_order_is_kept(
    minilm_home: Path,
) -> None:
    embedder, other = opened(minilm_home), opened(minilm_home)
    texts = [" ".join(["word", "sun", "river"][: 1 + n % 3] * (1 + 7 * n % 23)) for n in range(40)]
    together = await embedder.embed(texts, "document")
    alone = np.concatenate([await other.embed([text], "query") for text in texts])
    assert np.abs(together - alone).max() < 1e-6
    assert np.abs(together[::-1] - await embedder.embed(texts[::-1], "document")).max() < 1e-6
    await embedder.aclose()
    await other.aclose()


async def test_odd_texts_get_vectors_and_long_ones_are_cut(minilm_home: Path) -> None:
    embedder = opened(minilm_home)
    long = "network " * 125_000  # 1 MB
    texts = ["", " \n", "\0", "\ud800 broken", "日本語", "🦀" * 500, "x" * 1_000_000, long, "network " * 254]
    vectors = await embedder.embed(texts, "document")
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-6)
    assert vectors[7] @ vectors[8] == pytest.approx(1, abs=1e-6)
    assert (await embedder.embed([], "query")).shape == (0, 384)
    await embedder.aclose()


async def test_each_token_can_have_its_vector_in_the_pass_that_embeds_the_text(minilm_home: Path) -> None:
    embedder = opened(minilm_home)
    texts = ["network problem", "", "network " * 300]
    whole, (short, empty, long) = await embedder.embed_tokens(texts, "document")
    assert np.array_equal(whole, await embedder.embed(texts, "document"))
    assert (short.vectors.shape, empty.vectors.shape, long.vectors.shape) == ((2, 64), (0, 64), (254, 64))
    assert short.spans.tolist() == [[0, 7], [8, 15]]
    assert (empty.spans.shape, long.spans.shape) == ((0, 2), (254, 2))
    assert np.linalg.norm(short.vectors, axis=1) == pytest.approx(1, abs=1e-6)
    # A token's vector knows what stands around it.
    _, (other,) = await embedder.embed_tokens(["network of friends"], "document")
    assert 0.3 < float(short.vectors[0] @ other.vectors[0]) < 0.95
    await embedder.aclose()


async def test_a_text_that_was_just_embedded_costs_no_second_pass(
    minilm_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedder = opened(minilm_home)
    runs: list[int] = []
    run = embedder._run

    def counted(batch: Sequence[Sequence[int]]) -> Any:
        runs.append(len(batch))
        return run(batch)

    monkeypatch.setattr(embedder, "_run", counted)
    asked, [of_question] = await embedder.embed_tokens([DISTRACTORS[0]], "query")
    stored, tokens = await embedder.embed_tokens([DISTRACTORS[1], DISTRACTORS[0]], "document")
    assert runs == [1, 1]
    assert np.array_equal(stored[1], asked[0])
    assert np.array_equal(tokens[1].vectors, of_question.vectors)
    await embedder.embed_tokens([f"Number {number}." for number in range(40)], "document")
    runs.clear()
    await embedder.embed_tokens([DISTRACTORS[0]], "query")
    assert runs == [1], "only the newest are kept"
    await embedder.aclose()


async def test_a_question_does_not_wait_for_the_end_of_a_long_back_fill(minilm_home: Path) -> None:
    embedder = opened(minilm_home)
    await embedder.embed(["load"], "query")
    finished: list[str] = []

    async def back_fill(started: anyio.Event) -> None:
        started.set()
        await embedder.embed(["a long text " * 100] * 20, "document")
        finished.append("back-fill")

    with anyio.fail_after(120):
        async with anyio.create_task_group() as group:
            started = anyio.Event()
            group.start_soon(back_fill, started)
            await started.wait()
            await embedder.embed(["question"], "query")
            finished.append("question")
    assert finished == ["question", "back-fill"]
    await embedder.aclose()


async def test_a_cancelled_call_stops_and_the_embedder_still_works(minilm_home: Path) -> None:
    embedder = opened(minilm_home)
    expected = await embedder.embed(["question"], "query")
    with anyio.fail_after(120):
        async with anyio.create_task_group() as group:
            group.start_soon(embedder.embed, ["a long text " * 100] * 1000, "document")
            await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        assert (await embedder.embed(["question"], "query") == expected).all()
    await embedder.aclose()


async def test_a_closed_embedder_refuses_and_may_be_closed_again(minilm_home: Path) -> None:
    embedder = opened(minilm_home)
    await embedder.embed(["a"], "query")
    await embedder.aclose()
    await embedder.aclose()
    with pytest.raises(EmbedderError, match="closed"):
        await embedder.embed(["a"], "query")


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
async def test_damaged_files_are_reported_with_what_to_do(
    minilm_home: Path, tmp_path: Path, name: str
) -> None:
    real = find_weights(minilm_home)
    assert real is not None
    folder = tmp_path / "models" / real.name
    folder.mkdir(parents=True)
    for path in real.iterdir():
        (folder / path.name).symlink_to(path)
    (folder / name).unlink()
    with (folder / name).open("wb") as file:
        file.truncate((real / name).stat().st_size)
    with pytest.raises(EmbedderError, match=rf"can't be loaded from {folder}/{re.escape(name)}") as caught:
        await opened(tmp_path).embed(["a"], "query")
    assert str(caught.value).endswith(f"Remove the folder {folder} and type: satchel model fetch")
