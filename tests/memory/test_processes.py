"""Real processes that write to one store at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from satchel.memory import Memory
from satchel.models.embedding import HashingEmbedder
from tests.forking import Program
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

# Stores episodes, embeds and forgets some, and says on its output what was acknowledged.
WRITER = """
import sys, anyio
from satchel.memory import Episode, Memory
from satchel.models.embedding import HashingEmbedder

async def main(path, name, count):
    async with Memory.open(path, embedder=HashingEmbedder(), back_fill=False) as memory:
        for turn in range(count):
            ids = await memory.add_episodes(
                [Episode(session=name, turn=turn, speaker=who, text=f"{name} {turn} {who} " + "word " * 50)
                 for who in ("user", "assistant")])
            print("kept", *ids, flush=True)
            if turn % 5 == 0:
                await memory.search(f"{name} {turn}")
            if turn % 7 == 0:
                receipt = await memory.forget(ids[1])
                print("gone", *[gone.id for gone in receipt.forgotten], flush=True)

anyio.run(main, sys.argv[1], sys.argv[2], int(sys.argv[3]))
"""


def acknowledged(lines: list[str]) -> set[str]:
    """The ids that were kept and not forgotten."""
    found: dict[str, set[str]] = {"kept": set(), "gone": set()}
    for line in lines:
        word, *ids = line.split()
        found[word].update(ids)
    return found["kept"] - found["gone"]


@requirement("memory:two-processes")
async def test_two_processes_store_at_once_and_both_find_everything(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    writers = [Program("-c", WRITER, path, name, 40) for name in ("left", "right")]
    kept: set[str] = set()
    for writer in writers:
        output, _ = writer.communicate(timeout=280)
        assert writer.wait() == 0
        kept |= acknowledged(output.splitlines())
    async with Memory.open(path, embedder=HashingEmbedder(), back_fill=False) as memory:
        assert {found.id for found in await memory.list(limit=1000)} == kept
        assert {hit.memory.id for hit in await memory.search("word", limit=1000)} == kept
    assert len(kept) == 160 - 12
