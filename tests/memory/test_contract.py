"""Memory as programs outside the project use it: what DESIGN 3.5, 5 and the seeds say, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from satchel.memory import Memory
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

MEANINGS = {"shellfish": 0, "seafood": 0, "prawns": 0, "database": 1, "sqlite": 1}


class Own:
    """What somebody writes who has read one line: embed(texts, role) gives float32 rows of unit length."""

    def embed(self, texts: Sequence[str], role: str) -> Any:
        rows = []
        for text in texts:
            row = [0.0, 0.0, 0.1]
            for word in re.findall(r"\w+", text.lower()):
                if word in MEANINGS:
                    row[MEANINGS[word]] += 1.0
            rows.append(row)
        return rows


@requirement("memory:alone", "memory:search:explains")
async def test_an_embedder_of_ones_own_finds_by_its_meanings(tmp_path: Path) -> None:
    async with Memory.open(str(tmp_path / "memory.db"), embedder=Own()) as memory:
        id = await memory.add("User is allergic to shellfish", tags=["health", "food"], tier="long_term")
        await memory.add("We chose SQLite as database.")
        hit, *_ = await memory.search("seafood", limit=10)
        assert memory.degraded is None
    assert hit.memory.id == id
    assert hit.signals["dense"] == pytest.approx(1.0, abs=0.02)
