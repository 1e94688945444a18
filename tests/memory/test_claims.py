"""Work that is divided between processes: each piece is done once, and that of a dead process is taken over."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest
from sqlalchemy import text

from satchel.clock import ManualClock
from satchel.memory import Episode, Memory
from satchel.memory.store.claims import Claims
from satchel.models.embedding import HashingEmbedder
from satchel.processes import machine_name
from satchel.storage import Database
from tests.forking import Program
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

MEMORIES = 200
SESSIONS = 6

# Each worker says that it is ready, waits for a line, and says what its embedder or its model was given.
EMBEDDING = """
import sys, anyio
from satchel.memory import Memory
from satchel.models.embedding import HashingEmbedder

class Telling(HashingEmbedder):
    async def embed(self, texts, role):
        if role == "document":
            print(*texts, sep="\\n", flush=True)
        await anyio.sleep(0.05)
        return await super().embed(texts, role)

async def main():
    async with Memory.open(sys.argv[1], embedder=Telling(), back_fill=False) as memory:
        print("ready", flush=True)
        sys.stdin.readline()
        await memory.embed_pending()

anyio.run(main)
"""
DISTILLING = """
import json, re, sys, anyio
from satchel.memory import Memory
from satchel.models import FunctionModel

async def answer(request):
    print(*re.findall(r"drawn (\\d+)", request.messages[0].text), sep="\\n", flush=True)
    await anyio.sleep(0.05)
    return json.dumps({"facts": []})

async def main():
    async with Memory.open(sys.argv[1], embedder="none") as memory:
        print("ready", flush=True)
        sys.stdin.readline()
        await memory.distill(model=FunctionModel(answer))

anyio.run(main)
"""


def start(program: str, path: Path) -> Program:
    worker = Program("-c", program, path)
    assert worker.stdout.readline() == "ready\n"
    return worker


def go(worker: Program) -> None:
    worker.stdin.write("go\n")
    worker.stdin.flush()


def told_by_two(program: str, path: Path) -> Counter[str]:
    """What two workers that began at the same time say, and how often."""
    workers = [start(program, path) for _ in range(2)]
    for worker in workers:
        go(worker)
    told = Counter(line for worker in workers for line in worker.communicate(timeout=120)[0].splitlines())
    assert [worker.wait() for worker in workers] == [0, 0]
    return told


@requirement("memory:claims:once")
async def test_two_processes_that_embed_at_the_same_time_embed_each_memory_once(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    async with Memory.open(path, embedder="none") as memory:
        for number in range(MEMORIES):
            await memory.add(f"boat {number}")
    assert told_by_two(EMBEDDING, path) == {f"boat {number}": 1 for number in range(MEMORIES)}
    async with Memory.open(path, embedder=HashingEmbedder(), back_fill=False) as memory:
        assert (await memory.check()).vectors_missing == 0


@requirement("memory:claims:once")
async def test_two_processes_that_distil_at_the_same_time_read_each_conversation_once(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    async with Memory.open(path, embedder="none") as memory:
        await memory.add_episodes(
            Episode(
                session=f"s{number}",
                turn=1,
                speaker="user",
                text=f"We have drawn {number} today.",
                said_at=datetime(2026, 5, 6 + number // 2, tzinfo=UTC),
            )
            for number in range(SESSIONS)
        )
    assert told_by_two(DISTILLING, path) == {str(number): 1 for number in range(SESSIONS)}
    async with Memory.open(path, embedder="none") as memory:
        assert (await memory.distill_status()).pending == 0


@requirement("memory:claims:once")
async def test_what_a_killed_process_was_embedding_is_embedded_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    async with Memory.open(path, embedder="none") as memory:
        for number in range(20):
            await memory.add(f"boat {number}")
    # Not forked: it is over then, and keeps its number, because nobody has asked for its status.
    command = [sys.executable, "-c", EMBEDDING.replace("sleep(0.05)", "sleep(3600)"), str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(b"go\n")
        worker.stdin.flush()
        assert worker.stdout.readline() == b"ready\n"
        assert worker.stdout.readline().startswith(
            b"boat"
        )  # It has claimed them, and waits for its embedder.
        worker.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)
        async with Memory.open(path, embedder=HashingEmbedder(), back_fill=False) as memory:
            assert await memory.embed_pending() == 20


async def rows(database: Database) -> int:
    return int(
        await database.read(
            lambda connection: connection.execute(text("SELECT count(*) FROM memory_claims")).scalar_one()
        )
    )


async def taken(claims: Claims) -> tuple[str, ...]:
    """Which of two pieces can be taken."""
    async with claims.take(
        "digging", lambda _, held: [piece for piece in ("a", "b") if piece not in held], name=str
    ) as found:
        return tuple(found)


@requirement("memory:claims:once")
async def test_a_claim_from_another_machine_holds_until_its_lease_ends_or_the_clock_goes_back() -> None:
    now = datetime(2026, 11, 22, tzinfo=UTC)
    clock = ManualClock(now)
    async with Database.open(":memory:", clock=clock) as database:
        claims = Claims(database, clock)
        until = int((now + timedelta(seconds=30)).timestamp() * 1_000_000)
        claim = text("INSERT INTO memory_claims VALUES ('digging', 'a', 'elsewhere pid:[1] 1 x', :until)")
        await database.write(lambda connection: connection.execute(claim, {"until": until}))
        assert await taken(claims) == ("b",)
        assert await claims.is_held("digging")
        clock.advance(31)
        assert await taken(claims) == ("a", "b")
        assert await rows(database) == 0
        await database.write(lambda connection: connection.execute(claim, {"until": until + 10**15}))
        assert await taken(claims) == ("a", "b")


@requirement("memory:claims:once")
async def test_a_claim_in_a_file_from_before_the_machine_was_started_anew_ends_at_once() -> None:
    now = datetime(2026, 11, 22, tzinfo=UTC)
    boot, _, rest = machine_name().partition(".")
    async with Database.open(":memory:", clock=ManualClock(now)) as database:
        until = int((now + timedelta(seconds=30)).timestamp() * 1_000_000)
        claim = "INSERT INTO memory_claims VALUES ('digging', 'a', :owner, :until)"
        # A container of the same start is none that has ended, nor is a machine that is known by its name alone.
        for place, found in (
            (f"{boot[::-1]}.{rest}", ("a", "b")),
            (f"{boot}.1", ("b",)),
            ("laptop.local", ("b",)),
        ):
            row = {"owner": f"{place} 1 x", "until": until}
            await database.write(lambda connection, row=row: connection.execute(text(claim), row))  # type: ignore[misc]
            assert await taken(Claims(database, database.clock)) == found
            await database.write(lambda connection: connection.execute(text("DELETE FROM memory_claims")))


@requirement("memory:claims:once")
async def test_a_claim_ends_with_its_block_also_where_that_fails() -> None:
    async with Database.open(":memory:") as database:
        claims = Claims(database, database.clock)

        async def dig() -> None:
            async with claims.take("digging", lambda _, held: ["a"], name=str):
                assert await rows(database) == 1
                raise ValueError

        with pytest.raises(ValueError, match=r"^$"):
            await dig()
        assert await rows(database) == 0


@requirement("memory:reads:no-writes")
async def test_searching_and_surfacing_go_on_while_another_process_locks_the_database(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    async with (
        Database.open(path, lock_timeout_s=0.1) as database,
        Memory.open(database, embedder=HashingEmbedder(), back_fill=False) as memory,
    ):
        old = await memory.add("The router upstairs is called Dorothea.")
        assert [hit.memory.id for hit in await memory.search("router")] == [old]
        await memory.surface("What is the router upstairs called?")
        new = await memory.add("The router downstairs is called Blanche.")
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with anyio.fail_after(120):
                hits = await memory.search("Which router is called Blanche?")
                shown = await memory.surface("What is the router upstairs called?")
            other.execute("ROLLBACK")
        assert {hit.memory.id for hit in hits} == {old, new}
        assert old in {hit.memory.id for hit in shown.memories}
        assert (await memory.search("Blanche"))[0].signals["dense"] is not None
