"""An import that is killed in the middle: what it told of is there, nothing is there twice, and the next one goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from satchel.memory import Memory
from satchel.storage import Database
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

ROUNDS = 12
TURNS = 6000

# One interpreter forks the processes that are killed: starting it anew each time would take most of the test.
WORKER = """
import json, os, sys, anyio
from functools import partial
from satchel.memory import Memory

async def take_in(path, where):
    async with Memory.open(path, embedder="none") as memory:
        def told(at):
            os.write(1, json.dumps([at.new, at.known]).encode() + b"\\n")
        await memory.import_from(where, progress=told)

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        anyio.run(partial(take_in, *sys.argv[1:3]))
        os.write(1, b'["over"]\\n')
        os._exit(0)
    os.write(1, json.dumps(["pid", child]).encode() + b"\\n")
    os.waitpid(child, 0)
    os.write(1, b'["reaped"]\\n')
"""


@requirement("promise:durable:kill")
async def test_an_import_that_is_killed_again_and_again_ends_as_one_that_never_was(tmp_path: Path) -> None:
    source = tmp_path / "s.jsonl"
    with source.open("w") as file:
        for number in range(TURNS):
            message = {
                "role": "user" if number % 2 == 0 else "assistant",
                "content": f"turn {number} of the talk",
            }
            line = {"type": message["role"], "sessionId": "s", "uuid": f"u{number}", "message": message}
            file.write(json.dumps({**line, "timestamp": "2026-03-01T10:00:00Z"}) + "\n")
    path = tmp_path / "m.db"
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, str(path), str(source)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    assert worker.stdin is not None
    assert worker.stdout is not None
    stored = 0
    for round in range(ROUNDS):
        worker.stdin.write("go\n")
        child = json.loads(worker.stdout.readline())[1]
        told = 0
        said: list[object] = [0, 0]
        for _ in range(1 + round):
            said = json.loads(worker.stdout.readline())
            if said[0] in ("over", "reaped"):
                break
            told = sum(int(str(number)) for number in said)
        else:
            os.kill(child, signal.SIGKILL)
        while said[0] != "reaped":
            said = json.loads(worker.stdout.readline())
            if isinstance(said[0], int):
                told = sum(int(str(number)) for number in said)
        async with Database.open(path) as database:
            assert (await database.doctor()).problems == ()
            async with Memory.open(database, embedder="none") as memory:
                found = await memory.list(limit=10 * TURNS)
        assert len(found) >= max(told, stored)
        assert len({one.content for one in found}) == len(found)
        stored = len(found)
    worker.stdin.close()
    assert worker.wait(timeout=30) == 0
    worker.stdout.close()
    async with Memory.open(path, embedder="none") as memory:
        report = await memory.import_from(source)
        assert report.new + report.known == TURNS
        assert (await memory.check()).problems == ()
        assert sorted(one.content for one in await memory.list(limit=10 * TURNS)) == sorted(
            f"turn {number} of the talk" for number in range(TURNS)
        )
