"""`kill -9` at any moment of an import: what it told of is there, nothing is there twice, and the next one goes on."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from sqlalchemy import text

from satchel.memory import Memory
from satchel.storage import Database
from tests.killing import Killing
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

KILLS = 12
TURNS = 700
"""Of each file: two batches."""
MOST_LINES = 4
CHECKED_EACH = 4


def transcript(path: Path) -> None:
    """A conversation as another program keeps it; its session is named as its file."""
    with path.open("w") as file:
        for number in range(TURNS):
            role = "user" if number % 2 == 0 else "assistant"
            message = {"role": role, "content": f"turn {number} of the talk {path.stem}"}
            line = {"type": role, "sessionId": path.stem, "uuid": f"{path.stem}-{number}", "message": message}
            file.write(json.dumps({**line, "timestamp": "2026-03-01T10:00:00Z"}) + "\n")


async def stored(database: Database) -> dict[str, tuple[int, int]]:
    """How many memories each file has in the store, and how many different ones."""
    sql = (
        "SELECT replace(content, rtrim(content, '0123456789'), ''), count(*), count(DISTINCT content) "
        "FROM memories GROUP BY 1"
    )
    return await database.read(
        lambda connection: {row[0]: (row[1], row[2]) for row in connection.execute(text(sql))}
    )


@requirement("promise:durable:kill")
async def test_kills_of_imports_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    chance = random.Random(20261125)
    path = tmp_path / "m.db"
    told: dict[str, int] = {}
    files: list[Path] = []
    unfinished: list[Path] = []
    with Killing("tests.memory.transfer.import_worker") as killing:
        for number in killing.rounds(KILLS):
            files.append(tmp_path / f"{number}.jsonl")
            transcript(files[-1])
            unfinished = [*unfinished[-2:], files[-1]]
            lines = killing.round(
                path=str(path),
                files=[str(file) for file in unfinished],
                after=chance.randint(0, MOST_LINES),
                later_s=chance.uniform(0, 0.1),
            )
            for line in lines:
                match line:
                    case ["whole", str(name), int(count)]:
                        unfinished.remove(Path(name))
                        told[Path(name).stem] = count
                    case [str(name), int(count)]:
                        told[Path(name).stem] = count
                    case _:
                        raise AssertionError(line)
            if number % CHECKED_EACH == 0:
                async with Database.open(path) as database:
                    assert (await database.doctor()).problems == ()
                    there = await stored(database)
                assert all(there[name][0] >= count for name, count in told.items())
    async with Database.open(path) as database, Memory.open(database, embedder="none") as memory:
        there = await stored(database)
        assert all(there[name][0] >= count for name, count in told.items())
        for file in files:
            report = await memory.import_from(file)
            assert report.new + report.known == TURNS
            assert (report.new == 0) >= (told.get(file.stem) == TURNS)
        assert await stored(database) == {file.stem: (TURNS, TURNS) for file in files}
        assert (await memory.check()).problems == ()
        assert (await database.doctor()).problems == ()
