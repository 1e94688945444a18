"""The arrays of a space while they change."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from satchel.memory.find.candidates.arrays import STORED
from satchel.memory.find.candidates.index import Index
from satchel.memory.find.candidates.ranking import rank, top
from satchel.memory.find.question import read_question
from satchel.memory.store.repository import ChangedMemory, Changes
from satchel.memory.text.lexicon import read_text
from tests.requirements import requirement

WIDTH = 8
WORDS = ("boat", "harbour", "lighthouse", "garden", "violin")


def row(rid: int, text: str = "a boat in the harbour", *, session: str = "", turn: int = 0) -> Any:
    """A row as `load_changes` gives it: an episode where it has a session, else a plain memory."""
    read = read_text(text)
    return ChangedMemory(
        rid=rid,
        kind="episode" if session else "fact",
        source_session=session or None,
        source_turn=turn,
        source_position=0,
        said_at=rid * 60_000_000,
        said_offset_min=0,
        speaker=("Ann", "Bob")[rid % 2],
        trust="user",
        source_quote=None,
        opening="",
        cued=False,
        words=read.words,
        features=read.features,
        stems=read.to_bytes(),
    )


def vector(rid: int) -> tuple[int, bytes]:
    values = np.random.default_rng(rid).standard_normal(WIDTH).astype(np.float32)
    return rid, (values / np.linalg.norm(values)).astype(STORED).tobytes()


def filled(rids: Sequence[int], *, gone: Sequence[int] = ()) -> Index:
    index = Index()
    index.use_model(1, WIDTH)
    rows = [row(rid) for rid in rids]
    index.apply(Changes(changed=1, memories=rows, gone=(), vectors=[([vector(rid) for rid in rids], ())]))
    if gone:
        index.apply(Changes(changed=2, memories=(), gone=gone))
    return index


@requirement("memory:candidates:concurrent")
def test_counts_can_be_read_while_another_thread_takes_in_changes() -> None:
    index = filled(range(3000), gone=[7])
    batches = [
        Changes(
            changed=3 + at,
            memories=[row(rid) for rid in range(5000 + 20 * at, 5020 + 20 * at)],
            gone=(),
            vectors=[([vector(rid) for rid in range(5000 + 20 * at, 5020 + 20 * at)], ())],
        )
        for at in range(100)
    ]

    def take_in() -> None:
        for batch in batches:
            index.apply(batch)

    writer = threading.Thread(target=take_in)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        writer.start()
        while writer.is_alive():
            assert 2999 <= index.embedded_count <= 4999
            assert set(index.speaker_numbers) == {"Ann", "Bob"}
    finally:
        sys.setswitchinterval(interval)
        writer.join()
    assert index.embedded_count == index.alive_count == 4999


@requirement("memory:candidates:counts")
def test_counting_what_is_embedded_takes_no_longer_after_something_was_forgotten() -> None:
    index = filled(range(2000), gone=[7])
    events = 0

    def count(*_: object) -> None:
        nonlocal events
        events += 1

    sys.setprofile(count)
    try:
        found = index.embedded_count
    finally:
        sys.setprofile(None)
    assert found == 1999
    assert events < 20


changes = st.lists(
    st.one_of(
        st.tuples(
            st.just("say"),
            st.sampled_from(["s1", "s2", ""]),
            st.integers(0, 5),
            st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join),
        ),
        st.tuples(st.just("edit"), st.integers(0, 30), st.sampled_from(WORDS)),
        st.tuples(st.just("forget"), st.integers(0, 30)),
        st.tuples(st.just("search"), st.sampled_from(WORDS)),
    ),
    max_size=30,
)


def found(index: Index, query: str) -> list[tuple[int, float]]:
    question = read_question(query, index.speaker_numbers.items())
    return sorted((hit.rid, hit.score) for hit in rank(index, question, limit=50))


@requirement("memory:candidates:incremental")
@settings(max_examples=100, deadline=None)
@given(changes)
def test_an_index_that_took_in_changes_one_by_one_finds_what_a_new_one_finds(
    script: list[tuple[Any, ...]],
) -> None:
    index = Index()
    living: dict[int, Any] = {}
    for changed, step in enumerate(script, start=1):
        memories, gone = [], []
        match step:
            case ("say", str(session), int(turn), str(text)):
                memories = [row(changed, text, session=session, turn=turn)]
            case ("edit", int(at), str(word)) if living:
                old = living[sorted(living)[at % len(living)]]
                new = row(old.rid, word, session=old.source_session or "", turn=old.source_turn)
                memories = [new]
            case ("forget", int(at)) if living:
                gone = [sorted(living)[at % len(living)]]
            case ("search", str(word)):
                found(index, word)
            case _:
                pass
        for one in gone:
            del living[one]
        living.update((one.rid, one) for one in memories)
        index.apply(Changes(changed=changed, memories=memories, gone=gone))
    fresh = Index()
    fresh.apply(Changes(changed=1, memories=[living[rid] for rid in sorted(living)], gone=()))
    assert index.alive_count == len(fresh)
    for word in (*WORDS, "boat harbour violin"):
        one_by_one, at_once = found(index, word), found(fresh, word)
        assert [rid for rid, _ in one_by_one] == [rid for rid, _ in at_once]
        # The mean of the lengths is summed in another order.
        assert [value for _, value in one_by_one] == pytest.approx([value for _, value in at_once], abs=1e-5)


@requirement("memory:search:hybrid")
@given(
    values=st.lists(st.integers(-3, 40), max_size=400),
    repeats=st.integers(1, 20),
    count=st.integers(1, 30),
    seed=st.integers(0, 99),
)
def test_the_greatest_values_are_those_that_sorting_gives(
    values: list[int], repeats: int, count: int, seed: int
) -> None:
    every = np.random.default_rng(seed).permutation(np.array(values * repeats, dtype=np.float32))
    order = np.lexsort((-np.arange(len(every)), -every))
    places = top(every, count)
    assert every[places].tolist() == every[order[:count]].tolist()
    assert len(set(places.tolist())) == len(places)
