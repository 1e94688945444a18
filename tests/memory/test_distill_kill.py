"""`kill -9` at any moment of distilling: nothing that was told is lost, nothing is doubled, and it goes on."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from satchel.memory import Memory
from satchel.models import ScriptedModel
from satchel.storage import Database
from tests.killing import Killing
from tests.memory.distill_worker import EPISODES, reply
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

KILLS = 8


@requirement("memory:distill:crash")
async def test_kills_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    chance = random.Random(20261122)
    path = tmp_path / "m.db"
    told: set[str] = set()
    read: Counter[str] = Counter()
    batches: set[int] = set()
    with Killing("tests.memory.distill_worker") as killing:
        for batch in killing.rounds(KILLS):
            lines = killing.round(
                path=str(path), batch=batch, after=chance.randint(1, 3), later_s=chance.uniform(0, 0.05)
            )
            for line in lines:
                match line:
                    case ["said", int(number)]:
                        batches.add(number)
                    case ["window", [*sessions], [*ids]]:
                        told.update(ids)
                        read.update(sessions)
                    case _:
                        raise AssertionError(line)
    async with Database.open(path) as database, Memory.open(database, embedder="none") as memory:
        kept = {record.id for record in await memory.list(kind="fact", limit=10_000)}
        assert told <= kept
        # Each conversation is short, and read once.
        assert set(read.values()) == {1}
        await memory.distill(model=ScriptedModel(reply))
        contents = sorted(record.content for record in await memory.list(kind="fact", limit=10_000))
        assert contents == sorted(
            f"The number {batch}x{turn} was drawn." for batch in batches for turn in range(EPISODES)
        )
        assert (await memory.distill_status()).pending == 0
        assert (await database.doctor()).problems == ()
