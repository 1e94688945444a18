from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import Connection, func, select

from satchel.clock import ManualClock
from satchel.errors import NotFound, UsageError
from satchel.memory import Episode, Forgotten, Memory, Source, receipt_to_json
from satchel.memory.store.tables import edges, memories, metadata
from satchel.models.embedding import HashingEmbedder
from satchel.storage import Database
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

EXPECTED = {
    "memory_spaces": 1,
    "embedding_models": 1,
    "memories": 1,
    "memory_words": 1,
    "memory_vectors": 1,
    "memory_uses": 0,
    "memory_tags": 0,
    "memory_edges": 0,
    "memory_tombstones": 2,
}
SECRET = "The vault opens with xylophone-marmalade."


def said(turn: int, text: str, session: str = "s1", position: int | None = None) -> Episode:
    return Episode(session=session, turn=turn, speaker="Ann", text=text, position=position)


async def link(database: Database, derived: str, *bases: str) -> None:
    """Say that one memory was derived from others."""

    def write(connection: Connection) -> None:
        rids = {row.id: row.rid for row in connection.execute(select(memories.c.id, memories.c.rid))}
        for base in bases:
            connection.execute(
                edges.insert().values(
                    source_rid=rids[derived],
                    target_rid=rids[base],
                    relation="derived_from",
                    weight=1.0,
                    created_at=0,
                )
            )

    await database.write(write)


def files_with(folder: Path, words: str) -> list[str]:
    return [path.name for path in sorted(folder.iterdir()) if words.encode() in path.read_bytes()]


@requirement("promise:forget:row-vector-index", "promise:forget:edges-and-facts", "memory:forget:tombstone")
async def test_forgetting_removes_row_vector_words_tags_and_edges_and_leaves_hashes(tmp_path: Path) -> None:
    clock = ManualClock(at=datetime(2026, 1, 2, tzinfo=UTC))
    async with (
        Database.open(tmp_path / "m.db") as database,
        Memory.open(database, embedder=HashingEmbedder(), clock=clock) as memory,
    ):
        (id,) = await memory.add_episodes([said(3, SECRET)])
        fact = await memory.add(SECRET.upper(), tags=["xylophone-marmalade"], quote="xylophone-marmalade")
        kept = await memory.add("The garden needs water.")
        await link(database, fact, id)
        assert (await memory.search("xylophone"))[0].memory.id in (id, fact)
        receipt = await memory.forget(id)
        hmacs = [gone.content_hmac for gone in receipt.forgotten]
        assert len({*hmacs, hashlib.sha256(SECRET.encode()).hexdigest()}) == 3
        assert receipt.forgotten == (
            Forgotten(
                id=id,
                kind="episode",
                source=Source(session="s1", turn=3, position=0),
                content_hmac=hmacs[0],
                because_of=None,
                vectors=1,
                edges=1,
                tags=0,
            ),
            Forgotten(
                id=fact,
                kind="fact",
                source=Source(),
                content_hmac=hmacs[1],
                because_of=id,
                vectors=1,
                edges=1,
                tags=1,
            ),
        )
        assert (receipt.missing, receipt.forgotten_at, receipt.log_emptied) == ((), clock.at, True)
        with pytest.raises(NotFound):
            await memory.get(id)
        assert [hit.memory.id for hit in await memory.search("xylophone marmalade vault")] == [kept]

        def left(connection: Connection) -> dict[str, int]:
            return {
                name: connection.execute(select(func.count()).select_from(table)).scalar_one()
                for name, table in metadata.tables.items()
                if name in EXPECTED
            }

        assert await database.read(left) == EXPECTED
        text = str(receipt_to_json(receipt))
        assert "xylophone" not in text.lower()
        # While it is open, and after it was closed.
        assert files_with(tmp_path, "xylophone") == files_with(tmp_path, "XYLOPHONE") == []
    assert files_with(tmp_path, "xylophone") == files_with(tmp_path, "XYLOPHONE") == []


@requirement("memory:forget:tombstone", "promise:forget:stays-forgotten")
async def test_the_same_source_cannot_bring_it_back(tmp_path: Path) -> None:
    async with Memory.open(tmp_path / "m.db", embedder="none") as memory:
        ids = await memory.add_episodes([said(1, SECRET), said(2, "Good night.")])
        await memory.forget(ids[0])
    async with Memory.open(tmp_path / "m.db", embedder="none") as memory:
        # The session's log is captured again, after a crash or an import.
        assert await memory.add_episodes([said(1, SECRET), said(2, "Good night.")]) == ids[1:]
        assert await memory.add_episodes([said(1, "the place, with other words")]) == ()
        assert await memory.count() == 1
        # Said anew, in a later turn or elsewhere, it is new.
        assert len(await memory.add_episodes([said(7, SECRET), said(1, SECRET, session="s2")])) == 2
        fact = await memory.add(SECRET, session="s1", turn=9)
        assert await memory.count() == 4
        # A fact has no place of its own and is known by its words.
        await memory.forget(fact)
        with pytest.raises(UsageError, match="were forgotten"):
            await memory.add(SECRET, session="s1", turn=10)


async def test_a_fact_that_rests_on_something_else_as_well_stays_until_all_of_it_is_gone() -> None:
    async with Database.open(":memory:") as database, Memory.open(database, embedder="none") as memory:
        one, two, three = await memory.add_episodes([said(n, f"turn {n}") for n in (1, 2, 3)])
        shared = await memory.add("rests on one and two")
        built = await memory.add("rests on the shared fact alone")
        both = await memory.add("rests on the shared fact and on one")
        await link(database, shared, one, two)
        await link(database, built, shared)
        await link(database, both, shared, one)
        assert [gone.id for gone in (await memory.forget([one])).forgotten] == [one]
        receipt = await memory.forget([two, two, "nobody"])
        assert {gone.id: gone.because_of for gone in receipt.forgotten} == {
            two: None,
            shared: two,
            built: shared,
            both: shared,
        }
        assert receipt.missing == ("nobody",)
        assert [memory.id for memory in await memory.list()] == [three]


async def test_forgetting_what_is_not_there_says_so_and_changes_nothing() -> None:
    async with Memory.open(":memory:", embedder="none") as memory:
        id = await memory.add("a boat")
        receipt = await memory.forget(["m0", "m1"])
        assert (receipt.forgotten, receipt.missing) == ((), ("m0", "m1"))
        assert (await memory.forget([])).missing == ()
        assert [found.id for found in await memory.list()] == [id]


async def test_a_vector_that_was_being_made_does_not_bring_a_forgotten_memory_back() -> None:
    class Forgetful(HashingEmbedder):
        async def embed(self, texts, role):  # type: ignore[no-untyped-def]
            if role == "document":
                await memory.forget(id)
            return await super().embed(texts, role)

    async with Memory.open(":memory:", embedder=Forgetful(), back_fill=False) as memory:
        id = await memory.add(SECRET)
        assert await memory.search("vault") == ()
        assert (await memory.stats()).embedded == 0


async def test_many_memories_are_forgotten_at_once() -> None:
    async with Memory.open(":memory:", embedder="none") as memory:
        ids = await memory.add_episodes([said(turn, f"boat {turn}") for turn in range(3000)])
        await memory.search("boat 7", mode="lexical")
        assert len((await memory.forget(ids[:2500])).forgotten) == 2500
        found = await memory.search("boat", limit=5000, mode="lexical")
        assert {hit.memory.id for hit in found} == set(ids[2500:])
