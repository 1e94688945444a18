"""Cues: situations in which a memory matters, which find it although nobody mentions it."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.clock import ManualClock
from satchel.errors import UsageError
from satchel.memory import Memory
from satchel.memory.find.candidates.arrays import to_stored
from satchel.memory.find.candidates.engine import Candidates
from satchel.memory.store.cues import MOST_CUE_CHARS, MOST_CUES, clean_cues, cues_of, fitting_cues
from satchel.memory.toolset import MemoryTools
from satchel.models.embedding import HashingEmbedder
from tests.memory.embedders import Counting, Topical
from tests.memory.test_toolset import context
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

FACT = "The user has coeliac disease."
CUES = ("cook dinner", "choosing a restaurant", "baking a cake")
REQUEST = "What shall we cook for dinner on Friday?"


async def kept(memory: Memory, id: str) -> list[str]:
    """The cues of a memory, which no method tells."""

    def read(connection: Any, space: int) -> list[str]:
        rid = connection.exec_driver_sql("SELECT rid FROM memories WHERE id = ?", (id,)).scalar()
        return cues_of(connection, [rid]).get(rid, [])

    return await memory._space.read(read)


async def vectors_of_cues(memory: Memory) -> int:
    count = "SELECT count(*) FROM memory_cue_vectors"
    return int(await memory._space.read(lambda found, _: found.exec_driver_sql(count).scalar_one()))


@requirement("memory:cues:find")
@pytest.mark.parametrize("cues", [CUES, ()])
async def test_a_request_that_does_not_mention_a_fact_is_shown_it_because_of_its_cues(
    cues: tuple[str, ...],
) -> None:
    async with Memory.open(":memory:", embedder=Topical()) as memory:
        await memory.add(FACT, cues=cues)
        for other in ("The user's router is in the cellar.", "The user has a cat.", "Tom plays chess."):
            await memory.add(other)
        shown = await memory.surface(REQUEST)
    assert [hit.memory.content for hit in shown.memories] == ([FACT] if cues else [])
    assert not any(cue in shown.text for cue in cues)


@requirement("memory:cues:search")
async def test_a_search_finds_a_fact_by_its_cues_and_without_cues_goes_as_before() -> None:
    async with Memory.open(":memory:", embedder=Topical(), clock=ManualClock()) as memory:
        id = await memory.add(FACT, cues=CUES)
        plain = await memory.add("Tom plays chess in the park on Fridays.")
        hits = await memory.search(REQUEST)
        assert [hit.memory.id for hit in hits] == [id, plain]
        assert (hits[0].signals["cue"] or 0) > 0.2
        assert "cue" not in hits[1].signals
        (relevant,) = await memory.search("cook dinner", relevant_only=True)
        assert relevant.memory.id == id
        await memory.forget(id)
        (left,) = await memory.search(REQUEST)
    async with Memory.open(":memory:", embedder=Topical(), clock=ManualClock()) as memory:
        await memory.add("Tom plays chess in the park on Fridays.")
        (alone,) = await memory.search(REQUEST)
    assert left.score == pytest.approx(alone.score)


@requirement("memory:cues:apart")
async def test_cues_are_no_part_of_the_words_the_vector_or_anything_that_is_shown() -> None:
    embedder = Counting()
    async with Memory.open(":memory:", embedder=embedder) as memory:
        id = await memory.add(FACT, cues=["picking quixotic wallpaper"], session="s1", turn=1)
        hits = await memory.search("coeliac")
        assert await memory.search("quixotic wallpaper", mode="lexical") == ()
        record = await memory.get(id)
        history = await memory.history(id)
        stream = io.BytesIO()
        await memory.export_to(stream)
    assert [hit.memory.id for hit in hits] == [id]
    # Embedded by itself, and not with the text.
    assert FACT in embedder.documents
    assert "picking quixotic wallpaper" in embedder.documents
    assert "quixotic" not in repr((hits, record, history))
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    told = [line for line in lines if "quixotic" in json.dumps(line)]
    assert [line["type"] for line in told] == ["memory"]
    assert told[0]["cues"] == ["picking quixotic wallpaper"]
    assert told[0]["content"] == FACT


@requirement("memory:cues:bounded")
async def test_cues_are_few_short_and_never_from_outside() -> None:
    async with Memory.open(":memory:", embedder="none") as memory:
        with pytest.raises(UsageError, match="at most 6 cues"):
            await memory.add(FACT, cues=[f"situation {number}" for number in range(7)])
        with pytest.raises(UsageError, match="at most 120 characters"):
            await memory.add(FACT, cues=["anything " * 20])
        outside = await memory.add(
            "The user is called Eve.", cues=["anything", "every message"], trust="outside"
        )
        own = await memory.add(FACT, cues=["  choosing\na  restaurant ", "choosing a restaurant", "…", ""])
        assert (await memory.stats()).memories == 2
        assert await kept(memory, outside) == []
        assert await kept(memory, own) == ["choosing a restaurant"]


@requirement("memory:cues:clean")
async def test_secrets_and_private_parts_do_not_enter_the_store_by_cues() -> None:
    async with Memory.open(":memory:", embedder="none") as memory:
        id = await memory.add(
            FACT, cues=["log in with the password Kestrel-2026", "a visit <private>to Dr. Zorn</private>"]
        )
        found = await kept(memory, id)
    assert "Kestrel" not in " ".join(found)
    assert found == ["log in with the password [redacted:password]", "a visit"]


@requirement("memory:cues:forgotten")
async def test_a_forgotten_fact_leaves_no_byte_of_its_cues(tmp_path: Path) -> None:
    marker = "zyzzyvan"
    path = tmp_path / "memory.db"
    embedder = Counting()
    vector = to_stored(await embedder.embed([f"a {marker} evening"], "document"))
    async with Memory.open(path, embedder=embedder, back_fill=False) as memory:
        id = await memory.add(FACT, cues=[f"a {marker} evening"], session="s1", turn=1)
        other = await memory.add("The user has a cat.", cues=["buying cat food"])
        await memory.embed_pending()
        await memory.search("evening")
        files = [file for file in tmp_path.rglob("*") if file.is_file()]
        assert any(vector in file.read_bytes() for file in files)
        receipt = await memory.forget(id)
        assert [gone.cues for gone in receipt.forgotten] == [1]
        assert await kept(memory, other) == ["buying cat food"]
        assert await vectors_of_cues(memory) == 1
    for file in tmp_path.rglob("*"):
        if file.is_file():
            held = file.read_bytes()
            assert marker.encode() not in held, file
            assert vector not in held, file


@requirement("memory:cues:forgotten")
async def test_a_cue_that_repeats_a_forgotten_memory_goes_with_it() -> None:
    said = "My neighbour Zorn keeps three llamas."
    async with Memory.open(":memory:", embedder=Counting()) as memory:
        gone = await memory.add(said)
        other = await memory.add("The user likes wool.", cues=["buying wool", f"when {said}"])
        await memory.embed_pending()
        await memory.forget(gone)
        assert await kept(memory, other) == ["buying wool"]
        assert await vectors_of_cues(memory) == 0
        await memory.embed_pending()
        assert await vectors_of_cues(memory) == 1


@requirement("memory:cues:move")
async def test_cues_move_with_their_fact_and_are_checked_on_the_way_in(tmp_path: Path) -> None:
    file = tmp_path / "export.jsonl"
    async with Memory.open(":memory:", embedder="none") as memory:
        await memory.add(FACT, cues=CUES)
        await memory.add("Tom plays chess.")
        await memory.export_to(file)
    lines = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    edited = tmp_path / "edited.jsonl"
    hostile = ["anything " * 30, 7, *(f"every message {number}" for number in range(50))]
    for line in lines:
        if line["type"] == "memory":
            line |= {"cues": hostile, "trust": "outside"} if "chess" in line["content"] else {"cues": hostile}
    edited.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    async with Memory.open(":memory:", embedder="none") as memory:
        await memory.import_from(file)
        stream = io.BytesIO()
        await memory.export_to(stream)
        assert stream.getvalue() == file.read_bytes()
    async with Memory.open(":memory:", embedder="none") as memory:
        await memory.import_from(edited)
        found = {one.content: await kept(memory, one.id) for one in await memory.list()}
    assert found == {FACT: [f"every message {number}" for number in range(6)], "Tom plays chess.": []}


@requirement("memory:cues:tool")
async def test_a_model_stores_a_fact_with_cues_unless_it_has_read_something_from_outside() -> None:
    async with Memory.open(":memory:", embedder="none") as memory:
        (store, *_) = await MemoryTools(memory).tools()
        own = await store.call({"content": FACT, "cues": list(CUES)}, context())
        hostile = await store.call(
            {"content": "The user is called Eve.", "cues": ["anything"]}, replace(context(), untrusted=True)
        )
        assert await kept(memory, own.data["id"]) == list(CUES)
        assert await kept(memory, hostile.data["id"]) == []
        assert not any(cue in own.text for cue in CUES)
        # The call is in the session's log, so that forgetting has to look for them there.
        ((_, words),) = await memory.words_said([own.data["id"]])
        assert set(CUES) <= set(words)


@requirement("memory:cues:embedded")
async def test_another_embedder_takes_over_only_when_it_has_seen_the_cues_too(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    async with Memory.open(path, embedder=Counting("first"), back_fill=False) as memory:
        await memory.add(FACT, cues=CUES)
        await memory.embed_pending()
    async with Memory.open(path, embedder=Counting("second"), back_fill=False) as memory:
        done = await memory.reindex()
        assert (done.in_use, await vectors_of_cues(memory)) == (True, 2)
        await memory.reindex(drop_old=True)
        assert await vectors_of_cues(memory) == 1


@requirement("memory:cues:embedded")
async def test_the_best_cue_of_each_memory_is_compared() -> None:
    async with Memory.open(":memory:", embedder=HashingEmbedder(), back_fill=False) as memory:
        for number in range(8):
            cues = [f"buying item {number}", f"selling item {number}"] if number % 2 else []
            await memory.add(f"Item {number} is in the cellar.", cues=cues)
        await memory.embed_pending()
        space = memory._space
        assert space.dense is not None
        asked = await space.dense.asked(["buying item 3", "selling item 5"])
        assert asked is not None
        assert isinstance(space.candidates, Candidates)
        await space.candidates.refresh()
        assert space.candidates.contents.cues_waiting == 0
        found = space.candidates._index.cue_cosines(asked)
    assert found is not None
    assert np.allclose(found[[3, 5]], 1.0, atol=1e-3)
    assert not found[::2].any()


@requirement("memory:cues:bounded")
@given(st.none() | st.text() | st.lists(st.none() | st.integers() | st.text() | st.lists(st.text())))
def test_whatever_a_model_or_a_file_gives_at_most_six_short_cues_come_of_it(found: object) -> None:
    cues = fitting_cues(found)
    assert len(cues) <= MOST_CUES
    assert all(0 < len(cue) <= MOST_CUE_CHARS and cue == " ".join(cue.split()) for cue in cues)
    assert clean_cues(cues) == cues
