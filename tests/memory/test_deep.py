"""Deep memory: a question is searched for from several angles, and what they find is fused and answered."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import anyio
import pytest

from satchel.clock import ManualClock
from satchel.errors import ModelUnavailable
from satchel.memory import Hit, Memory, Mode
from satchel.models.embedding import HashingEmbedder
from satchel.models.scripted import Reply, ScriptedModel
from tests.requirements import requirement

pytestmark = pytest.mark.anyio


@requirement("memory:deep:expand", "memory:deep:synthesise", "memory:deep:progress")
async def test_a_small_model_expands_and_answers_and_cites_only_what_was_found(tmp_path: Path) -> None:
    events: list[Mapping[str, Any]] = []

    async def progress(event: Mapping[str, Any]) -> None:
        events.append(event)

    async with Memory.open(tmp_path / "m.db", embedder=HashingEmbedder()) as memory:
        thai = await memory.add("User loves Thai cuisine", tags=["food"])
        nuts = await memory.add("An allergy: peanuts")
        tied = await memory.add("The green curry place closes at nine")
        await memory.link(thai, tied, "related", 0.9)
        for number in range(30):
            await memory.add(f"cuisine note {number}")
        model = ScriptedModel(
            [
                Reply(text='```json\n[["cuisine"], ["allergy", "peanuts"], ["Thai"]]\n```'),
                Reply(text=f"Thai food [{thai}], no peanuts [{nuts}] [m00000000000000ff]."),
            ]
        )
        found = await memory.deep("What should the user eat?", model=model, progress=progress)
        assert found.text == f"Thai food [{thai}], no peanuts [{nuts}]."
        assert (found.cited, found.by_model) == ((thai, nuts), True)
        assert found.angles == ("What should the user eat?", "cuisine", "allergy peanuts", "Thai")
        ids = [hit.memory.id for hit in found.hits]
        assert len(ids) == len(set(ids)) <= 10
        assert {thai, nuts, tied} <= set(ids)
        assert [event["status"] for event in events] == ["expanding", "searching", "found"]
        assert events[2]["count"] == len(ids)
        assert (await memory.get(thai)).access_count == 1
        assert {(row.purpose, row.calls) for row in await memory.spent()} == {("expand", 1), ("answer", 1)}


def expanding(*angles: list[str]) -> ScriptedModel:
    """A model that gives these angles and answers without a citation."""
    return ScriptedModel([Reply(text=json.dumps(angles)), Reply(text="They sailed.")])


@requirement("memory:deep:fuse")
async def test_the_searches_of_all_angles_are_under_way_at_the_same_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    search, under_way, all_here = Memory.search, set(), anyio.Event()

    async def together(self: Memory, query: str, **options: Any) -> tuple[Hit, ...]:
        if query in ("harbour", "ferry", "sea"):
            under_way.add(query)
            if len(under_way) == 3:
                all_here.set()
            await all_here.wait()
        return await search(self, query, **options)

    monkeypatch.setattr(Memory, "search", together)
    async with Memory.open(":memory:", embedder="none") as memory:
        await memory.add("The ferry leaves at nine.")
        with anyio.fail_after(60):
            found = await memory.deep(
                "How did they travel?", model=expanding(["harbour"], ["ferry"], ["sea"])
            )
    assert [hit.memory.content for hit in found.hits] == ["The ferry leaves at nine."]


@requirement("memory:deep:fuse")
async def test_what_every_angle_finds_stands_once_and_before_what_one_finds_and_ten_are_given() -> None:
    angles = ("harbour", "ferry", "museum")
    async with Memory.open(":memory:", embedder="none") as memory:
        for number in range(4):
            for angle in angles:
                await memory.add(f"Sheet {number}, {angle}, and what else there was to see.")
        common = await memory.add("Sheet 5, harbour, ferry, museum, and what else there was to see.")
        for angle in angles:
            hits = await memory.search(angle)
            assert {common} < {hit.memory.id for hit in hits}
            assert hits[0].memory.id != common
        found = await memory.deep("How did they spend it?", model=expanding(*([angle] for angle in angles)))
    ids = [hit.memory.id for hit in found.hits]
    assert ids[0] == common
    assert len(ids) == len(set(ids)) == 10


async def test_without_a_model_or_with_one_that_is_down_it_quotes_what_several_angles_find(
    tmp_path: Path,
) -> None:
    async with Memory.open(tmp_path / "m.db", embedder="none") as memory:
        await memory.add("Lena collects old maps of Vienna", tags=["hobby"])
        await memory.add("The maps hang in the hall")
        down = ScriptedModel([Reply(error=ModelUnavailable("down"))] * 2)
        for model in (None, down):
            found = await memory.deep("Which maps does Lena have, and where do they hang?", model=model)
            assert not found.by_model
            assert 3 <= len(found.angles) <= 5
            assert [line[:3] for line in found.text.splitlines()] == ["- [", "- ["]
            assert len(found.cited) == 2
        assert (await memory.deep("xyzzy")).text == "Nothing was found."


@requirement("memory:deep:citations")
async def test_ids_of_every_form_are_cited_and_inventions_are_not(tmp_path: Path) -> None:
    exported = tmp_path / "m.jsonl"
    async with Memory.open(tmp_path / "m.db", embedder="none") as memory:
        await memory.add("User loves Thai cuisine", tier="short_term")
        await memory.add("Thai basil grows on the balcony")
        await memory.export_to(exported)
    lines = [json.loads(line) for line in exported.read_text().splitlines()]
    ids = iter(["note-7", "3f2504e0-4f89-41d3-9a0c-0305e82c3301"])
    renamed = [{**line, "id": next(ids)} if "content" in line else line for line in lines]
    exported.write_text("".join(json.dumps(line) + "\n" for line in renamed))
    async with Memory.open(tmp_path / "n.db", embedder="none") as memory:
        await memory.import_from(exported)
        known = {record.id for record in await memory.list()}
        assert known == {"note-7", "3f2504e0-4f89-41d3-9a0c-0305e82c3301"}
        answer = (
            "Thai [note-7], basil [id: 3f2504e0-4f89-41d3-9a0c-0305e82c3301; note-7] [note-9] [f0123456789abcdef] [1], "
            "see [sic] [the menu](https://example.org) [x, y]."
        )
        model = ScriptedModel([Reply(text='[["Thai"]]'), Reply(text=answer)])
        found = await memory.deep("What Thai things does the user love?", model=model)
        assert found.text == (
            "Thai [note-7], basil [3f2504e0-4f89-41d3-9a0c-0305e82c3301][note-7], "
            "see [sic] [the menu](https://example.org) [x, y]."
        )
        assert found.cited == ("note-7", "3f2504e0-4f89-41d3-9a0c-0305e82c3301")
        prompt = model.requests[-1].messages[0].text
        assert re.search(r"\[note-7\] .*, short_term: \"User loves", prompt)
        assert re.search(r"\[3f2504e0.*, long_term: \"Thai basil", prompt)


@requirement("memory:as-of:words")
async def test_what_was_believed_at_a_moment_holds_no_words_written_later() -> None:
    clock = ManualClock(datetime(2026, 3, 1, tzinfo=UTC))
    async with Memory.open(":memory:", embedder=HashingEmbedder(), clock=clock) as memory:
        flat = await memory.add("Mara rents a flat in Bern", tags=["home"])
        tied = await memory.add("The landlord is Mr Frei")
        await memory.link(flat, tied, "related")
        clock.advance(31 * 86_400)
        then = clock.now()
        clock.advance(61 * 86_400)
        await memory.edit(flat, content="Mara rents a flat in Basel", tags=["home", "moved"], importance=5)
        await memory.edit(tied, content="The landlord is Ms Blum")
        clock.advance(30 * 86_400)
        await memory.edit(flat, content="Mara rents a flat in Chur")
        for mode in get_args(Mode):
            hits = await memory.search("Mara flat", as_of=then, mode=mode, threshold=-1.0)
            assert [hit.memory.content for hit in hits if hit.memory.id == flat] == [
                "Mara rents a flat in Bern"
            ]
        (listed,) = await memory.list(as_of=then, tags=["home"])
        assert (listed.content, listed.tags, listed.importance) == ("Mara rents a flat in Bern", ("home",), 3)
        found = await memory.deep("Where does Mara rent a flat?", as_of=then.replace(tzinfo=None))
        texts = {hit.memory.content for hit in found.hits}
        assert texts == {"Mara rents a flat in Bern", "The landlord is Mr Frei"}
        (middle,) = await memory.list(as_of=datetime(2026, 6, 2, tzinfo=UTC), tags=["home"])
        assert (middle.content, middle.importance) == ("Mara rents a flat in Basel", 5)
        assert (await memory.search("Mara flat"))[0].memory.content == "Mara rents a flat in Chur"
