"""Turns of a conversation are found by what stands around them, however they were stored."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from satchel.clock import ManualClock
from satchel.memory import Episode, Memory
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

WHEN = datetime(2026, 3, 4, 18, 30, tzinfo=UTC)
TALK = [
    ("Ann", "Hello again, it has been a while."),
    ("Bo", "Hi! Which restaurant did your parents choose for the anniversary?"),
    ("Ann", "The old mill by the river, since they met there."),
    ("Bo", "Lovely. Did the children enjoy it?"),
    ("Ann", "They fed the ducks the whole time."),
]
ANSWER = "The old mill by the river, since they met there."
QUESTION = "Which restaurant for the anniversary?"


async def lexical(memory: Memory, query: str = QUESTION) -> dict[str, float]:
    """What is found by words, with those of the turns beside it, and the score of each."""
    return {hit.memory.content: hit.score for hit in await memory.search(query, mode="lexical")}


@requirement("memory:search:conversation")
async def test_turns_stored_one_by_one_are_found_as_episodes_are() -> None:
    clock = ManualClock(at=WHEN + timedelta(days=1))
    async with Memory.open(":memory:", embedder="none", clock=clock) as memory:
        await memory.add_episodes(
            Episode(session="s", turn=turn, speaker=speaker, text=text, said_at=WHEN)
            for turn, (speaker, text) in enumerate(TALK)
        )
        expected = await lexical(memory)
    assert ANSWER in expected  # It has no word of the question; the turn before it has.

    for fields in ({"speaker": True}, {"speaker": True, "session": "s"}, {"speaker": True, "turn": True}):
        async with Memory.open(":memory:", embedder="none", clock=clock) as memory:
            for turn, (speaker, text) in enumerate(TALK):
                await memory.add(
                    text,
                    said_at=WHEN + timedelta(seconds=turn),
                    speaker=speaker,
                    session="s" if "session" in fields or "turn" in fields else None,
                    turn=turn if "turn" in fields else None,
                )
            assert await lexical(memory) == expected


@requirement("memory:search:conversation")
@pytest.mark.parametrize("line", ["{0}: {1}", "[2026-03-04 18:30] {0}: {1}"])
async def test_lines_of_a_transcript_are_a_conversation(line: str) -> None:
    async with Memory.open(":memory:", embedder="none") as memory:
        for speaker, text in TALK:
            await memory.add(line.format(speaker, text), said_at=WHEN)
        assert line.format("Ann", ANSWER) in await lexical(memory)


@requirement("memory:search:conversation")
async def test_facts_stored_together_have_no_context() -> None:
    texts = ["Restaurant: the anniversary is at the old mill", "Budget: forty each", "Driver: Carl, at nine"]
    async with Memory.open(":memory:", embedder="none") as memory:
        for text in texts:
            await memory.add(text, said_at=WHEN)
        assert list(await lexical(memory)) == texts[:1]
    # One person's notes are none either, nor is what was drawn from a conversation.
    drawn: dict[str, Any] = {"speaker": "Bo", "session": "s", "turn": 1, "quote": "at nine"}
    cases: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({}, {"speaker": "Ann"}),
        ({"session": "s", "turn": 1}, drawn),
    ]
    for first, fields in cases:
        async with Memory.open(":memory:", embedder="none") as memory:
            await memory.add(
                "We choose a restaurant for the anniversary.", speaker="Ann", said_at=WHEN, **first
            )
            for text in ("Carl drives at nine.", "It may snow.", "Carl takes the van."):
                await memory.add(text, said_at=WHEN, **fields)
            assert len(await lexical(memory)) == 1


@requirement("memory:search:conversation")
async def test_what_is_said_after_a_pause_is_another_sitting() -> None:
    said = [
        Episode(session="s", turn=1, speaker="Ann", text="Is the restaurant booked?", said_at=WHEN),
        # An answer belongs to its question, however long it takes.
        Episode(
            session="s", turn=1, speaker="Bo", text="For eight people.", said_at=WHEN + timedelta(hours=9)
        ),
        Episode(session="s", turn=2, speaker="Ann", text="It snows.", said_at=WHEN + timedelta(days=2)),
    ]
    async with Memory.open(":memory:", embedder="none") as memory:
        await memory.add_episodes(said)
        assert set(await lexical(memory, "restaurant")) == {"Is the restaurant booked?", "For eight people."}
    # The same words on one evening are one conversation.
    async with Memory.open(":memory:", embedder="none") as memory:
        await memory.add_episodes(
            [
                Episode(session="s", turn=1, speaker="Bo", text="For eight people.", said_at=WHEN),
                Episode(session="s", turn=2, speaker="Ann", text="Restaurant booked?", said_at=WHEN),
                Episode(session="s", turn=3, speaker="Bo", text="It snows.", said_at=WHEN),
            ]
        )
        assert len(await lexical(memory, "restaurant")) == 3
