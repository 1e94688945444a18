"""Comparing token by token: what is kept, how it is compared, and what it finds that words and passages don't."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.clock import ManualClock
from satchel.memory import Episode, Memory
from satchel.memory.find.candidates.tokens import Bag, QuestionTokens, match, pack, unpack, weigh
from satchel.memory.find.candidates.weights import WEIGHTS
from satchel.memory.text.lexicon import ASKED, hash_stem, question_spans, read_text
from tests.memory.embedders import Wordy, tokens_of
from tests.requirements import requirement

pytestmark = pytest.mark.anyio


def bag(*passages: list[tuple[list[int], bool]]) -> Bag:
    """Passages of tokens: a vector of whole numbers, and whether it stands in a question."""
    rows = [token for passage in passages for token in passage]
    return Bag(
        counts=[len(passage) for passage in passages],
        asks=bytes(asks for _, asks in rows),
        vectors=np.array([vector for vector, _ in rows], np.int8).tobytes(),
    )


def compared(
    bags: list[Bag | None], *, own: list[int], previous: list[int], gate: list[float]
) -> tuple[list[float], list[float], list[bool]]:
    question = QuestionTokens(vectors=np.eye(2, dtype=np.float32), weights=np.array([0.75, 0.25], np.float32))
    found = match(
        question, bags, own=np.array(own), previous=np.array(previous), gate=np.array(gate, np.float32)
    )
    matched, asked = ([round(float(value), 4) for value in values] for values in (found.match, found.asked))
    return matched, asked, found.known.tolist()


def test_each_token_of_the_question_counts_by_the_best_of_the_memory_and_of_the_question_before() -> None:
    question = bag([([127, 0], True)])
    answer = bag([([0, 127], False)])
    assert compared([question, answer], own=[0, 1], previous=[-1, 0], gate=[1, 1]) == (
        [0.375, 0.9625],  # A question that asks the same says what it is about, and has no answer.
        [0.0, 0.75],
        [True, True],
    )
    # A page hardly listens to what stands before it.
    matched, asked, _ = compared([question, answer], own=[1], previous=[0], gate=[0.1])
    assert (matched, asked) == ([0.3212], [0.075])


def test_a_token_that_is_a_little_like_one_of_the_question_counts_hardly() -> None:
    # Cosines of .2, .6 and .8; a plain sum would take the first two together for the third.
    little, half, much = ([round(127 * cosine), 0] for cosine in (0.2, 0.6, 0.8))
    bags: list[Bag | None] = [bag([(token, False)]) for token in (little, half, much)]
    matched, *_ = compared(bags, own=[0, 1, 2], previous=[-1, -1, -1], gate=[1, 1, 1])
    assert [round(found / 0.75, 2) for found in matched] == [0.02, 0.5, 0.9]


def test_the_best_passage_counts_and_what_has_no_tokens_yet_is_known_to_have_none() -> None:
    page = bag([([127, 0], False)], [([0, 127], False)], [([-127, 0], False)])
    matched, _, known = compared([page, None], own=[0, 1], previous=[-1, -1], gate=[0.0, 1.0])
    assert (matched, known) == ([0.75, 0.0], [True, False])
    assert compared([None], own=[0], previous=[-1], gate=[1.0]) == ([0.0], [0.0], [False])


def test_what_is_kept_leaves_out_function_words_and_marks_and_knows_questions() -> None:
    text = "The boat is blue. Where is the harbour?"
    kept = unpack(pack([text], [tokens_of(text)]))
    assert (list(kept.counts), kept.asks) == ([3], b"\x00\x00\x01")  # boat, blue, harbour
    vectors = np.frombuffer(kept.vectors, np.int8).reshape(3, 64) / 127
    assert vectors @ tokens_of("boat blue harbour").vectors.T == pytest.approx(np.eye(3), abs=0.5)
    assert np.diag(vectors @ tokens_of("boat blue harbour").vectors.T) == pytest.approx(1, abs=0.02)
    # A text of function words alone keeps them, and one without any word is a passage all the same.
    assert list(unpack(pack(["who is it"], [tokens_of("who is it")])).counts) == [3]
    assert list(unpack(pack(["", "x"], [tokens_of(""), tokens_of("x")])).counts) == [1, 1]


@given(st.lists(st.text(max_size=60), min_size=1, max_size=5))
def test_whatever_is_packed_comes_back_and_can_be_compared(texts: list[str]) -> None:
    tokens = [tokens_of(text) for text in texts]
    kept = unpack(pack(texts, tokens))
    assert len(kept.counts) == len(texts)
    assert len(kept.vectors) == 64 * len(kept.asks) == 64 * sum(kept.counts)
    question = weigh(texts[0], tokens[0], lambda stem: 3.0)
    assert question.weights.sum() == pytest.approx(1 if len(question.weights) else 0, abs=1e-5)
    found = match(question, [kept], own=np.array([0]), previous=np.array([-1]), gate=np.ones(1, np.float32))
    assert -1.1 < float(found.match[0]) < 1.1


def test_rare_words_weigh_most_and_function_words_together_at_most_half_of_the_others() -> None:
    text = "When did the harbour freeze"
    weights = weigh(text, tokens_of(text), lambda stem: 6.0 if stem == hash_stem("harbour") else 2.0).weights
    assert [round(float(weight) * 12, 3) for weight in weights] == [1.333, 1.333, 1.333, 6.0, 2.0]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It rained. Did it? Yes.", ["Did it?"]),
        ('She asked "why?" of nobody.', []),
        ("Why? How?", ["Why?", "How?"]),
        ("明日ですか？はい。", ["明日ですか？"]),
        ("no question", []),
        ("", []),
    ],
)
def test_questions_are_found_in_a_text(text: str, found: list[str]) -> None:
    assert [text[start:end] for start, end in question_spans(text)] == found


def test_the_words_of_questions_are_marked() -> None:
    read = read_text("Where is the harbour? At the lake. " + "lake " * 40_000)
    counts = dict(zip(read.stems.tolist(), read.counts.tolist(), strict=True))
    assert counts == {hash_stem("harbour"): ASKED | 1, hash_stem("lake"): ASKED - 1}


@requirement("memory:search:weights-data")
def test_no_weight_is_negative_and_every_one_is_explained() -> None:
    assert all(value >= 0 for value in WEIGHTS.values())
    page = (Path(__file__).parents[2] / "docs/concepts/retrieval.md").read_text(encoding="utf-8")
    assert [name for name, value in WEIGHTS.items() if f"| `{name}` | {value:g} |" not in page] == []


def said(turn: int, text: str, session: str = "s1", speaker: str = "Ann") -> Episode:
    when = datetime(2026, 3, 1, tzinfo=UTC)
    return Episode(session=session, turn=turn, speaker=speaker, text=text, said_at=when)


@requirement("memory:search:tokens")
@pytest.mark.parametrize("tokens", [True, False])
async def test_an_answer_is_found_by_the_question_before_it(tokens: bool) -> None:
    embedder = Wordy() if tokens else "none"
    async with Memory.open(":memory:", embedder=embedder, back_fill=False) as memory:
        await memory.add_episodes(
            [
                said(1, "What does Pixel eat in the morning?"),
                said(2, "Only sardines, cold.", speaker="Bob"),
                said(1, "Pixel slept in the hall.", session="s2"),
                said(2, "The hall was painted.", session="s2"),
            ]
        )
        hits = await memory.search("what does Pixel eat in the morning", limit=2)
        assert "Only sardines, cold." in [hit.memory.content for hit in hits]
        answer = next(hit for hit in hits if hit.memory.content == "Only sardines, cold.")
        assert {"asked", "match"} <= set(answer.signals) if tokens else "echo" in answer.signals
        if isinstance(embedder, Wordy):
            # One call for the memories and one for the question: nothing is embedded twice.
            assert embedder.token_calls == 2
            await memory.search("what does Pixel eat in the morning")
            assert embedder.token_calls == 3


@requirement("memory:search:tokens")
async def test_tokens_go_with_the_memory_and_come_back_from_the_database(tmp_path: object) -> None:
    path, clock = f"{tmp_path}/m.db", ManualClock()
    async with Memory.open(path, embedder=Wordy(), clock=clock, back_fill=False) as memory:
        ids = await memory.add_episodes([said(1, "The boat is blue."), said(2, "The sail is red.")])
        before = await memory.search("blue boat")
    async with Memory.open(path, embedder=Wordy(), clock=clock, back_fill=False) as memory:
        assert await memory.search("blue boat") == before
        assert (await memory.search("blue boat"))[0].signals["match"] is not None
        await memory.forget(ids[0])
        assert [hit.memory.id for hit in await memory.search("blue boat")] == [ids[1]]


@requirement("memory:search:complete")
async def test_everything_is_embedded_before_a_search_and_the_caller_hears_how_far_it_is() -> None:
    embedder = Wordy()
    seen: list[tuple[int, int]] = []
    async with Memory.open(":memory:", embedder=embedder, back_fill=False) as memory:
        await memory.add_episodes([said(turn, f"the boat number {turn}") for turn in range(1, 2501)])
        hits = await memory.search("boat number 7", progress=lambda *now: seen.append(now))
        assert (await memory.stats()).embedded == 2500
        assert all(hit.signals["dense"] is not None for hit in hits)
        assert memory.degraded is None
    assert len(embedder.documents) == 2500
    assert seen[-1] == (2500, 2500)
    assert all(total == 2500 for _, total in seen)
