"""Branches of conversations: what they share, and what is forgotten in all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from satchel.models import ModelRequest, ScriptedModel
from satchel.runtime import TurnResult
from satchel.sessions.attachments import Uploads
from tests.requirements import requirement
from tests.runtime.world import opened

pytestmark = pytest.mark.anyio


def telling() -> ScriptedModel:
    """A model that says back what was said."""

    def reply(request: ModelRequest) -> str:
        return "You said: " + " | ".join(one.text for one in request.messages if one.role == "user")

    return ScriptedModel(reply)


@requirement("sessions:branches", "sessions:branches:forgotten")
async def test_a_branch_goes_on_from_a_turn_and_what_is_forgotten_leaves_both(tmp_path: Path) -> None:
    async with opened(tmp_path, telling()) as satchel:
        assert satchel.memory is not None
        session = await satchel.session()
        await session.run_turn("My boat is the Kittiwake.")
        await session.run_turn("She lies in Roscoff.")
        known = await satchel.memory.count()
        branch = await satchel.session(await satchel.sessions.branch(session.id, 2))
        assert await satchel.memory.count() == known
        turn = await branch.run_turn("She lies in Brest.")
        assert turn.turn == 2
        assert "Kittiwake" in turn.text
        assert "Roscoff" not in turn.text
        ids = [one.id for one in await satchel.memory.list() if "Kittiwake" in one.content]
        receipt = await satchel.forget(ids)
        assert {entry.session_id for entry in receipt.logs.sessions} == {session.id, branch.id}
        later = await branch.run_turn("What did I say?")
        assert "Kittiwake" not in later.text
        assert "Brest" in later.text
    home = tmp_path / "home"
    assert [f for f in home.rglob("*") if f.is_file() and b"Kittiwake" in f.read_bytes()] == []


@requirement("sessions:branches")
async def test_what_is_answered_again_is_not_told_the_answers_that_it_replaces(tmp_path: Path) -> None:
    asked = "Where does the Kittiwake lie?"
    ports = ["Roscoff", "Brest", "Lorient", "Douarnenez"]
    model = ScriptedModel(["Noted.", *(f"The Kittiwake lies in {port}." for port in ports)])

    def told(turn: TurnResult) -> list[str]:
        return [port for port in ports if any(port in one.content for one in turn.memory)]

    async with opened(tmp_path, model, memory__surface_threshold=0.0) as satchel:
        session = await satchel.session()
        await session.run_turn("My boat is the Kittiwake.")
        await session.run_turn(asked)
        for _ in range(2):
            again = await satchel.session(await satchel.sessions.branch(session.id, 2))
            assert told(await again.run_turn(asked)) == []
        assert told(
            await (await satchel.session()).run_turn(asked)
        )  # elsewhere they are memories like others


@requirement("sessions:branches:forgotten")
async def test_words_leave_a_branch_of_a_branch_that_was_deleted_and_later_files_are_not_in_it(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path, telling()) as satchel:
        assert satchel.memory is not None
        session = await satchel.session()
        await session.run_turn("My boat is the Kittiwake.")
        picture = Uploads(satchel.settings.home).add(
            [b"\x89PNG\r\n\x1a\n of the Kittiwake"], name="boat.png", now=satchel.clock.now()
        )
        running = await session.start("Look at her.", files=[picture])
        await running.result()
        middle = await satchel.sessions.branch(session.id, 2)
        last = await satchel.sessions.branch(middle, 2)
        for id in (middle, last):
            assert not list((await satchel.sessions.info(id)).path.with_suffix(".spill").rglob("*.png"))
        await satchel.sessions.delete(middle)
        ids = [one.id for one in await satchel.memory.list() if "Kittiwake" in one.content]
        receipt = await satchel.forget(ids)
        assert {entry.session_id for entry in receipt.logs.sessions} == {session.id, last}


@requirement("sessions:private:later")
async def test_what_is_off_the_record_stays_so_when_it_is_continued_or_branched(tmp_path: Path) -> None:
    async with opened(tmp_path, telling()) as satchel:
        assert satchel.memory is not None
        session = await satchel.session(private=True)
        await session.run_turn("My PIN is a palindrome.")
        await session.aclose()
        branch = await satchel.sessions.branch(session.id, 1)
        for id in (session.id, branch):
            again = await satchel.session(id)
            await again.run_turn("And it is even.")
            assert again.private
        assert await satchel.memory.count() == 0
        assert all(info.private for info in await satchel.sessions.list())
    async with opened(tmp_path, telling()) as satchel:
        assert satchel.memory is not None
        assert await satchel.memory.count() == 0
        # A branch of one that was made private later is private, too.
        later = await satchel.session()
        await later.run_turn("My boat is the Kittiwake.")
        await later.aclose()
        await (await satchel.session(later.id, private=True)).aclose()
        assert (await satchel.sessions.info(await satchel.sessions.branch(later.id, 2))).private
