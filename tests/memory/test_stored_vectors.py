"""Vectors in the database: as they are stored, and as an older program stored them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from satchel.clock import ManualClock
from satchel.memory import Memory
from satchel.models.embedding import HashingEmbedder
from tests.memory.older import go_back_to_0016
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

COUNT = 620
"""More than the migration converts at once."""


def vectors(path: Path, table: str) -> list[bytes]:
    with sqlite3.connect(path) as direct:
        found = [row[0] for row in direct.execute(f"SELECT vectors FROM {table} ORDER BY rid")]
    direct.close()
    return found


@requirement("storage:migrations:oldest")
async def test_vectors_of_an_older_program_are_converted_and_the_file_becomes_smaller(tmp_path: Path) -> None:
    path, clock = tmp_path / "m.db", ManualClock()
    async with Memory.open(path, embedder=HashingEmbedder(), clock=clock, back_fill=False) as memory:
        for number in range(COUNT):
            await memory.add(f"Boat {number} is in dock {number % 7}.", cues=[f"renting boat {number}"])
        await memory.embed_pending()
        expected = [(hit.memory.id, hit.score) for hit in await memory.search("boat 17 dock")]
    new = {table: vectors(path, table) for table in ("memory_vectors", "memory_cue_vectors")}
    with closing(sqlite3.connect(path)) as direct, direct:
        direct.create_function("as_float32", 1, lambda raw: np.frombuffer(raw, "<f2").astype("<f4").tobytes())
        for table in new:
            direct.execute(f"UPDATE {table} SET vectors = as_float32(vectors)")
        go_back_to_0016(direct)
    size = path.stat().st_size
    async with Memory.open(path, embedder=HashingEmbedder(), clock=clock, back_fill=False) as memory:
        assert [(hit.memory.id, hit.score) for hit in await memory.search("boat 17 dock")] == expected
    assert {table: vectors(path, table) for table in new} == new
    assert path.stat().st_size < 0.7 * size
