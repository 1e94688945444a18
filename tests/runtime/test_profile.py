"""Profile and agenda stand before the model in every session, and keep their bytes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from satchel.clock import ManualClock
from satchel.memory import Episode
from satchel.messages import TextBlock
from satchel.models import ModelRequest, Reply, ScriptedModel
from satchel.models.embedding import HashingEmbedder
from satchel.runtime import Satchel
from satchel.runtime.commands import CommandContext, find_command, run_command
from tests.requirements import requirement
from tests.runtime.world import logged, settings_in

pytestmark = pytest.mark.anyio

SUNDAY = datetime(2026, 11, 22, 20, tzinfo=UTC)


@asynccontextmanager
async def opened(
    folder: Path, model: ScriptedModel, *, clock: ManualClock | None = None, **overrides: Any
) -> AsyncIterator[Satchel]:
    async with Satchel.open(
        settings_in(folder, **overrides), model=model, embedder=HashingEmbedder(), clock=clock
    ) as satchel:
        yield satchel


def memory_blocks(request: ModelRequest, at: int = 0) -> list[str]:
    return [b.text for b in request.messages[at].blocks if isinstance(b, TextBlock) and b.origin == "memory"]


async def told(satchel: Satchel, *texts: str, at: datetime = SUNDAY) -> None:
    assert satchel.memory is not None
    await satchel.memory.add_episodes(
        Episode(session="before", turn=number, speaker="user", text=text, said_at=at)
        for number, text in enumerate(texts, start=1)
    )


LIFE = (
    "I'm allergic to shellfish, since I was a child.",
    "I live in Leeds with my two kids.",
    "Please always write to me in short bullet points, I read on my break.",
    "Dentist on Thursday at ten.",
)


@requirement("memory:profile:place", "memory:agenda:place")
@pytest.mark.parametrize(
    ("asked", "needed"),
    [
        ("Can I have the lobster roll?", "allergic to shellfish"),
        ("What's the weather tomorrow?", "I live in Leeds"),
        ("Write the invitation to the barbecue.", "short bullet points"),
        ("Am I free on Thursday morning?", "Thu 2026-11-26"),
    ],
)
async def test_a_request_that_does_not_mention_its_need_is_answered_with_it_before_the_model(
    tmp_path: Path, asked: str, needed: str
) -> None:
    model = ScriptedModel(["Done."])
    async with opened(tmp_path, model, clock=ManualClock(at=SUNDAY + timedelta(hours=12))) as satchel:
        await told(satchel, *LIFE)
        await (await satchel.session()).run_turn(asked)
    assert needed in "\n".join(memory_blocks(model.requests[0]))


@requirement("memory:profile:stable", "memory:agenda:fresh")
async def test_they_keep_their_bytes_and_a_new_day_brings_a_new_agenda_at_the_tail(tmp_path: Path) -> None:
    model = ScriptedModel(["One.", "Two.", "Three.", "Four.", "Five."])
    clock = ManualClock(at=SUNDAY + timedelta(hours=3))
    async with opened(tmp_path, model, clock=clock) as satchel:
        await told(satchel, *LIFE)
        session = await satchel.session()
        await session.run_turn("Hello")
        assert satchel.memory is not None
        await satchel.memory.add("The user is called Bee.", importance=5)
        await session.run_turn("And?")
        first = memory_blocks(model.requests[0])
        assert [block.split("\n")[0] for block in first] == ["<satchel-profile>", "<satchel-agenda>"]
        assert model.requests[1].messages[0] == model.requests[0].messages[0]
        assert memory_blocks(model.requests[1], 2) == []
        clock.advance(2 * 3600)  # past midnight
        await session.run_turn("Still there?")
        (fresh,) = memory_blocks(model.requests[2], 4)
        assert "seen from Mon 2026-11-23" in fresh
        assert "Thu 2026-11-26" in fresh
        assert model.requests[2].messages[0] == model.requests[0].messages[0]
        # In a zone that is a day behind it is Sunday again.
        clock.at = clock.at.astimezone(timezone(timedelta(hours=-9)))
        await session.run_turn("Landed.")
        assert "seen from Sun 2026-11-22" in memory_blocks(model.requests[3], 6)[0]
    async with opened(tmp_path, model, clock=clock) as satchel:
        assert satchel.memory is not None
        await satchel.memory.add("The user sees the optician on 2026-11-24.", said_at=SUNDAY)
        resumed = await satchel.session(session.id)
        await resumed.run_turn("Back.")
    assert model.requests[4].messages[:7] == model.requests[3].messages
    (resumed_agenda,) = memory_blocks(model.requests[4], 8)
    assert "optician" in resumed_agenda


@requirement("memory:profile:said-here")
async def test_a_first_conversation_that_is_resumed_gets_no_profile_of_its_own_words(tmp_path: Path) -> None:
    model = ScriptedModel(["One.", "Two.", "Three."])
    async with opened(tmp_path, model, clock=ManualClock(at=SUNDAY)) as satchel:
        session = await satchel.session()
        await session.run_turn(LIFE[0])
    async with opened(tmp_path, model, clock=ManualClock(at=SUNDAY)) as satchel:
        await (await satchel.session(session.id)).run_turn("What can I eat?")
        assert "shellfish" not in str(memory_blocks(model.requests[1], 2))
        await (await satchel.session()).run_turn("What can I eat?")
        assert "shellfish" in str(memory_blocks(model.requests[2]))


@requirement("memory:profile:compacted")
async def test_a_compaction_brings_the_lines_that_a_resumed_conversations_profile_left_out_and_only_once(
    tmp_path: Path,
) -> None:
    model = ScriptedModel(lambda _: Reply(text="They talked about the garden."))
    async with opened(tmp_path, model, clock=ManualClock(at=SUNDAY)) as satchel:
        session = await satchel.session()
        for text in (LIFE[0], *[f"Bed {n} of the garden: " + "the soil is dry. " * 99 for n in range(8)]):
            await session.run_turn(text)
        await (await satchel.session()).run_turn(LIFE[1])
    profiles = []
    for compacts, text in (
        (True, "Next, the pond."),
        (False, "I'm a vegetarian."),
        (False, "Suggest a dinner."),
    ):
        async with opened(tmp_path, model, clock=ManualClock(at=SUNDAY)) as satchel:
            resumed = await satchel.session(session.id)
            await resumed.run_turn(text)
            profiles.append(str(model.requests[-1].messages))
            if compacts:
                assert await resumed.compact() is not None
            else:
                await (await satchel.session()).run_turn("My sister is called Anna.")
    assert ["Leeds" in one for one in profiles] == [True] * 3
    assert ["since I was a child" in one for one in profiles] == [True] * 3
    assert [one.count("<satchel-profile>") for one in profiles] == [1, 2, 2]


@requirement("memory:agenda:said-here")
async def test_what_was_said_in_a_conversation_today_stands_in_its_agenda_from_the_next_day_on(
    tmp_path: Path,
) -> None:
    model = ScriptedModel(["One.", "Two.", "Three.", "Four."])
    clock = ManualClock(at=SUNDAY)
    async with opened(tmp_path, model, clock=clock) as satchel:
        await told(satchel, "Dentist on Thursday at ten.")
        session = await satchel.session()
        await session.run_turn("I fetch the boat on Tuesday at 8:00.")
    async with opened(tmp_path, model, clock=clock) as satchel:
        await (await satchel.session(session.id)).run_turn("What am I forgetting?")
        assert memory_blocks(model.requests[1], 2) == []
        await (await satchel.session()).run_turn("Hello.")
        assert "boat" in str(memory_blocks(model.requests[2]))
        clock.advance(24 * 3600)
        await (await satchel.session(session.id)).run_turn("Good evening.")
        assert "boat" in str(memory_blocks(model.requests[3], 4))


@requirement("memory:profile:corrected")
async def test_what_supersedes_a_line_of_an_open_sessions_profile_comes_once_with_the_next_message(
    tmp_path: Path,
) -> None:
    model = ScriptedModel(["One.", "Two.", "Three.", "Four."])
    async with opened(tmp_path, model, clock=ManualClock(at=SUNDAY + timedelta(hours=12))) as satchel:
        memory = satchel.memory
        assert memory is not None
        old = await memory.add("The user lives in Leeds.", importance=5, said_at=SUNDAY - timedelta(days=30))
        session = await satchel.session()
        await session.run_turn("Hello")
        assert "lives in Leeds" in "\n".join(memory_blocks(model.requests[0]))
        first = model.requests[0].messages[0]
        middle = await memory.add("The user lives in Hull.", said_at=SUNDAY)
        await memory.supersede(old, middle)
        newest = await memory.add("The user lives in York.", said_at=SUNDAY + timedelta(hours=1))
        await memory.supersede(middle, newest)
        await session.run_turn("Thanks!")
        (line,) = memory_blocks(model.requests[1], 2)
        assert "The user lives in York." in line
        assert "Hull" not in line
        await session.run_turn("Thanks again!")
        assert memory_blocks(model.requests[2], 4) == []
        # What was said in this very session stands before the model anyway.
        said_here = await memory.add(
            "The user lives in Whitby.", session=session.id, turn=4, said_at=SUNDAY + timedelta(hours=2)
        )
        await memory.supersede(newest, said_here)
        await session.run_turn("Good.")
        assert memory_blocks(model.requests[3], 6) == []
        assert model.requests[3].messages[0] == first


@requirement("memory:profile:forgotten")
async def test_forgetting_takes_the_words_out_of_profile_and_agenda_in_open_sessions_and_logs(
    tmp_path: Path,
) -> None:
    model = ScriptedModel(["One.", "Two."])
    said = (
        "The hall light is broken again. I'm allergic to shellfish. Dentist in Horsforth on Thursday at ten."
    )
    async with opened(tmp_path, model, clock=ManualClock(at=SUNDAY + timedelta(hours=12))) as satchel:
        await told(satchel, said)
        session = await satchel.session()
        await session.run_turn("Hello")
        shown = "\n".join(memory_blocks(model.requests[0]))
        assert "allergic to shellfish" in shown
        assert "Horsforth" in shown
        assert satchel.memory is not None
        (record,) = [memory for memory in await satchel.memory.list() if memory.content == said]
        await satchel.forget([record.id])
        await session.run_turn("And now?")
        log = logged(session).read_text()
    for text in (*memory_blocks(model.requests[1]), log):
        assert "shellfish" not in text
        assert "Horsforth" not in text
    assert "[forgotten]" in "\n".join(memory_blocks(model.requests[1]))


@requirement("memory:profile:once")
async def test_what_stands_in_the_profile_is_not_shown_again_and_still_named_as_what_bears_on_the_message(
    tmp_path: Path,
) -> None:
    model = ScriptedModel(["Noted.", "Shellfish."])
    async with opened(tmp_path, model) as satchel:
        await (await satchel.session()).run_turn("My sister Mara is allergic to shellfish.")
        turn = await (await satchel.session()).run_turn("What is my sister Mara allergic to?")
    (block,) = memory_blocks(model.requests[1])
    assert block.startswith("<satchel-profile>")
    assert [memory.content for memory in turn.memory] == ["My sister Mara is allergic to shellfish."]


@requirement("memory:profile:off")
async def test_both_can_be_turned_off_and_a_message_without_memory_has_neither(tmp_path: Path) -> None:
    model = ScriptedModel(["One.", "Two.", "Three."])
    clock = ManualClock(at=SUNDAY + timedelta(hours=12))
    async with opened(
        tmp_path, model, clock=clock, memory__profile_tokens=0, memory__agenda_tokens=0
    ) as satchel:
        await told(satchel, *LIFE)
        await (await satchel.session()).run_turn("Hello")
    async with opened(tmp_path, model, clock=clock) as satchel:
        session = await satchel.session()
        await session.run_turn("Hello", memory=False)
        await session.run_turn("Hello again")
    assert memory_blocks(model.requests[0]) == []
    assert memory_blocks(model.requests[1]) == []
    assert len(memory_blocks(model.requests[2], 2)) == 2


@requirement("memory:profile:commands")
async def test_slash_commands_show_both_and_pin(tmp_path: Path) -> None:
    async with opened(
        tmp_path, ScriptedModel([]), clock=ManualClock(at=SUNDAY + timedelta(hours=12))
    ) as satchel:
        await told(satchel, *LIFE)
        assert satchel.memory is not None
        fern = await satchel.memory.add("The spare key is under the fern.", importance=1)
        context = CommandContext(
            satchel=satchel, session=await satchel.session(), show=lambda _: None, tell=lambda _: None
        )

        async def run(line: str) -> str:
            found = find_command(line)
            assert found is not None
            return "\n".join(shown.text for shown in (await run_command(context, *found)).lines)

        await run(f"/pin {fern}")
        profile = await run("/profile")
        assert f"{fern}  The spare key is under the fern.  (more; pinned;" in profile
        assert "of 900 tokens" in profile
        assert "Thu 2026-11-26" in await run("/agenda")
        await run(f"/unpin {fern}")
        assert "pinned" not in (await run("/profile")).split("\n")[0]
