"""Real processes on one store: killed in the middle of writing, and writing at once."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from satchel.memory import Memory
from satchel.models.embedding import HashingEmbedder
from satchel.storage import Database
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

# Stores episodes for ever, embeds and forgets some, and says on its output what was acknowledged and what it forgets next.
WRITER = """
import sys, anyio
from satchel.memory import Episode, Memory
from satchel.models.embedding import HashingEmbedder

async def main(path, name, start, count):
    async with Memory.open(path, embedder=HashingEmbedder(), back_fill=False) as memory:
        for turn in range(start, start + count):
            ids = await memory.add_episodes(
                [Episode(session=name, turn=turn, speaker=who, text=f"{name} {turn} {who} " + "word " * 50)
                 for who in ("user", "assistant")])
            print("kept", *ids, flush=True)
            if turn % 5 == 0:
                await memory.search(f"{name} {turn}")
            if turn % 7 == 0:
                print("going", ids[1], flush=True)
                receipt = await memory.forget(ids[1])
                print("gone", *[gone.id for gone in receipt.forgotten], flush=True)

anyio.run(main, sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
"""


def start(path: Path, name: str, first: int, count: int = 1_000_000) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(path), name, str(first), str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def acknowledged(lines: list[str]) -> tuple[set[str], set[str], set[str]]:
    """The ids that were kept, those of them that were forgotten, and the one that was about to be, if any."""
    found: dict[str, set[str]] = {"kept": set(), "gone": set(), "going": set()}
    for line in lines:
        word, *ids = line.split()
        found[word].update(ids)
    return found["kept"] - found["gone"], found["gone"], found["going"] - found["gone"]


@requirement("promise:durable:kill")
async def test_what_was_acknowledged_before_kill_9_is_there_and_what_was_forgotten_is_not(
    tmp_path: Path,
) -> None:
    path = tmp_path / "m.db"
    kept: set[str] = set()
    gone: set[str] = set()
    for round in range(6):
        writer = start(path, "s", round * 100_000)
        assert writer.stdout is not None
        # The kill falls into another step of the work each time.
        lines = [writer.stdout.readline() for _ in range(3 + 11 * round)]
        writer.send_signal(signal.SIGKILL)
        lines += writer.stdout.readlines()
        assert writer.wait(timeout=280) == -signal.SIGKILL
        writer.stdout.close()
        now_kept, now_gone, going = acknowledged([line for line in lines if line.endswith("\n")])
        kept |= now_kept
        gone |= now_gone
        async with Database.open(path) as database:
            assert (await database.doctor()).problems == ()
            async with Memory.open(database, embedder=HashingEmbedder(), back_fill=False) as memory:
                there = {found.id for found in await memory.list(limit=100_000)}
                # Nothing is lost but what was being forgotten: that may have happened without being told.
                assert kept - there <= going
                assert not gone & there
                await memory.search("word", limit=3)
                stats = await memory.stats()
                assert stats.embedded == stats.memories
                kept = there
    assert len(kept) > 50


@requirement("memory:two-processes")
async def test_two_processes_store_at_once_and_both_find_everything(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    writers = [start(path, name, 0, 40) for name in ("left", "right")]
    kept: set[str] = set()
    for writer in writers:
        output, _ = writer.communicate(timeout=90)
        assert writer.returncode == 0
        kept |= acknowledged(output.splitlines())[0]
    async with Memory.open(path, embedder=HashingEmbedder(), back_fill=False) as memory:
        assert {found.id for found in await memory.list(limit=1000)} == kept
        assert {hit.memory.id for hit in await memory.search("word", limit=1000)} == kept
    assert len(kept) == 160 - 12
