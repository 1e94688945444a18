"""Discretion in a conversation: what was asked to be held back, forgotten at once, or is nobody else's business."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

import anyio
import pytest

from satchel.events import Notice
from satchel.memory import Discretion, Memory
from satchel.memory.text.discretion import wish_of
from satchel.models import Call, ModelRequest, Reply, ScriptedModel
from satchel.runtime import session_memory
from satchel.runtime.capture import compare
from satchel.runtime.health import examine
from tests.requirements import requirement
from tests.runtime.world import logged, opened, write_locked

pytestmark = pytest.mark.anyio

SECRET = "My sister Anna is a selfish tangerine."


@requirement("memory:discretion:forgetting")
async def test_the_model_looks_what_to_forget_without_asking_and_its_question_goes_with_the_words(
    tmp_path: Path,
) -> None:
    """`ask` can't answer a question of permission: the preview needs none, and the removal does."""
    wanted: list[str] = []

    def reply(request: ModelRequest) -> Reply:
        last = str(request.messages[-1])
        if "Nothing was removed yet" in last:
            return Reply(calls=[Call(name="forget_memory", input={"ids": wanted})])
        if "ToolResultBlock" in last:
            return Reply(text="I can't remove it without you.")
        if "Forget" in last:
            return Reply(calls=[Call(name="forget_memory", input={"query": SECRET})])
        return Reply(text="Noted.")

    model = ScriptedModel(reply)
    async with opened(tmp_path, model) as satchel:
        assert satchel.memory is not None
        session = await satchel.session()
        await session.run_turn(SECRET)
        wanted += [one.id for one in await satchel.memory.list() if "tangerine" in one.content]
        turn = await session.run_turn("Forget what I said about Anna.")
        assert [(step.tool, step.was_refused) for step in turn.steps] == [
            ("forget_memory", False),
            ("forget_memory", True),
        ]
        (notice,) = [one for one in turn.notices if one.startswith("Held back")]
        assert f"satchel memory forget {wanted[0][:8]}" in notice
        assert "tangerine" not in notice
        held = [one.id for one in await satchel.memory.list(discretion="withheld")]
        assert set(wanted) <= set(held)
        await satchel.forget(held)
        log = logged(session)
        assert "tangerine" not in log.read_text()
    assert [
        file for file in tmp_path.rglob("*") if file.is_file() and b"tangerine" in file.read_bytes()
    ] == []


@requirement("memory:discretion:forgetting")
async def test_a_question_of_the_model_that_found_nothing_is_forgotten_with_the_words_it_repeats(
    tmp_path: Path,
) -> None:
    def reply(request: ModelRequest) -> Reply:
        last = str(request.messages[-1])
        if "ToolResultBlock" not in last and "Anna" in last:
            return Reply(
                calls=[
                    Call(
                        name="recall_memory", input={"query": "Anna selfish tangerine sister", "kind": "fact"}
                    )
                ]
            )
        return Reply(text="Noted.")

    async with opened(tmp_path, ScriptedModel(reply)) as satchel:
        assert satchel.memory is not None
        session = await satchel.session()
        await session.run_turn(SECRET)
        await satchel.forget([one.id for one in await satchel.memory.list()])
        assert "tangerine" not in logged(session).read_text()


@requirement("memory:discretion:guest")
async def test_while_a_guest_writes_the_model_gets_nothing_of_what_it_was_shown_before(
    tmp_path: Path,
) -> None:
    model = ScriptedModel(lambda _: Reply(text="Noted."))
    async with opened(tmp_path, model) as satchel:
        assert satchel.memory is not None
        await satchel.memory.pin(await satchel.memory.add("The user adores goulash."))
        session = await satchel.session()
        seen = []
        for text in ("Hello there!", "It's his wife here.", "What does he adore?", "It's me again."):
            turn = await session.run_turn(text)
            assert not [notice for notice in turn.notices if "changed after it was sent" in notice]
            seen.append("goulash" in str(model.requests[-1].messages))
        assert seen == [True, False, False, True]
        fresh = await satchel.session()
        await fresh.run_turn("Hi, this is his wife. What does he adore, goulash?")
        assert str(model.requests[-1].messages).count("goulash") == 1
        # What is private to nobody answers a guest, with the words that ask for it alone.
        await satchel.memory.add("The spare keys hang in the cellar.", spheres=["home"])
        await fresh.run_turn("And where do the spare keys hang?")
        assert "cellar" in str(model.requests[-1].messages)
        await fresh.run_turn("Thank you.")
        assert "cellar" not in str(model.requests[-1].messages)


@requirement("memory:discretion:understood")
@pytest.mark.parametrize(("how", "discretion"), [("forget", "withheld"), ("confidential", "confidential")])
async def test_a_wish_in_words_that_only_a_model_understands_is_obeyed_at_once_and_from_the_log(
    tmp_path: Path, how: str, discretion: Discretion
) -> None:
    wish = "Best if that one never made it into your notebook."
    assert wish_of(wish) is None

    def reply(request: ModelRequest) -> Reply:
        last = str(request.messages[-1])
        if wish in last and "ToolResultBlock" not in last:
            return Reply(calls=[Call(name="hold_back", input={"how": how, "before": True})])
        return Reply(text="Done." if "ToolResultBlock" in last else "Noted.")

    async with opened(tmp_path, ScriptedModel(reply), agent__mode="plan") as satchel:
        assert satchel.memory is not None
        session = await satchel.session()
        await session.run_turn("I like tulips.")
        await session.run_turn(SECRET)
        turn = await session.run_turn(wish)
        assert [(step.tool, step.was_refused) for step in turn.steps] == [("hold_back", False)]
        assert any(one.startswith("Held back") for one in turn.notices) == (how == "forget")
        held = {one.content for one in await satchel.memory.list(discretion=discretion)}
        assert {SECRET, wish} <= held
        assert "I like tulips." not in held
        async with Memory.open(":memory:", embedder="none") as other:

            async def memory_in(_: str) -> Memory:
                return other

            await compare(satchel.sessions, memory_in, capture=True)
            assert {one.content for one in await other.list(discretion=discretion)} == held


@requirement("memory:discretion:understood")
async def test_of_two_readings_of_a_wish_the_one_that_shows_less_holds(tmp_path: Path) -> None:
    said = ["Between us: I dream of leaving.", "I dream of the sea."]

    def reply(request: ModelRequest) -> Reply:
        last = str(request.messages[-1])
        if "ToolResultBlock" in last:
            return Reply(text="Done.")
        how = ["forget"] if said[0] in last else ["forget", "confidential"]
        return Reply(calls=[Call(name="hold_back", input={"how": one}) for one in how])

    async with opened(tmp_path, ScriptedModel(reply)) as satchel:
        assert satchel.memory is not None
        session = await satchel.session()
        for text in said:
            await session.run_turn(text)
        held = await satchel.memory.list(discretion="withheld")
        assert set(said) <= {one.content for one in held}


@requirement("memory:discretion:told")
@pytest.mark.parametrize(
    "wish", ["Forget what I said about Anna.", "Between you and me: I dream of leaving."]
)
async def test_what_is_held_back_is_told_when_the_turn_is_stored_however_long_that_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wish: str
) -> None:
    begins = "Held back" if "Forget" in wish else "Confidential"
    model = ScriptedModel(lambda _: Reply(text="Noted."))
    monkeypatch.setattr(session_memory, "_CAPTURE_WAIT_S", 0.1)

    def told(events: Iterable[object]) -> int:
        return sum(isinstance(one, Notice) and one.text.startswith(begins) for one in events)

    with anyio.fail_after(120), ExitStack() as held:
        async with opened(tmp_path, model) as satchel:
            other, session = await satchel.session(), await satchel.session()
            await other.run_turn("Hello.")
            await session.run_turn(SECRET)
            with write_locked(tmp_path / "home" / "satchel.db"):
                turn = await session.run_turn(wish)
            assert not any(one.startswith(begins) for one in turn.notices)
            async for record in session.subscribe(0):
                if told([record.event]):
                    break
            held.enter_context(write_locked(tmp_path / "home" / "satchel.db"))  # until it is closed
            await session.run_turn(wish)
            assert other.path is not None
            assert begins not in other.path.read_text()
    for times in (1, 0, 0):
        async with opened(tmp_path, model) as satchel:
            assert told(satchel.notices) == times
            checks = [one.state for one in await examine(satchel) if one.text.startswith(begins)]
            assert checks == ["ok"] * times
            again = await (await satchel.session(session.id)).run_turn("What is two plus two?")
            assert not any(one.startswith(begins) for one in again.notices)
    assert told(record.event for record in (await satchel.sessions.load(session.id)).records) == 2
