"""Vectors in the database: as they are stored, and as an older program stored them."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pytest
from alembic import command

from satchel.clock import ManualClock
from satchel.memory import Memory
from satchel.models.embedding import HashingEmbedder
from satchel.storage import migrate, sqlite
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
    engine = sqlite.make_engine(str(path), busy_timeout_ms=1000)
    with engine.connect() as connection, connection.begin():
        command.downgrade(migrate.alembic_config(connection), "0016_journal")
    engine.dispose()
    for table, stored in new.items():
        for old, now in zip(vectors(path, table), stored, strict=True):
            assert np.array_equal(np.frombuffer(old, "<f4"), np.frombuffer(now, "<f2").astype(np.float32))
    size = path.stat().st_size
    async with Memory.open(path, embedder=HashingEmbedder(), clock=clock, back_fill=False) as memory:
        assert [(hit.memory.id, hit.score) for hit in await memory.search("boat 17 dock")] == expected
    assert {table: vectors(path, table) for table in new} == new
    assert path.stat().st_size < 0.7 * size
