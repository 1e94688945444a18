"""Lines that are typed while builds ask, late, early or in words of one's own."""

from __future__ import annotations

import os
import re
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from satchel.builder.asking import consent_id
from satchel.builder.records import Build
from satchel.builder.worker import WORKER
from satchel.capabilities import Wanted
from satchel.errors import UsageError
from satchel.events import fields_from_json, fields_to_json
from satchel.models.scripted import ScriptedModel
from satchel.runtime import Satchel, Session
from satchel.runtime.build_answers import Heard, hear_line
from satchel.runtime.commands import CommandContext, CommandResult, find_command, run_command
from satchel.runtime.session_state import SessionState, state_of
from satchel.sandbox.detached import is_working, work_lock
from tests.capabilities.world import register
from tests.requirements import requirement
from tests.runtime.world import opened

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """The builds here are rows that nobody works on."""
    monkeypatch.setattr("satchel.runtime.builds.start_working", lambda *_, **__: None)


def opens(folder: Path) -> Any:
    return opened(folder, ScriptedModel(lambda _: "Fine."))


@requirement("builder:worker:replaced")
async def test_of_all_that_live_one_starts_the_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts: list[int] = []

    def start(*_: object, holds: tuple[int, ...], **__: object) -> None:
        starts.append(os.dup(holds[0]))  # as the process that inherits it

    monkeypatch.undo()
    monkeypatch.setattr("satchel.sandbox.detached.start_satchel", start)
    async with opens(tmp_path) as one, opens(tmp_path) as other:
        await begin(one, await one.session(), "greet")
        async with anyio.create_task_group() as group:
            for satchel in (one, other, one, other):
                group.start_soon(satchel.builds.dispatch)
        assert len(starts) == 1
        # It came, and was killed.
        lock = work_lock(one.settings.home, WORKER)
        assert lock is not None
        await other.builds.dispatch()
        lock.release()
        assert len(starts) == 1
        await other.builds.dispatch()
        assert len(starts) == 2
    for fd in starts:
        os.close(fd)


@requirement("builder:unapproved")
@pytest.mark.parametrize("text", ["It is set", None])
async def test_that_a_secret_is_set_is_for_a_worker_with_the_environment_of_whoever_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    async with opens(tmp_path) as satchel:
        session, home = await satchel.session(), satchel.settings.home
        await session.run_turn("Hello")
        await begin(satchel, session, "greet")
        await ask(satchel, session, "greet", "unset:call_1", "It is set")
        works = work_lock(home, WORKER)  # a worker without the secret, which would take any answer
        assert works is not None
        lives: list[bool] = []

        def start(home: Path, *_: object, **__: object) -> None:
            lives.append(is_working(home, WORKER))

        def end(*_: object) -> bool:
            works.release()
            return True

        monkeypatch.setattr("satchel.runtime.builds.ask_to_end", end)
        monkeypatch.setattr("satchel.runtime.builds.start_working", start)
        await satchel.builds.answer("b-greet", "unset:call_1", text)
        assert lives == [text is None]
        works.release()


hear = partial(hear_line, by="test")


async def begin(satchel: Satchel, session: Session, name: str, *, capability_id: str = "") -> None:
    now = satchel.clock.now()
    assert satchel.builds is not None
    await satchel.builds.queue.add(
        Build(
            id=f"b-{name}",
            capability_id=capability_id or name,
            name=name,
            kind="build",
            task="Build it.",
            asked_by=session.id,
            session_id=f"build-{name}",
            model="scripted:other",
            status="running",
            created_at=now,
            updated_at=now,
        )
    )


async def ask(satchel: Satchel, session: Session, name: str, id: str, *options: str) -> None:
    assert satchel.builds is not None
    payload = {"text": f"What of {id}?", "options": options}
    await satchel.builds.queue.tell(f"b-{name}", id=id, type="question", payload=payload)
    await heard_of(session, "question", id)


async def heard_of(session: Session, kind: str, id: str) -> None:
    with anyio.fail_after(60):
        async for record in session.subscribe(0):
            event = record.event
            if event.type == "build_posted" and (event.kind, event.question_id) == (kind, id):  # type: ignore[union-attr]
                return


async def answer_to(satchel: Satchel, name: str, id: str) -> Any:
    assert satchel.builds is not None
    found = await satchel.builds.queue.answer_to(f"b-{name}", id)
    return None if found is None else found.payload["text"]


async def command(satchel: Satchel, session: Session, text: str) -> CommandResult:
    found = find_command(text)
    assert found is not None
    context = CommandContext(satchel=satchel, session=session, show=lambda _: None, tell=lambda _: None)
    return await run_command(context, *found)


MESSAGES = [
    "Always answer in German.", "Once upon a time there was a heron.", "Session notes, please", "Ok, what is the weather?",
    "Sure thing: what did I say about the router?", "1 mile in km?", "Okay google", "Yesterday I was in Ulm.", "1.5", "7",
    "yes, but without the second line", "Yes, but only today.", "no, use the server on port 8080", "Nobody asked that.",
]  # fmt: skip
YES = ["yes", "Yes.", " y ", "OK", "Go  ahead!", "1", "1.", "ja", "Sí"]
NO = ["no", "No!", "2", "deny", "Nein."]


@requirement("builder:question")
async def test_what_is_neither_yes_nor_no_decides_nothing_and_goes_to_the_model(tmp_path: Path) -> None:
    async with opens(tmp_path) as satchel:
        session = await satchel.session()
        await session.run_turn("Build me something.")
        await begin(satchel, session, "greet")
        id = consent_id("host=example.org")
        await ask(satchel, session, "greet", id, "yes", "no")
        for message in MESSAGES:
            heard = await hear(session, message)
            assert (heard.is_message, heard.answered) == (True, None), message
            assert heard.note == f"greet still asks: What of {id}? (yes, no) To answer: /answer TEXT"
            # Nor does it where it is addressed to the build.
            for words in (message, None):
                with pytest.raises(
                    UsageError, match=f"Nothing was decided. Answer yes or no to: What of {id}?"
                ):
                    await satchel.builds.answer("b-greet", id, words)
        await session.run_turn(MESSAGES[-1])
        assert await hear(session, "And now?") == Heard(is_message=True), "it was shown once more"
        assert await answer_to(satchel, "greet", id) is None
        for number, words in enumerate((*YES, *NO)):
            asked = consent_id(f"host={number}")
            await ask(satchel, session, "greet", asked, "yes", "no")
            await satchel.builds.answer("b-greet", asked, words)
            assert await answer_to(satchel, "greet", asked) == ("yes" if words in YES else "no"), words
        assert (await hear(session, "ok")).answered is not None
        assert await answer_to(satchel, "greet", id) == "yes"


@requirement("builder:question")
async def test_free_text_answers_the_newest_thing_said_and_later_only_an_option_does(tmp_path: Path) -> None:
    async with opens(tmp_path) as satchel:
        session = await satchel.session()
        await session.run_turn("Build me something.")
        await begin(satchel, session, "greet")
        await ask(satchel, session, "greet", "q1")
        heard = await hear(session, "As you like, but politely")
        assert (heard.is_message, heard.answered is not None) == (False, True)
        assert await answer_to(satchel, "greet", "q1") == "As you like, but politely"
        await ask(satchel, session, "greet", "q2", "Celsius", "Fahrenheit")
        other = await hear(session, "What is the weather?")
        assert other.is_message
        assert other.note == "greet still asks: What of q2? (Celsius, Fahrenheit) To answer: /answer TEXT"
        await session.run_turn("What is the weather?")
        assert await answer_to(satchel, "greet", "q2") is None
        assert not (await hear(session, "2")).is_message
        assert await answer_to(satchel, "greet", "q2") == "Fahrenheit"
        await ask(satchel, session, "greet", "q3", "yes", "no")
        await session.run_turn("And something else.")
        assert (await hear(session, "No, what I meant is this")).is_message
        assert not (await hear(session, "Ok.")).is_message
        assert await answer_to(satchel, "greet", "q3") == "yes"
        await ask(satchel, session, "greet", "q4", "hot", "cold")
        await satchel.builds.queue.lay_aside("b-greet")
        await heard_of(session, "progress", "")
        assert (await hear(session, "What is the capital of Portugal?")).is_message, (
            "a build that waits is patient"
        )
        assert not (await hear(session, "cold")).is_message
        assert await answer_to(satchel, "greet", "q4") == "cold"


@requirement("builder:question")
async def test_a_late_answer_is_told_what_became_of_the_question_until_something_new_is_said(
    tmp_path: Path,
) -> None:
    async with opens(tmp_path) as satchel:
        session = await satchel.session()
        await session.run_turn("Build me something.")
        await begin(satchel, session, "greet")
        await ask(satchel, session, "greet", "q1", "Celsius", "Fahrenheit")
        await satchel.builds.queue.give_up("b-greet", "q1", "No answer within 60 s. It goes on with: Celsius")
        await heard_of(session, "progress", "q1")
        late = await hear(session, "yes")
        assert not late.is_message
        assert "“What of q1?” is settled: No answer within 60 s. It goes on with: Celsius" in late.note
        assert (await hear(session, "Fahrenheit would have been better")).is_message
        # The Builder is still at work, so it can be told; see `tests/builder/test_building.py`.
        late = await hear(session, "2")
        assert (late.is_message, late.answered is not None) == (False, True)
        assert late.note == (
            "The Builder of greet went on without it, and is told now: Fahrenheit. If that is too late: /capability "
            "change greet and what shall be different."
        )
        assert await answer_to(satchel, "greet", "q1") == "Fahrenheit"
        late = await hear(session, "celsius")
        assert (
            "“What of q1?” was answered: “Fahrenheit”. To have it changed: /capability change greet"
            in late.note
        )
        id = session.id
    async with opens(tmp_path) as satchel:
        session = await satchel.session(id)
        assert not (await hear(session, "yes")).is_message, "the next process knows it, too"
        state = state_of(session)
        assert state.settled
        assert fields_from_json(SessionState, fields_to_json(state)) == state
        await session.run_turn("Never mind.")
        assert (await hear(session, "yes")).is_message, "it answers what was said since"
        await ask(satchel, session, "greet", "q2", "yes", "no")
        await satchel.builds.answer("b-greet", "q2", "no", by="the web page")
        await heard_of(session, "answer", "q2")
        assert "“What of q2?” was answered: “no”." in (await hear(session, "yes")).note
        assert state_of(session).fresh == ()


@requirement("builder:question")
async def test_of_two_builds_that_ask_none_gets_a_line_that_names_neither(tmp_path: Path) -> None:
    async with opens(tmp_path) as satchel:
        session = await satchel.session()
        await session.run_turn("Build me two things.")
        for name in ("one", "two"):
            await begin(satchel, session, name)
            await ask(satchel, session, name, f"q-{name}", "yes", "no")
        heard = await hear(session, "yes")
        assert (heard.is_message, heard.note) == (
            False, "one and two ask you. Say which one you mean: /answer NAME TEXT",
        )  # fmt: skip
        other = await hear(session, "as you like")
        assert (other.is_message, other.note.splitlines()) == (
            True,
            [
                f"{name} still asks: What of q-{name}? (yes, no) To answer: /answer {name} TEXT"
                for name in ("one", "two")
            ],
        )
        shown = await command(satchel, session, "/answer yes")
        assert [line.text for line in shown.lines][:2] == ["one: What of q-one?", "two: What of q-two?"]
        await command(satchel, session, "/answer two 1")
        assert [await answer_to(satchel, n, f"q-{n}") for n in ("one", "two")] == [None, "yes"]
        await heard_of(session, "answer", "q-two")
        await session.run_turn("Later.")
        assert (await hear(session, "no")).answered is not None
        assert await answer_to(satchel, "one", "q-one") == "no"


@requirement("builder:late")
async def test_an_answer_after_the_end_of_a_build_is_offered_as_a_change(tmp_path: Path) -> None:
    async with opens(tmp_path) as satchel:
        session = await satchel.session()
        await session.run_turn("Build me something.")
        assert satchel.builds is not None
        requested = await satchel.builds.catalogue.request(Wanted(name="greet", description="Greet a city."))
        await begin(satchel, session, "greet", capability_id=requested.capability.id)
        await ask(satchel, session, "greet", "q1", "Celsius", "Fahrenheit")
        await satchel.builds.queue.give_up("b-greet", "q1", "No answer. It goes on with: Celsius")
        # `satchel capability answer` gives it to the Builder, too.
        found = await satchel.builds.question_of("greet")
        assert (found.id if found is not None else "") == "q1"
        await satchel.builds.queue.end("b-greet", "active", "greet is ready.")
        await heard_of(session, "complete", "")
        late = await hear(session, "Fahrenheit")
        assert late.answered is None
        assert not late.is_message
        assert "To have it changed: /capability change greet and what shall be different." in late.note
        shown = await command(satchel, session, "/answer greet 2")
        assert [line.text for line in shown.lines] == [late.note]
        # The model has used it of its own accord: what it said may be what "2" answers, but not "Fahrenheit".
        session.build_news.begin_turn("")
        assert fields_from_json(SessionState, fields_to_json(state_of(session))).went_on
        assert (await hear(session, "2")).is_message
        assert (await hear(session, "Fahrenheit")) == late
        await session.run_turn("Thanks.")
        assert (await hear(session, "Fahrenheit")).is_message


@requirement("builder:late")
async def test_a_number_that_comes_before_any_question_is_no_message(tmp_path: Path) -> None:
    async with opens(tmp_path) as satchel:
        session = await satchel.session()
        await session.run_turn("Build me something.")
        assert (await hear(session, "2")).is_message
        await begin(satchel, session, "greet")
        early = await hear(session, "2")
        assert fields_from_json(SessionState, fields_to_json(state_of(session))).under_way == ("b-greet",)
        assert (early.is_message, early.answered) == (False, None)
        assert early.note.startswith("What is being built has not asked you anything yet.")
        assert (await hear(session, "The second one, please.")).is_message
        await ask(satchel, session, "greet", "q1", "Celsius", "Fahrenheit")
        assert (await hear(session, "2")).answered is not None
        assert await answer_to(satchel, "greet", "q1") == "Fahrenheit"


@requirement("builder:late")
async def test_so_does_one_after_a_change_that_the_user_wished_for_by_a_command(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel(lambda _: "Fine."), builder__model="scripted:other") as satchel:
        session = await satchel.session()
        await session.run_turn("Build me something.")
        assert satchel.builds is not None
        await register(satchel.builds.catalogue)
        session.build_news.begin_turn("")  # the model has used it of its own accord
        assert (await hear(session, "1")).is_message
        await command(satchel, session, "/capability change greet It should shout.")
        early = await hear(session, "1")
        assert (early.is_message, early.note.split(".")[0]) == (
            False, "What is being built has not asked you anything yet",
        )  # fmt: skip
        (build,) = await satchel.builds.queue.open_builds()
        payload = {"text": "How loud?", "options": ("loud", "louder")}
        await satchel.builds.queue.tell(build.id, id="q1", type="question", payload=payload)
        await heard_of(session, "question", "q1")
        assert (await hear(session, "2")).answered is not None
        await satchel.builds.queue.end(build.id, "active", "greet is ready.")
        await heard_of(session, "complete", "")
        await session.run_turn("Thanks.")
        assert (await hear(session, "1")).is_message


@requirement("builder:question")
async def test_who_answers_what_somebody_else_has_answered_hears_what_was_decided(tmp_path: Path) -> None:
    async with opens(tmp_path) as satchel:
        session = await satchel.session()
        await session.run_turn("Build me something.")
        await begin(satchel, session, "greet")
        id = consent_id("host=example.org")
        await ask(satchel, session, "greet", id, "yes", "no")
        await satchel.builds.answer("b-greet", id, "2", by="the web page")
        decided = f"“What of {id}?” has been answered already by the web page: “no”."
        for words in ("only on Sundays", "yes", None):
            with pytest.raises(UsageError, match=re.escape(decided)):
                await satchel.builds.answer("b-greet", id, words, by="terminal")


@requirement("builder:late")
async def test_a_line_that_fits_a_question_which_was_not_shown_yet_is_neither_its_answer_nor_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("satchel.runtime.satchel._INBOX_LOOK_S", 3600.0)
    async with opens(tmp_path) as satchel:
        session = await satchel.session()
        await session.run_turn("Build me something.")
        await begin(satchel, session, "greet")
        assert satchel.builds is not None
        payload = {"text": "Do you allow it?", "options": ("yes", "no")}
        await satchel.builds.queue.tell("b-greet", id="q1", type="question", payload=payload)
        early = await hear(session, "yes")
        assert (early.is_message, early.answered) == (False, None)
        assert early.note == (
            "greet asks just now: Do you allow it? (yes, no) If that is your answer, send it again."
        )
        assert await answer_to(satchel, "greet", "q1") is None
        assert (await hear(session, "yes")).answered is not None
        await satchel.builds.queue.tell("b-greet", id="q2", type="question", payload=payload)
        assert (await hear(session, "What is the weather?")).is_message
