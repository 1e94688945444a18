from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from satchel.clock import ManualClock
from satchel.memory import Episode, Memory
from satchel.models.embedding import HashingEmbedder
from satchel.models.port import EmbedderInfo, EmbedRole, TokenVectors, Vectors
from tests.memory.embedders import Wordy, tokens_of
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Angles(HashingEmbedder):
    """Gives "0.6" the vector that has this cosine with every question."""

    @property
    def info(self) -> EmbedderInfo:
        return EmbedderInfo(id="angles", dimension=2, max_tokens=100, threshold=0.5)

    async def embed(self, texts: Sequence[str], role: EmbedRole) -> Vectors:
        cosines = [1.0 if role == "query" else float(text.split()[0]) for text in texts]
        return np.array([[cosine, (1 - cosine**2) ** 0.5] for cosine in cosines], dtype=np.float32)


@requirement("memory:search:semantic-mode", "memory:search:semantic-threshold")
async def test_semantic_is_cosine_times_importance_times_recency_above_a_threshold(tmp_path: Path) -> None:
    async with Memory.open(tmp_path / "m.db", embedder=Angles(), clock=ManualClock(at=NOON)) as memory:
        ids = {}
        for words, importance, days in (
            ("0.6 plain", 3, 0),
            ("0.45 at the threshold", 3, 0),
            ("0.3 critical", 5, 0),
            ("0.9 old", 3, 90),
            ("0.95 older", 3, 91),
            ("0.8 trivial", 1, 0),
            ("0.82 half-way", 3, 48.5),
        ):
            (id,) = await memory.add_episodes(
                [
                    Episode(
                        session=words, turn=1, speaker="Ann", text=words, said_at=NOON - timedelta(days=days)
                    )
                ]
            )
            await memory.edit(id, importance=importance)
            ids[words] = id
        hits = await memory.search("anything", mode="semantic")
        # Vectors are stored with eleven bits of precision.
        assert [(hit.memory.content, round(hit.score, 3)) for hit in hits] == [
            ("0.82 half-way", 0.615),
            ("0.6 plain", 0.6),
            ("0.3 critical", 0.5),
            ("0.95 older", 0.475),
        ]
        low = await memory.search("anything", mode="semantic", threshold=0.3, limit=3)
        assert len(low) == 3
        assert len(await memory.search("anything", mode="semantic", threshold=0.0)) == 7


@requirement("memory:search:keyword-mode")
async def test_keyword_adds_priority_tags_words_and_recency(tmp_path: Path) -> None:
    clock = ManualClock(at=NOON)
    async with Memory.open(tmp_path / "m.db", embedder="none", clock=clock) as memory:
        tagged = await memory.add("Shrimp makes her ill", tags=["food-allergy", "Health"], priority=0.5)
        said = await memory.add("No FOOD before noon", tier="short_term", decay_rate=0.1)
        await memory.add("The car is red", priority=1.0)
        hits = await memory.search("food and allergy", mode="keyword")
        # priority + 0.3 for each keyword in a tag + 0.2 for each in the words + 0.2 for having been stored just now
        assert [(hit.memory.id, hit.score) for hit in hits] == [(tagged, 1.3), (said, 0.95)]
        clock.advance(12 * 3600)
        hits = await memory.search("food and allergy", mode="keyword")
        assert [hit.score for hit in hits] == [1.1975, 0.8]
        await memory.note_use([said])
        clock.advance(24 * 3600)
        assert [hit.score for hit in await memory.search("food", mode="keyword")] == [0.7925, 0.65]
        assert await memory.search("the and of", mode="keyword") == ()
        assert await memory.search("food", mode="keyword", tags=["Health"]) == tuple(
            hit for hit in await memory.search("food", mode="keyword") if hit.memory.id == tagged
        )


class Beside(Wordy):
    """Gives "2.3 words" the vector that is so many deviations above the mean from the memory, by the scale of the gate;
    of words with a hyphen it knows the pieces.
    """

    scale = (0.0, 0.0)

    async def embed(self, texts: Sequence[str], role: EmbedRole) -> Vectors:
        rows = await super().embed(texts, role)
        for row, text in zip(rows, texts, strict=True):
            found = re.match(r"[\d.]+(?= )", text) if self.scale[1] else None
            if text == "Bees cluster.":
                row[:] = np.eye(1, 512, 0)
            elif found:
                cosine = self.scale[0] + float(found[0]) * self.scale[1]
                row[:] = cosine * np.eye(1, 512, 0) + (1 - cosine**2) ** 0.5 * np.eye(1, 512, 1)
        return rows

    async def embed_tokens(
        self, texts: Sequence[str], role: EmbedRole
    ) -> tuple[Vectors, Sequence[TokenVectors]]:
        rows = await self.embed(texts, role)
        return rows, [tokens_of(text.replace("xqzzt", "xq-zt")) for text in texts]


@requirement("memory:search:nothing-near")
async def test_what_nothing_has_a_word_of_must_be_near_to_be_found() -> None:
    embedder = Beside()
    async with Memory.open(":memory:", embedder=embedder, clock=ManualClock(at=NOON)) as memory:
        await memory.add("Bees cluster.")
        await memory.add("The router hums.")
        await memory.search("warm")
        dense = memory._space.dense
        assert dense is not None
        gate = await dense.gate()
        assert gate is not None
        embedder.scale = (gate.mean, gate.deviation)

        async def found(query: str) -> set[str]:
            return {
                hit.memory.content for hit in await memory.search(query, relevant_only=True, clearly=True)
            }

        assert await found("1.7 hives") == set()
        assert await found("2.3 hives") == {"Bees cluster."}
        assert await found("2.3 xqzzt") == set()
        assert await found("3.0 xqzzt") == {"Bees cluster."}
        # Where a memory has a word of it, others need not be as near.
        assert await found("1.7 router") == {"Bees cluster.", "The router hums."}
