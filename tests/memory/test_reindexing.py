"""From one embedder to another: beside the one in use, over in one step, whatever happens on the way."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import text

from satchel.clock import ManualClock
from satchel.errors import UsageError
from satchel.memory import Memory
from satchel.storage import Database
from tests.memory.embedders import Counting, Down, Wordy
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

MODELS = "SELECT name, state FROM embedding_models ORDER BY id"
VECTORS = (
    "SELECT m.name, count(*) FROM memory_vectors v JOIN embedding_models m ON m.id = v.model_id "
    "GROUP BY m.name ORDER BY m.name"
)


async def rows(database: Database, sql: str) -> list[tuple[object, ...]]:
    return await database.read(lambda connection: [tuple(row) for row in connection.execute(text(sql))])


class Halfway(Counting):
    """Serves a number of calls, then not."""

    def __init__(self, id: str, calls: int) -> None:
        super().__init__(id)
        self.left = calls

    async def embed(self, texts, role):  # type: ignore[no-untyped-def]
        self.left -= 1
        if self.left < 0:
            down = Down()
            return await down.embed(texts, role)
        return await super().embed(texts, role)


@requirement("memory:embedder:migration")
async def test_a_new_embedder_takes_over_when_everything_of_everybody_has_its_vectors(tmp_path: Path) -> None:
    async with Database.open(tmp_path / "m.db") as database:
        for user in ("ann", "bob"):
            async with Memory.open(database, embedder=Counting("old"), user=user, back_fill=False) as memory:
                for number in range(70):
                    await memory.add(f"boat {number} of {user}")
                await memory.search("boat")
        new = Halfway("new", 1)
        async with Memory.open(database, embedder=new, user="ann", back_fill=False) as memory:
            half = await memory.reindex()
            assert (half.embedded, half.left, half.in_use) == (64, 76, False)
            assert "does not answer" in (half.trouble or "")
        assert await rows(database, MODELS) == [("old", "active"), ("new", "building")]
        # Whoever still asks with the old one is served by it, whole.
        async with Memory.open(database, embedder=Counting("old"), user="bob", back_fill=False) as memory:
            assert memory.degraded is None
            assert (await memory.search("boat 5"))[0].signals["dense"] is not None
        seen: list[tuple[int, int]] = []
        again = Counting("new")
        async with Memory.open(database, embedder=again, user="ann", back_fill=False) as memory:
            whole = await memory.reindex(progress=lambda *now: seen.append(now))
            assert (whole.embedded, whole.left, whole.in_use, whole.trouble) == (76, 0, True, None)
            assert memory.degraded is None
        assert seen == [(64, 76), (76, 76)]
        assert len(again.documents) == 76
        assert await rows(database, MODELS) == [("old", "retired"), ("new", "active")]
        assert await rows(database, VECTORS) == [("new", 140), ("old", 140)]


@requirement("memory:embedder:migration")
async def test_old_vectors_go_after_a_week_or_at_once_when_that_is_asked_for(tmp_path: Path) -> None:
    clock = ManualClock()
    async with Database.open(tmp_path / "m.db", clock=clock) as database:

        async def reindexed(id: str, *, drop_old: bool = False) -> tuple[str, ...]:
            async with Memory.open(database, embedder=Wordy(id), clock=clock, back_fill=False) as memory:
                return (await memory.reindex(drop_old=drop_old)).dropped

        async with Memory.open(database, embedder="none") as memory:
            await memory.add("the boat is blue")
        assert await reindexed("one") == ()
        assert await reindexed("two") == ()
        clock.advance(6 * 86_400)
        assert await reindexed("two") == ()
        clock.advance(2 * 86_400)
        assert await reindexed("two") == ("one",)
        assert await rows(database, VECTORS) == [("two", 1)]
        assert await rows(database, "SELECT count(*) FROM memory_tokens") == [(1,)]
        assert await reindexed("three", drop_old=True) == ("two",)
        # One that comes back begins anew.
        assert await reindexed("one", drop_old=True) == ("three",)
        assert (await database.doctor()).problems == ()


async def test_one_that_was_put_aside_is_back_at_once_while_its_vectors_are_there(tmp_path: Path) -> None:
    async with Database.open(tmp_path / "m.db") as database:
        first = Counting("first")
        async with Memory.open(database, embedder=first, back_fill=False) as memory:
            await memory.add("the boat is blue")
            await memory.reindex()
        async with Memory.open(database, embedder=Counting("second"), back_fill=False) as memory:
            await memory.reindex()
        async with Memory.open(database, embedder=first, back_fill=False) as memory:
            assert "embedded with second" in (await told(memory))
            assert (await memory.reindex()).embedded == 0
        assert await rows(database, MODELS) == [("first", "active"), ("second", "retired")]


async def told(memory: Memory) -> str:
    """What the user is told when memory is asked for its counts."""
    await memory.stats()
    return memory.degraded or ""


@requirement("memory:embedder:calibrated")
async def test_an_embedder_is_calibrated_by_the_program_at_its_first_use(tmp_path: Path) -> None:
    async with Database.open(tmp_path / "m.db") as database:
        unknown = Counting("unknown")
        async with Memory.open(database, embedder=unknown, back_fill=False) as memory:
            await memory.add("the boat in the harbour is blue")
            await memory.surface("Is the boat blue?")
            assert len(unknown.queries) == 1 + 164
            await memory.surface("Is the boat red?")
            assert len(unknown.queries) == 2 + 164
        async with Memory.open(database, embedder=unknown, back_fill=False) as memory:
            await memory.surface("Is the boat blue?")
            assert len(unknown.queries) == 3 + 164


async def test_without_an_embedder_there_is_nothing_to_make() -> None:
    async with Memory.open(":memory:", embedder="none") as memory:
        with pytest.raises(UsageError, match="name one to make vectors with"):
            await memory.reindex()


async def test_words_that_changed_while_they_were_embedded_get_no_vectors_of_the_old_ones() -> None:
    async with Database.open(":memory:") as database:

        class Slow(Counting):
            async def embed(self, texts, role):  # type: ignore[no-untyped-def]
                if role == "document" and not self.documents:
                    await database.write(
                        lambda connection: connection.execute(
                            text("UPDATE memories SET content = 'the boat is red', content_hash = 'other'")
                        )
                    )
                return await super().embed(texts, role)

        slow = Slow()
        async with Memory.open(database, embedder=slow, back_fill=False) as memory:
            await memory.add("the boat is blue")
            await memory.embed_pending()
        assert slow.documents == ["the boat is blue", "the boat is red"]
        assert await rows(database, "SELECT count(*) FROM memory_vectors") == [(1,)]


@requirement("memory:embedder:migration")
async def test_a_store_opened_with_another_embedder_goes_over_to_it_in_the_background(tmp_path: Path) -> None:
    async with Database.open(tmp_path / "m.db") as database:
        for user in ("ann", "bob"):
            async with Memory.open(database, embedder=Counting("old"), user=user, back_fill=False) as memory:
                await memory.add("the boat is blue")
                await memory.reindex()
        async with Memory.open(database, embedder=Counting("new"), user="ann", back_fill=False) as memory:
            assert memory._space.dense is not None
            await (
                memory._space.dense.keep_up()
            )  # What the background does, without waiting for it to be idle.
            assert memory.degraded is None
        assert await rows(database, MODELS) == [("old", "retired"), ("new", "active")]
        assert await rows(database, VECTORS) == [("new", 2), ("old", 2)]
