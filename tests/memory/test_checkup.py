"""`Memory.check` and `Memory.repair`: what is wrong with a store, and that mending it leaves nothing wrong."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Connection, delete, text, update

from satchel.clock import ManualClock
from satchel.memory import Episode, Memory
from satchel.memory.checkup import Checkup, checkup_to_json
from satchel.memory.store.tables import memories, vectors, words
from satchel.models.embedding import HashingEmbedder
from satchel.storage import Database
from tests.memory.embedders import Down
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

NOON = datetime(2026, 4, 1, 12, tzinfo=UTC)


@requirement("memory:doctor")
async def test_a_store_in_order_has_nothing_to_mend() -> None:
    async with Memory.open(":memory:", embedder=HashingEmbedder(), back_fill=False) as memory:
        assert await memory.check() == Checkup(embedder=HashingEmbedder().info.id)
        await memory.add("Ann likes tea", tags=["food", "a,b"])
        await memory.add_episodes([Episode(session="s", turn=1, speaker="Ann", text="getHttpResponse = 7")])
        await memory.embed_pending()
        assert (await memory.check()).problems == ()


@requirement("memory:doctor")
async def test_rates_count_duplicates_stale_faded_and_undated_memories_and_leave_them_alone() -> None:
    clock = ManualClock(NOON)
    async with Memory.open(":memory:", embedder="none", clock=clock) as memory:
        await memory.add("Ann likes tea")
        await memory.add("Ann likes TEA!")
        old = await memory.add("The office is in Porto", valid_to=NOON + timedelta(days=1))
        await memory.add("No date", tags=["undated"])
        await memory.add("From the future", said_at=NOON + timedelta(days=40))
        await memory.add("Almost gone", priority=0.06, decay_rate=0.02)
        clock.advance(2 * 86_400)
        await memory.note_use([old])
        found = await memory.check()
        assert (found.facts, found.duplicates, found.stale, found.faded, found.undated) == (6, 1, 1, 1, 2)
        assert found.problems == ()
        assert checkup_to_json(found)["duplicate_rate"] == round(1 / 6, 4)


def damage(connection: Connection) -> None:
    """What another program, or a defect, might do to the tables."""
    connection.execute(text("PRAGMA defer_foreign_keys=ON"))
    rids = list(connection.execute(memories.select().order_by(memories.c.rid)).scalars())
    connection.execute(delete(words).where(words.c.rid == rids[0]))
    connection.execute(update(words).where(words.c.rid == rids[1]).values(stems=b"\0" * 12))
    connection.execute(delete(vectors).where(vectors.c.rid == rids[2]))


@requirement("memory:doctor")
async def test_a_damaged_index_is_told_and_mended_and_other_processes_take_it_in(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    async with (
        Memory.open(path, embedder=HashingEmbedder(), back_fill=False) as memory,
        Memory.open(path, embedder="none") as other,
        Database.open(path) as database,
    ):
        for content in ("Ann likes tea", "Ben likes coffee", "Cleo likes milk"):
            await memory.add(content)
        await memory.embed_pending()
        await database.write(damage)
        assert await other.search("tea", mode="lexical") == ()
        found = await memory.check()
        assert (found.words_wrong, found.vectors_missing) == (2, 1)
        assert found.problems == ("2 memories have other words in the lexical index.",)
        assert found.notes == ("1 memory has no vector yet. The next search or `--fix` embeds them.",)
        done = await memory.repair()
        assert (done.reindexed, done.embedded) == (2, 1)
        assert (await memory.check()).problems == ()
        for index in (memory, other):
            assert [hit.memory.content for hit in await index.search("tea", mode="lexical")] == [
                "Ann likes tea"
            ]


async def test_rows_that_belong_to_nothing_are_removed(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    async with Memory.open(path, embedder="none") as memory:
        await memory.add("Ann likes tea")

    with sqlite3.connect(path) as connection:  # without foreign keys, as other programs open it
        connection.execute("INSERT INTO memory_words VALUES (99, 1, 1, 0, x'')")
        connection.execute("INSERT INTO memory_tags VALUES (99, 'x', 0), (99, 'y', 1)")
        connection.execute("INSERT INTO memory_readings VALUES (99, 1)")
        connection.execute("INSERT INTO memory_edges VALUES (1, 99, 'related', 1.0, 0)")
    connection.close()
    async with Memory.open(path, embedder="none") as memory:
        found = await memory.check()
        lost = {"memory_edges": 1, "memory_readings": 1, "memory_tags": 2, "memory_words": 1}
        assert sorted(found.problems) == [
            f"{path}: {table} has rows that belong to no row of memories: {count}."
            for table, count in lost.items()
        ]
        assert (await memory.repair()).orphans == 5
        assert (await memory.check()).problems == ()


@requirement("memory:doctor")
async def test_injected_text_is_taken_out_and_what_is_nothing_else_is_forgotten() -> None:
    async with Memory.open(":memory:", embedder="none", clock=ManualClock(NOON)) as memory:
        await memory.add("Ann is allergic to shellfish")
        block = (await memory.surface("What is Ann allergic to, is it shellfish?")).text
        mixed = await memory.add(f"Cook for Ann.\n{block}")
        bare = await memory.add(block)
        assert (await memory.check()).echoes == 2
        done = await memory.repair()
        assert (done.stripped, done.emptied) == (1, 1)
        assert (await memory.get(mixed)).content.strip() == "Cook for Ann."
        assert [one.id for one in await memory.list()].count(bare) == 0
        assert (await memory.check()).problems == ()
        # It can be undone, as every edit.
        assert (await memory.history(mixed))[-1].who == "doctor"


SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


@requirement("memory:doctor")
async def test_secrets_are_taken_out_only_when_asked_and_then_stay_nowhere(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    async with Memory.open(path, embedder="none", redact=False) as memory:
        one = await memory.add(f"The token is {SECRET}", session="s", turn=1, quote=f"it is {SECRET}")
        two = await memory.add(f"First {SECRET}")
        await memory.edit(two, content="First nothing", why=f"was {SECRET}")
        found = await memory.check()
        assert (found.secrets, found.secret_changes, found.secret_ids) == (1, 1, (one,))
        assert (await memory.repair()).redacted == 0
        assert (await memory.check()).secrets == 1
        done = await memory.repair(secrets=True)
        assert (done.redacted, {taken.text for taken in done.taken_out}) == (1, {SECRET})
        assert SECRET not in repr(done)
        record = await memory.get(one)
        assert record.content == "The token is [redacted:github-token]"
        assert record.source.quote == "it is [redacted:github-token]"
        assert (await memory.check()).problems == ()
        assert SECRET not in str(await memory.history(one)) + str(await memory.history(two))
    assert SECRET.encode() not in path.read_bytes()


async def test_an_embedder_that_is_down_is_told_and_stays_a_problem() -> None:
    embedder = Down()
    async with Memory.open(":memory:", embedder=embedder, back_fill=False) as memory:
        await memory.add("Ann likes tea")
        # Nobody has asked it for anything yet.
        assert (await memory.check()).embedder_trouble is not None
        await memory.repair()
        found = await memory.check()
        assert found.vectors_missing == 1
        assert found.embedder_trouble is not None
        embedder.up = True


async def test_many_memories_are_looked_at_in_parts() -> None:
    async with Memory.open(":memory:", embedder="none") as memory:
        await memory.add_episodes(
            [Episode(session="s", turn=turn, speaker="Ann", text=f"turn {turn}") for turn in range(1200)]
        )
        assert (await memory.check()).memories == 1200
