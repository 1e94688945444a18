"""Nobody waits for vectors: after an import, words find what was not embedded yet."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import Connection

from satchel.clock import ManualClock
from satchel.memory import Memory
from satchel.memory.find.candidates import vector_rows
from satchel.memory.find.candidates.vector_rows import Vectorless
from satchel.models.embedding import HashingEmbedder
from satchel.models.port import EmbedRole, Vectors
from tests.requirements import requirement

pytestmark = pytest.mark.anyio


class SlowEmbedder(HashingEmbedder):
    """Takes a fiftieth of a second for each text."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self._clock = clock

    async def embed(self, texts: Sequence[str], role: EmbedRole) -> Vectors:
        self._clock.advance(0.02 * len(texts))
        return await super().embed(texts, role)


@requirement("memory:search:no-waiting")
async def test_after_an_import_a_search_and_a_turn_take_no_longer_and_words_find_the_rest() -> None:
    clock = ManualClock(datetime(2026, 4, 1, 12, tzinfo=UTC))
    async with Memory.open(
        ":memory:", embedder=SlowEmbedder(clock), clock=clock, embed_within_s=0.1, back_fill=False
    ) as memory:
        await memory.add("The okapi Rosalind lives in the stable behind the mill")
        for number in range(199):
            await memory.add(f"The quagga number {number} lives in stable {number * 7}")
        await memory.surface("hello there")  # The embedder's own examples are embedded once.
        for look in (memory.search, memory.surface):
            begun, embedded = clock.elapsed_s, (await memory.stats()).embedded
            found = await look("Where does the okapi Rosalind live?")
            assert "behind the mill" in str(found)
            # The question, and a step that began in time.
            assert clock.elapsed_s - begun < 0.1 + 0.02 * (8 + 2)
            assert embedded < (await memory.stats()).embedded < 50
        assert memory.degraded is not None
        assert "found only by their words" in memory.degraded
        await memory.embed_pending()
        assert (await memory.stats()).embedded == 200
        await memory.search("okapi")
        assert memory.degraded is None


async def test_without_a_limit_of_time_a_search_has_all_vectors() -> None:
    clock = ManualClock(datetime(2026, 4, 1, 12, tzinfo=UTC))
    async with Memory.open(":memory:", embedder=SlowEmbedder(clock), clock=clock, back_fill=False) as memory:
        for number in range(200):
            await memory.add(f"The quagga number {number} lives in stable {number * 7}")
        await memory.search("quagga")
        assert (await memory.stats()).embedded == 200


@requirement("memory:search:no-waiting")
async def test_what_has_vectors_is_not_passed_again_for_each_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    costs: list[int] = []
    find = vector_rows.pending_vectors

    def counted(connection: Connection, *given: Any, **named: Any) -> list[Vectorless]:
        driver = connection.connection.driver_connection
        assert isinstance(driver, sqlite3.Connection)
        ticks: list[None] = []
        driver.set_progress_handler(lambda: ticks.append(None), 1)
        try:
            return find(connection, *given, **named)
        finally:
            driver.set_progress_handler(None, 0)
            costs.append(len(ticks))

    async with Memory.open(":memory:", embedder=HashingEmbedder(), back_fill=False) as memory:
        for number in range(640):
            await memory.add(f"The quagga number {number} lives in stable {number * 7}")
        monkeypatch.setattr(vector_rows, "pending_vectors", counted)
        assert await memory.embed_pending() == 640
    # The last two find nothing: after the tenth batch, and among what was stored meanwhile.
    assert costs[-3] < 1.2 * costs[0]
