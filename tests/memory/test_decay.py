from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Connection, func, select

from satchel.clock import ManualClock
from satchel.errors import UsageError
from satchel.memory import Memory, priority_now, recency_weight
from satchel.memory.store.decay import FLOOR, factors
from satchel.memory.store.tables import memories
from satchel.models.embedding import HashingEmbedder
from satchel.storage import Database
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

DAY_S = 86_400.0
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@requirement("memory:tiers:defaults")
async def test_each_tier_has_its_own_priority_and_rate(tmp_path: Path) -> None:
    async with Memory.open(tmp_path / "m.db", embedder="none") as memory:
        short = await memory.get(await memory.add("Milk is out.", tier="short_term"))
        long = await memory.get(await memory.add("Ann is allergic to nuts."))
    assert (short.priority, short.decay_rate) == (0.55, 0.02)
    assert (long.priority, long.decay_rate) == (0.85, 0.005)


@requirement("memory:decay:floor", "memory:decay:reinforced", "memory:decay:archive")
async def test_what_faded_is_no_longer_shown_and_still_found_and_use_keeps_it_alive(tmp_path: Path) -> None:
    clock = ManualClock(at=NOON)
    async with Memory.open(tmp_path / "m.db", embedder="none", clock=clock) as memory:
        id = await memory.add("Zanzibar has the best cloves.", tier="short_term")
        used = await memory.add("Quinoa grows in Bolivia.", tier="short_term")
        clock.advance(24 * DAY_S)
        # 0.55 - 24 * 0.02 = 0.07 is above the floor, and showing it begins the count anew.
        assert [hit.memory.id for hit in (await memory.surface("Tell me about quinoa.")).memories] == [used]
        clock.advance(2 * DAY_S)
        assert priority_now(await memory.get(id), clock.now()) == pytest.approx(0.03)
        assert priority_now(await memory.get(used), clock.now()) == pytest.approx(0.51)
        assert not await memory.surface("Which cloves from Zanzibar are best?")
        assert [hit.memory.id for hit in await memory.search("Zanzibar cloves")] == [id]
        assert [hit.memory.id for hit in (await memory.surface("Tell me about quinoa.")).memories] == [used]
        left_out = (await memory.recall("Which cloves from Zanzibar are best?")).left_out
        assert [(hit.memory.id, why) for hit, why in left_out] == [
            (id, "has faded: it was not used for a long time")
        ]
        assert [one.id for one in await memory.list(faded=True)] == [id]
        assert [one.id for one in await memory.list(faded=False)] == [used]
        assert (await memory.count(faded=True), await memory.count()) == (1, 2)
        assert not await memory.search("Zanzibar cloves", faded=False)
        await memory.note_use([id])
        assert await memory.count(faded=True) == 0
        assert (await memory.surface("Which cloves from Zanzibar are best?")).memories[0].memory.id == id


@requirement("memory:decay:floor")
async def test_what_matters_most_is_shown_however_long_it_was_not_used() -> None:
    clock = ManualClock(at=NOON)
    async with Memory.open(":memory:", embedder="none", clock=clock) as memory:
        nuts = await memory.add("Zelda is allergic to walnuts.", importance=5)
        tea = await memory.add("Zelda is fond of Assam tea.", importance=4)
        clock.advance(400 * DAY_S)
        assert [one.id for one in await memory.list(faded=True)] == [tea]
        assert priority_now(await memory.get(nuts), clock.now()) < FLOOR
        assert [
            hit.memory.id for hit in (await memory.surface("Is Zelda allergic to walnuts?")).memories
        ] == [nuts]
        assert not await memory.surface("Is Zelda fond of Assam tea?")


@requirement("memory:decay:when-read")
async def test_neither_time_nor_requests_write_a_row_of_any_memory(tmp_path: Path) -> None:
    clock = ManualClock(at=NOON)
    async with Database.open(tmp_path / "m.db", clock=clock) as database:

        def rows(connection: Connection) -> tuple[int, float]:
            found = connection.execute(
                select(func.max(memories.c.changed), func.sum(memories.c.priority))
            ).one()
            return tuple(found)

        async with Memory.open(database, embedder="none", clock=clock, decay_cycle="request") as memory:
            for number in range(20):
                await memory.add(f"Fact {number} of many.", tier="short_term")
            before = await database.read(rows)
            for _ in range(5):
                clock.advance(DAY_S)
                await memory.surface("Nothing of this is there.")
            assert await database.read(rows) == before


@requirement("memory:decay:cycle")
async def test_a_cycle_can_be_a_request_of_which_a_counter_is_kept(tmp_path: Path) -> None:
    clock = ManualClock(at=NOON)
    where = tmp_path / "m.db"
    async with Memory.open(where, embedder="none", clock=clock, decay_cycle="request") as memory:
        await memory.add("Zanzibar has the best cloves.", tier="short_term")
        clock.advance(1000 * DAY_S)
        assert (await memory.recall("Which cloves from Zanzibar are best?")).context
        for _ in range(26):
            await memory.surface("Something else is asked.")
        assert not await memory.surface("Which cloves from Zanzibar are best?")
        assert len(await memory.search("cloves")) == await memory.count(faded=True) == 1
    with pytest.raises(UsageError, match="cycle of decay"):
        async with Memory.open(where, embedder="none", decay_cycle="week"):  # type: ignore[arg-type]
            pass


def test_recency_is_whole_for_a_week_and_half_after_ninety_days() -> None:
    assert [recency_weight(days) for days in (-5, 0, 7, 48.5, 90, 4000)] == [1, 1, 1, 0.75, 0.5, 0.5]


@requirement("memory:search:weights-bounded")
@given(
    importance=st.integers(1, 5),
    age=st.floats(-1e7, 1e7),
    priority=st.floats(0, 1),
)
def test_each_of_the_three_moves_a_score_by_a_tenth_at_most(
    importance: int, age: float, priority: float
) -> None:
    assert all(0.9 - 1e-9 <= factor <= 1.1 + 1e-9 for factor in factors(importance, age, priority))


async def test_of_two_that_fit_alike_the_important_one_comes_first_and_says_why(tmp_path: Path) -> None:
    clock = ManualClock(at=NOON)
    async with Memory.open(tmp_path / "m.db", embedder=HashingEmbedder(), clock=clock) as memory:
        important = await memory.add("We saw a heron by the river in spring.", importance=5)
        trivial = await memory.add("We saw a beaver by the river in spring.", importance=1)
        hits = await memory.search("by the river in spring")
        assert [hit.memory.id for hit in hits] == [important, trivial]
        assert [hit.signals["times_importance"] for hit in hits] == [1.1, 0.9]
        assert [hits[0].signals[f"times_{name}"] for name in ("recency", "priority")] == [1.1, 1.07]
        assert priority_now(hits[0].memory, NOON + timedelta(days=1000)) == 0 < FLOOR


@requirement("memory:access:recency", "memory:dedup:importance")
async def test_use_moves_priority_and_not_recency_and_restating_moves_no_importance() -> None:
    """As docs/decisions/0031-recency-and-importance.md has it."""
    clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    async with Memory.open(":memory:", embedder="none", clock=clock) as memory:
        used, unused = await memory.add("The boat is blue"), await memory.add("The boat is old")
        clock.advance(60 * 86_400)
        await memory.note_use([used])
        of = {hit.memory.id: hit.signals for hit in await memory.search("boat")}
        assert of[used]["times_recency"] == of[unused]["times_recency"] == 0.95
        assert (of[used]["times_priority"] or 0) > (of[unused]["times_priority"] or 0)
        by_keywords = {hit.memory.id: hit.signals for hit in await memory.search("boat", mode="keyword")}
        assert (by_keywords[used]["recency"], by_keywords[unused]["recency"]) == (0.2, 0.0)
        again = await memory.add("The boat is blue.", importance=4)
        assert [(await memory.get(id)).importance for id in (used, again)] == [3, 4]
