"""The standing page before the model in a session: its place, its bytes, what follows it, and what is forgotten."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from satchel.clock import ManualClock
from satchel.memory import Episode
from satchel.models import ScriptedModel
from satchel.runtime.commands import CommandContext, find_command, run_command
from tests.requirements import requirement
from tests.runtime.test_profile import SUNDAY, memory_blocks, opened
from tests.runtime.world import logged

pytestmark = pytest.mark.anyio


@requirement("memory:page:place")
async def test_the_page_opens_the_session_keeps_its_bytes_and_is_corrected_and_forgotten(
    tmp_path: Path,
) -> None:
    model = ScriptedModel(["One.", "Two.", "Three.", "Four.", "Five."])
    async with opened(tmp_path, model, clock=ManualClock(at=SUNDAY + timedelta(hours=12))) as satchel:
        memory = satchel.memory
        assert memory is not None
        old = await memory.add("The user lives in Leeds.", importance=5)
        shellfish = await memory.add("The user is allergic to shellfish.", importance=5)
        await memory.distill(model=ScriptedModel([]))
        session = await satchel.session()
        await session.run_turn("Hello")
        (page, *_) = memory_blocks(model.requests[0])
        assert page == (await memory.page()).text  # type: ignore[union-attr]
        assert "How to answer" not in page
        # A later version is for the next session.
        await memory.add("The user is called Bee.")
        await memory.distill(model=ScriptedModel([]))
        await session.run_turn("And?")
        assert model.requests[1].messages[0] == model.requests[0].messages[0]
        new = await memory.add("The user lives in York.", said_at=SUNDAY + timedelta(hours=11))
        await memory.supersede(old, new)
        await session.run_turn("Thanks!")
        (line,) = memory_blocks(model.requests[2], 4)
        assert "The user lives in York." in line
        await session.run_turn("Thanks again!")
        assert memory_blocks(model.requests[3], 6) == []
        await satchel.forget([shellfish])
        await session.run_turn("And now?")
        log = logged(session).read_text()
        first = "\n".join(memory_blocks(model.requests[4]))
        assert "shellfish" not in first + log
        assert "[forgotten]" in first
        assert "Leeds" in first
        other = await satchel.session()
        assert "shellfish" not in "".join(str(one.lines) for one in await memory.page_versions())
        context = CommandContext(satchel=satchel, session=other, show=lambda _: None, tell=lambda _: None)

        async def run(text: str) -> str:
            found = find_command(text)
            assert found is not None
            ran = await run_command(context, *found)
            return "\n".join(shown.text for shown in ran.lines)

        shown = await run("/page")
        assert "The user is called Bee." in shown
        assert "version 2" in shown
        assert "The user is called Bee." in await run("/profile")
        assert "The user is called Bee." not in await run("/page undo")


@requirement("memory:agenda:place")
async def test_the_agenda_of_a_session_does_not_repeat_its_page(tmp_path: Path) -> None:
    model = ScriptedModel(["One.", "Two."])
    clock = ManualClock(at=SUNDAY)
    async with opened(tmp_path, model, clock=clock) as satchel:
        memory = satchel.memory
        assert memory is not None
        text = "The dentist is on 26 November"
        said = Episode(session="s1", turn=1, speaker="user", text=text, said_at=clock.now())
        await memory.add_episodes([said])
        fact = {
            "content": text, "quote": text, "section": "running", "time": "event",
            "when": "26 November", "first": "2026-11-26", "last": "2026-11-26",
        }  # fmt: skip
        await memory.distill(model=ScriptedModel(lambda _: json.dumps({"facts": [fact], "off": []})))
        session = await satchel.session()
        await session.run_turn("Hello")
        (page,) = memory_blocks(model.requests[0])
        assert "dentist" in page
        clock.advance(86_400)
        await session.run_turn("Good morning")
        assert memory_blocks(model.requests[1], 2) == []


@requirement("memory:page:proposed")
async def test_a_page_that_waits_is_told_of_and_no_model_sees_it(tmp_path: Path) -> None:
    model = ScriptedModel(["One.", "Two."])
    clock = ManualClock(at=SUNDAY)
    async with opened(tmp_path, model, clock=clock) as satchel:
        assert satchel.memory is not None
        await satchel.memory.add("The user lives in Leeds.", importance=5)
        clock.advance(3 * 86_400)
        await satchel.memory.distill(model=ScriptedModel([]))
        session = await satchel.session()
        turn = await session.run_turn("Hello")
        assert any("/page accept" in notice for notice in turn.notices)
        assert "As of" not in "".join(memory_blocks(model.requests[0]))
        await satchel.memory.accept_page()
        await (await satchel.session()).run_turn("Hello")
        assert "As of 2026-11-25." in memory_blocks(model.requests[1])[0]


@requirement("memory:page:short")
async def test_what_a_line_leaves_out_is_shown_when_it_matters_and_forgotten_with_the_line(
    tmp_path: Path,
) -> None:
    model = ScriptedModel(["One.", "Two."])
    clock = ManualClock(at=SUNDAY + timedelta(hours=12))
    async with opened(tmp_path, model, clock=clock) as satchel:
        memory = satchel.memory
        assert memory is not None
        note = "Pancho (the user's father): lives in Telde; keeps canaries in the bathtub; born in Arucas"
        short = "Pancho (the user's father): lives in Telde …; born in Arucas"
        id = await memory.add(note)
        await memory.distill(model=ScriptedModel([]))
        await memory.add_episodes([Episode(session="s", turn=1, speaker="user", text="It rains.")])
        answer = json.dumps({"facts": [], "off": [], "short": [{"id": id, "text": short}]})
        await memory.distill(model=ScriptedModel([answer]))
        session = await satchel.session()
        await session.run_turn("What does Pancho, the user's father, keep in the bathtub?")
        page, surfaced = memory_blocks(model.requests[0])
        assert short in page
        assert note in surfaced
        await memory.restore_page(1)
        await satchel.forget([id])
        await session.run_turn("And now?")
        log = logged(session).read_text()
        for word in ("Telde", "Arucas"):
            assert word not in log + "".join(memory_blocks(model.requests[1]))
