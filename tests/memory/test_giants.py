"""Memories of sizes and characters that nobody writes by hand."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from satchel.memory import Episode, Memory
from satchel.memory.text import framing
from satchel.models.embedding import HashingEmbedder
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

FACT = "My sister Mara is allergic to shellfish."
QUESTION = "Is my sister Mara allergic to shellfish?"


def giant(chars: int, *, end: str = "") -> str:
    filler = " ".join(f"word{n % 5000} garden{n % 37}." for n in range(chars // 18))
    return f"{FACT} {filler}"[: chars - len(end)] + end


@requirement("memory:surface:giant")
async def test_surfacing_a_giant_memory_reads_a_small_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    quoted, lengths = framing.quoted, []

    def counted(text: str) -> str:
        lengths.append(len(text))
        return quoted(text)

    monkeypatch.setattr(framing, "quoted", counted)
    async with Memory.open(":memory:", embedder="none", redact=False) as memory:
        id = await memory.add(giant(300_000))
        for _ in range(2):
            context = await memory.surface(QUESTION)
            assert [hit.memory.id for hit in context.memories] == [id]
            assert FACT in context.text
            assert context.tokens <= 500
            await memory.edit(id, content=giant(300_000, end=" Edited."))
        assert (await memory.deep(QUESTION)).hits[0].memory.id == id
    assert max(lengths) <= 20_000


@requirement("memory:surface:long-message")
async def test_a_message_of_15_mb_does_not_hold_up_the_event_loop() -> None:
    pasted = giant(15_000_000)
    async with Memory.open(":memory:", embedder="none", redact=False) as memory:
        fact = await memory.add("Mara lives in Basel, where she teaches chemistry.")
        (copy,) = await memory.add_episodes(
            [Episode(session="s", turn=1, speaker="user", text=giant(50_000))]
        )

        async def cost(*messages: str) -> float:
            started = time.thread_time()  # Of the event loop; memory has a thread of its own.
            await memory.surface(messages)
            return time.thread_time() - started

        await cost(QUESTION)  # Everything is loaded.
        assert min([await cost(pasted, pasted) for _ in range(2)]) < 0.15  # 0.7 s where all of it is read.
        shown = await memory.surface([pasted, "Where does Mara live, and what does she teach?"])
        assert fact in {hit.memory.id for hit in shown.memories}
        # A long message is recognised by its beginning and its end.
        said = await memory.recall(giant(50_000).replace(" ", "  "))
        assert {why for hit, why in said.left_out if hit.memory.id == copy} == {"repeats what was just said"}
        edited = await memory.recall(giant(50_000, end="But not any more."))
        assert copy in {hit.memory.id for hit in edited.context.memories}


@requirement("memory:forget:giant")
async def test_a_giant_memory_is_forgotten_with_its_echoes(tmp_path: Path) -> None:
    async with Memory.open(tmp_path / "m.db", embedder="none", redact=False) as memory:
        text = giant(300_000, end=" The end.")
        first, echo, other = await memory.add_episodes(
            [
                Episode(session="s", turn=1, speaker="user", text=text, position=0),
                Episode(
                    session="s", turn=1, speaker="agent", text=f"You said: {text}", position=1, trust="agent"
                ),
                Episode(
                    session="s",
                    turn=2,
                    speaker="agent",
                    text=f"{text[:-9]} Not so.",
                    position=1,
                    trust="agent",
                ),
            ]
        )
        receipt = await memory.forget(first)
        assert receipt.echoes == (echo,)
        assert (await memory.get(echo)).content == "You said: [forgotten]"
        assert (await memory.get(other)).content.endswith("Not so.")
        await memory.forget([echo, other])
    assert all(b"garden36" not in file.read_bytes() for file in tmp_path.iterdir())


ODD = {
    "one character": "q",
    "emoji": "👩‍👩‍👧🦞🙅🏽‍♀️",
    "right to left": "אחותי מארה אלרגית לרכיכות",
    "NUL and lone surrogates": "Mara\x00 is \ud800allergic\udfff.",
    "blanks": "a" + " \u3000\n" * 2_000 + "b",
    "combining marks": "e" + "\u0301" * 3_000,
}


@requirement("memory:odd-texts")
@pytest.mark.parametrize("text", ODD.values(), ids=ODD.keys())
async def test_odd_texts_are_kept_found_shown_edited_and_forgotten(tmp_path: Path, text: str) -> None:
    async with Memory.open(tmp_path / "m.db", embedder=HashingEmbedder()) as memory:
        id = await memory.add(text, tags=[text], quote=text, session="s", turn=1)
        (episode,) = await memory.add_episodes([Episode(session="s", turn=2, speaker=text, text=text)])
        kept = (await memory.get(id)).content
        assert kept == text.replace("\x00", "\ufffd").replace("\ud800", "\ufffd").replace("\udfff", "\ufffd")
        for mode in ("hybrid", "lexical", "semantic", "keyword"):
            await memory.search(text, mode=mode)
        assert {hit.memory.id for hit in await memory.search(text, mode="semantic", threshold=0.0)} >= {id}
        await memory.surface([text, text], threshold=0.0)
        await memory.deep(text)
        await memory.edit(id, content=f"{kept} again")
        receipt = await memory.forget([id, episode])
        assert {gone.id for gone in receipt.forgotten} == {id, episode}
        assert await memory.count() == 0
    if len(text) > 3:
        assert all(kept.encode() not in file.read_bytes() for file in tmp_path.iterdir())
