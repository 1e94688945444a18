"""Memory as programs outside the project use it: what DESIGN 3.5, 5 and the seeds say, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from satchel.errors import UsageError
from satchel.memory import Episode, Memory, record_to_json
from satchel.messages import Message, TextBlock
from tests.requirements import requirement

pytestmark = [pytest.mark.anyio, pytest.mark.every_database]

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


@requirement("memory:alone", "storage:postgres:contract", "memory:search:explains")
async def test_an_embedder_of_ones_own_finds_by_its_meanings(tmp_path: Path) -> None:
    async with Memory.open(str(tmp_path / "memory.db"), embedder=Own()) as memory:
        id = await memory.add("User is allergic to shellfish", tags=["health", "food"], tier="long_term")
        await memory.add("We chose SQLite as database.")
        hit, *_ = await memory.search("seafood", limit=10)
        assert memory.degraded is None
    assert hit.memory.id == id
    assert hit.signals["dense"] == pytest.approx(1.0, abs=0.02)


@requirement("memory:fields", "memory:types")
async def test_a_memory_carries_every_field_of_the_design_and_the_tiers_have_their_defaults(
    tmp_path: Path,
) -> None:
    async with Memory.open(tmp_path / "memory.db", embedder="none") as memory:
        short = await memory.get(await memory.add("Pasta for dinner", tier="short_term"))
        id = await memory.add(
            "We chose SQLite",
            tags=["work"],
            tier="long_term",
            memory_type="decision",
            importance=5,
            priority=0.9,
            decay_rate=0.01,
            speaker="Ann",
            said_at=datetime(2026, 3, 1, 18, 30, tzinfo=UTC),
            valid_from="2026-03-01",
            valid_to=date(2027, 3, 1),
            session="s1",
            turn=2,
            quote="SQLite it is",
        )
        found = record_to_json(await memory.get(id))
        for memory_type in (
            "decision",
            "insight",
            "fact",
            "preference",
            "project",
            "conversation",
            "general",
        ):
            await memory.add("x", memory_type=memory_type)
        with pytest.raises(UsageError, match="no memory type 'rumour'"):
            await memory.add("x", memory_type="rumour")  # type: ignore[arg-type]
    assert (0.5 <= short.priority <= 0.6, short.decay_rate) == (True, 0.02)
    assert {**found, "created_at": ""} == {
        "id": id,
        "content": "We chose SQLite",
        "kind": "fact",
        "tier": "long_term",
        "memory_type": "decision",
        "importance": 5,
        "priority": 0.9,
        "decay_rate": 0.01,
        "tags": ["work"],
        "speaker": "Ann",
        "said_at": "2026-03-01T18:30:00+00:00",
        "valid_from": found["valid_from"],
        "valid_to": found["valid_to"],
        "source": {"session": "s1", "turn": 2, "position": None, "quote": "SQLite it is"},
        "trust": "user",
        "created_at": "",
        "pinned": False,
        "time": None,
        "discretion": "open",
        "kept_from": "",
        "spheres": [],
        "last_accessed": None,
        "access_count": 0,
        "scope": "default",
        "user": "default",
    }
    assert [found[name][:19] for name in ("valid_from", "valid_to")] == [
        "2026-03-01T00:00:00",
        "2027-03-01T00:00:00",
    ]


@requirement("memory:surface:last-messages")
@pytest.mark.parametrize(
    "messages",
    [
        "Can Mara eat shellfish?",
        ["Can Mara eat shellfish?"],
        [{"role": "user", "content": "Can Mara eat shellfish?"}],
        [{"role": "user", "content": [{"type": "text", "text": "Can Mara eat shellfish?"}]}],
        [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Can Mara eat shellfish?"}],
        [Message(role="user", blocks=(TextBlock(text="Can Mara eat shellfish?"),))],
    ],
)
async def test_a_conversation_surfaces_in_whatever_form_it_is_held(tmp_path: Path, messages: Any) -> None:
    async with Memory.open(tmp_path / "memory.db", embedder="none") as memory:
        id = await memory.add("Mara is allergic to shellfish")
        context = await memory.surface(messages, budget_tokens=500)
        assert [hit.memory.id for hit in context.memories] == [id]
        assert "allergic to shellfish" in context.text
        assert 0 < context.tokens <= 500
        assert not await memory.surface([])


async def test_what_is_no_text_no_time_and_no_conversation_is_refused_in_words(tmp_path: Path) -> None:
    async with Memory.open(tmp_path / "memory.db", embedder="none") as memory:
        nothing: Any = None
        no_texts: list[Any] = [nothing, 5, b"bytes"]
        for content in no_texts:
            with pytest.raises(UsageError, match="Memory keeps text"):
                await memory.add(content)
        with pytest.raises(UsageError, match="Memory keeps text"):
            await memory.add_episodes([Episode(session="s", turn=1, speaker="Ann", text=nothing)])
        for said_at in ("someday", 1_780_000_000.0):
            with pytest.raises(UsageError, match="is no time; give a datetime"):
                await memory.add("x", said_at=said_at)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="give its messages, oldest first"):
            await memory.surface(nothing)
        assert await memory.count() == 0
