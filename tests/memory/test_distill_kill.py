"""`kill -9` at any moment of distilling: nothing that was told is lost, nothing is doubled, and it goes on."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from satchel.memory import Memory
from satchel.models import ScriptedModel
from satchel.storage import Database
from tests.memory.distill_worker import EPISODES, reply
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

ROUNDS = 50


@requirement("memory:distill:crash")
async def test_fifty_kills_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    chance = random.Random(20261122)
    path = tmp_path / "m.db"
    worker = subprocess.Popen(
        [sys.executable, "-m", "tests.memory.distill_worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert worker.stdin is not None
    assert worker.stdout is not None
    told: set[str] = set()
    batches: set[int] = set()
    killed = 0
    try:
        for batch in range(ROUNDS):
            print(json.dumps({"path": str(path), "batch": batch}), file=worker.stdin, flush=True)
            after, lines, pid = chance.randint(1, 8), 0, 0
            for text in worker.stdout:
                match json.loads(text):
                    case ["pid", int(pid)]:
                        continue
                    case ["reaped"]:
                        break
                    case ["said", int(number)]:
                        batches.add(number)
                    case ["window", *ids]:
                        told.update(ids)
                    case _:
                        pass
                lines += 1
                if lines == after:
                    with suppress(ProcessLookupError):  # it may just have ended
                        os.kill(pid, signal.SIGKILL)
                        killed += 1
    finally:
        worker.stdin.close()
        worker.wait()
        worker.stdout.close()
    assert killed >= ROUNDS // 2
    async with Database.open(path) as database, Memory.open(database, embedder="none") as memory:
        kept = {record.id for record in await memory.list(kind="fact", limit=10_000)}
        assert told <= kept
        await memory.distill(model=ScriptedModel(reply))
        contents = sorted(record.content for record in await memory.list(kind="fact", limit=10_000))
        assert contents == sorted(
            f"The number {batch}x{turn} was drawn." for batch in batches for turn in range(EPISODES)
        )
        assert (await memory.distill_status()).pending == 0
        assert (await database.doctor()).problems == ()
