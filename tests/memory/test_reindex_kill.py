"""`kill -9` at any moment of re-embedding: searches have whole vectors of one embedder, and it goes on."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from sqlalchemy import text

from satchel.memory import Memory
from satchel.memory.find.candidates.arrays import to_stored
from satchel.storage import Database
from tests.killing import Killing
from tests.memory.reindex_worker import Turned
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

KILLS = 8
EACH = 150
"""Memories of each of two users: five batches of 64 at most."""
MOST_LINES = 7


async def by_model(database: Database) -> dict[str, tuple[str, int]]:
    """The state and the number of vectors of each embedder."""
    sql = (
        "SELECT m.name, m.state, count(v.rid) FROM embedding_models m LEFT JOIN memory_vectors v "
        "ON v.model_id = m.id GROUP BY m.id"
    )
    return await database.read(
        lambda connection: {row[0]: (row[1], row[2]) for row in connection.execute(text(sql))}
    )


@requirement("memory:embedder:migration", "promise:durable:kill")
async def test_kills_leave_one_embedder_in_use_with_all_its_vectors(tmp_path: Path) -> None:
    chance = random.Random(20261124)
    path = tmp_path / "m.db"
    async with Database.open(path) as database:
        for user in ("default", "bob"):
            async with Memory.open(database, embedder=Turned(0), user=user, back_fill=False) as memory:
                for place in range(EACH):
                    await memory.add(f"boat {place} of {user}")
                await memory.reindex()
    embedder, changes = 1, 0
    with Killing("tests.memory.reindex_worker") as killing:
        for _ in killing.rounds(KILLS, lambda: changes > 1):  # noqa: B023 - its value then
            async with Database.open(path) as database:
                before = (await by_model(database)).get(f"turned-{embedder}", ("", 0))[1]
            lines = killing.round(
                path=str(path),
                embedder=embedder,
                drop_old=chance.random() < 0.5,
                after=chance.randint(1, MOST_LINES),
                later_s=chance.uniform(0, 0.02),
            )
            told = max([done for what, *rest in lines if what == "embedded" for done in rest], default=0)
            async with Database.open(path) as database:
                assert (await database.doctor()).problems == ()
                models = await by_model(database)
            in_use = {name: count for name, (state, count) in models.items() if state == "active"}
            assert list(in_use.values()) == [2 * EACH]
            assert models.get(f"turned-{embedder}", ("", 0))[1] >= before + told
            if in_use.keys() == {f"turned-{embedder}"}:
                # Forth to a new one, or back to one whose old vectors may still be there.
                embedder, changes = chance.choice([changes + 2, max(0, embedder - 1)]), changes + 1
            else:
                assert lines[-1:] != [["in use"]]
    async with Database.open(path) as database:
        for user in ("default", "bob"):
            async with Memory.open(database, embedder=Turned(embedder), user=user, back_fill=False) as memory:
                await memory.reindex(drop_old=True)
                assert (await memory.check()).problems == ()
        sql = "SELECT m.content, v.vectors FROM memory_vectors v JOIN memories m ON m.rid = v.rid"
        found = await database.read(lambda connection: list(connection.execute(text(sql))))
        assert len(found) == 2 * EACH
        expected = await Turned(embedder).embed([content for content, _ in found], "document")
        assert b"".join(vector for _, vector in found) == to_stored(expected)
