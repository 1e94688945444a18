"""`kill -9` while the page is written, and two processes that write it: nothing is lost, nothing stands twice."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from satchel.memory import Memory
from satchel.models import ScriptedModel
from satchel.storage import Database
from tests.forking import Program
from tests.killing import Killing
from tests.memory.page_worker import FACTS
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

KILLS = 8
WRITING = """
import sys, anyio
from satchel.memory import Memory
from satchel.models import ScriptedModel

async def main():
    async with Memory.open(sys.argv[1], embedder="none", back_fill=False) as memory:
        print("ready", flush=True)
        sys.stdin.readline()
        await memory.distill(model=ScriptedModel([]))

anyio.run(main)
"""


@requirement("memory:page:crash")
async def test_kills_while_the_page_is_written_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    chance = random.Random(20261125)
    path = tmp_path / "m.db"
    batches: set[int] = set()
    newest = 0
    with Killing("tests.memory.page_worker") as killing:
        for batch in killing.rounds(KILLS):
            lines = killing.round(path=str(path), batch=batch, after=1, later_s=chance.uniform(0, 0.3))
            for line in lines:
                match line:
                    case ["stored", int(number)]:
                        batches.add(number)
                    case ["written", int(number)]:
                        assert number > newest
                        newest = number
                    case _:
                        raise AssertionError(line)
    async with Database.open(path) as database, Memory.open(database, embedder="none") as memory:
        numbers = [one.number for one in await memory.page_versions()]
        assert max(numbers, default=0) >= newest
        await memory.distill(model=ScriptedModel([]), page_tokens=100_000)
        page = await memory.page(budget_tokens=100_000)
        assert page is not None
        words = sorted(line.words for line in page.memories)
        assert words == sorted(set(words))
        wanted = {f"The number {batch}x{number} was drawn." for batch in batches for number in range(FACTS)}
        assert wanted <= set(words)
        assert (await database.doctor()).problems == ()


@requirement("memory:page:crash")
async def test_two_processes_that_write_the_page_at_the_same_time_write_one_version(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    async with Memory.open(path, embedder="none") as memory:
        await memory.add("Linh can't stand dairy.")
    workers = [Program("-c", WRITING, path) for _ in range(2)]
    for worker in workers:
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        worker.stdin.write("go\n")
        worker.stdin.flush()
    for worker in workers:
        worker.communicate(timeout=120)
    assert [worker.wait() for worker in workers] == [0, 0]
    async with Memory.open(path, embedder="none") as memory:
        assert [one.number for one in await memory.page_versions()] == [1]
