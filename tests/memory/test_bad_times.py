"""What forgetting meets: other processes that write, a clock that was set back, files that name another user's ids."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest

from satchel.clock import ManualClock
from satchel.memory import Episode, Memory
from satchel.models import FunctionModel, ModelRequest
from satchel.models.embedding import HashingEmbedder
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

SECRET = "The heron nests by the mill, said marker7777."


def no_trace_in(folder: Path) -> bool:
    return not any(b"marker7777" in file.read_bytes() for file in folder.rglob("*") if file.is_file())


@requirement("memory:forget:while-others")
async def test_forgetting_while_others_write_embed_and_distil_leaves_nothing(tmp_path: Path) -> None:
    """Each of the handles is what another process has: a database of its own, an index of its own."""
    path = tmp_path / "m.db"
    read, go_on = anyio.Event(), anyio.Event()

    async def distil(request: ModelRequest) -> str:
        if request.system.startswith("You decide"):
            return json.dumps({"worth": True, "reason": "a fact"})
        read.set()
        await go_on.wait()
        return json.dumps({"facts": [{"content": "A heron nests, said marker7777.", "quote": SECRET}]})

    async with (
        Memory.open(path, embedder=HashingEmbedder(), back_fill=False) as one,
        Memory.open(path, embedder=HashingEmbedder(), back_fill=False) as two,
        Memory.open(path, embedder=HashingEmbedder(), back_fill=False) as three,
    ):
        said = [Episode(session="s", turn=n, speaker="user", text=f"Turn {n}. {SECRET}") for n in range(20)]
        ids = await one.add_episodes(said)
        with anyio.fail_after(120):
            async with anyio.create_task_group() as group:
                group.start_soon(lambda: two.distill(model=FunctionModel(distil)))
                await read.wait()
                group.start_soon(two.embed_pending)

                async def write() -> None:
                    for number in range(30):
                        await three.add(f"Another note {number}")

                group.start_soon(write)
                await one.search("heron")
                receipt = await one.forget(ids)
                go_on.set()
        assert {gone.id for gone in receipt.forgotten} == set(ids)
        for handle in (one, two, three):
            assert await handle.count() == 30
            assert not any(
                "marker7777" in hit.memory.content for hit in await handle.search("heron marker7777")
            )
        assert await two.add_episodes(said) == ()
        await one.forget(await one.add("The last one"))
    assert no_trace_in(tmp_path)


@requirement("memory:clock-set-back")
async def test_a_clock_that_is_set_back_by_a_year_loses_and_brings_back_nothing(tmp_path: Path) -> None:
    now = datetime(2026, 11, 22, tzinfo=UTC)
    async with Memory.open(tmp_path / "m.db", embedder=HashingEmbedder(), clock=ManualClock(now)) as memory:
        old = await memory.add("Mara lives in Bern")
        gone = await memory.add(SECRET, session="s", turn=1)
        await memory.forget(gone)
        await memory.note_use([old])
    clock = ManualClock(now - timedelta(days=365))
    async with Memory.open(tmp_path / "m.db", embedder=HashingEmbedder(), clock=clock) as memory:
        new = await memory.add("Mara lives in Basel")
        await memory.edit(old, content="Mara lived in Bern")
        change = await memory.supersede(old, new)
        assert change is not None
        assert [hit.memory.id for hit in await memory.search("Where does Mara live?")] == [new]
        assert (await memory.surface("Where does Mara live?", threshold=0.0)).memories[0].memory.id == new
        assert [one.action for one in await memory.history(old)][:3] == ["add", "edit", "supersede"]
        await memory.undo(change)
        assert {hit.memory.id for hit in await memory.search("Mara")} == {old, new}
        with pytest.raises(Exception, match="forgotten"):
            await memory.add(SECRET, session="s", turn=1)
        assert (await memory.check()).problems == ()
        assert len((await memory.forget([old, new])).forgotten) == 2
        assert await memory.count() == 0


@requirement("memory:import:other-users-ids")
async def test_an_import_that_names_another_users_ids_touches_nothing_of_theirs(tmp_path: Path) -> None:
    path, file = tmp_path / "m.db", tmp_path / "ann.jsonl"
    async with (
        Memory.open(path, embedder="none", user="ann") as ann,
        Memory.open(path, embedder="none", user="ben") as ben,
    ):
        first, second = await ann.add("Ann's first"), await ann.add("Ann's second")
        await ann.link(first, second, "related")
        await ann.supersede(first, second)
        await ann.export_to(file)
        before = [await ann.get(id) for id in (first, second)]
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        changed = [{**line, "content": "Ben's own words"} if "content" in line else line for line in lines]
        file.write_text("".join(json.dumps(line) + "\n" for line in changed))
        await ben.import_from(file)
        assert [await ann.get(id) for id in (first, second)] == before
        assert [record.user for record in await ben.list(limit=10)] == ["ben"] * await ben.count()
        for record in await ben.list():
            await ben.forget(record.id)
        assert [await ann.get(id) for id in (first, second)] == before
        assert len(await ann.edges(first)) == 2
        assert (await ann.check()).problems == ()


@requirement("memory:forget:many-restatements")
async def test_many_facts_that_all_restate_each_other_are_shown_once_and_forgotten_together() -> None:
    async with Memory.open(":memory:", embedder="none", back_fill=False) as memory:
        for number in range(300):
            await memory.add(f"Mara is allergic to shellfish{'!' * (number % 7)}")
        assert len((await memory.surface("Is Mara allergic to shellfish?")).memories) == 1
        receipt = await memory.forget(query="shellfish")
        assert len(receipt.forgotten) == 300
        assert await memory.count() == 0
