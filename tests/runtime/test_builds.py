"""Builds in a conversation: asked for, reported, answered, announced, used; and in the worker's own process."""

from __future__ import annotations

import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from satchel.capabilities import Wanted
from satchel.errors import NotFound, UsageError
from satchel.events import BuildPosted, Event, Final, Posted, QuestionAnswered, TurnEnd, TurnStart
from satchel.messages import TextBlock, ToolResultBlock
from satchel.models.embedding import HashingEmbedder
from satchel.models.port import ModelRequest
from satchel.models.scripted import Call, Reply, ScriptedModel
from satchel.runtime import Satchel, Session, questions
from satchel.runtime.commands import CommandContext, CommandResult, find_command, run_command
from satchel.sessions import SessionStore
from tests.builder.world import CASES, GREET, register, tries, write
from tests.requirements import requirement
from tests.runtime.world import opened, settings_in

pytestmark = pytest.mark.anyio

QUESTION = Call(
    name="ask_user", input={"question": "Which greeting?", "options": ["Hello", "Hi"], "default": "Hello"}
)
BUILD = (
    Reply(calls=[Call(name="report_progress", input={"text": "I begin."}), QUESTION]),
    Reply(calls=[write("main.py", GREET), write("tests/cases.jsonl", CASES), tries()]),
    Reply(calls=[register(document="Say it with care.", tags=["greeting"])]),
)

GREETING = {"name": "greet", "description": "Greet a city."}


def thinks(request: ModelRequest) -> Reply | str:
    """The model of the conversation and that of the Builder."""
    rounds = sum(message.role == "assistant" for message in request.messages)
    if "You are the Builder" in request.system:
        repairs = "Repair the capability" in request.messages[0].text
        return Reply(calls=[register()]) if repairs and rounds == 2 else BUILD[rounds]
    newest = request.messages[-1]
    wanted: dict[str, object] = {**GREETING}
    results = [block.content for block in newest.blocks if isinstance(block, ToolResultBlock)]
    if results:
        return f"It says: {results[0]}"
    if "tool" in newest.text and "ready" not in newest.text:
        return Reply(calls=[Call(name="request_capability", input=wanted, id="ask")])
    if newest.text.startswith("It should"):
        wanted |= {"description": newest.text, "change": True}
        return Reply(calls=[Call(name="request_capability", input=wanted, id="change")])
    if newest.text.startswith("Greet it as"):
        wanted = {"name": "cap_greet", "input": {"city": "Rome"}}
        return Reply(calls=[Call(name="tool_call", input=wanted, id="told")])
    wanted = {"name": "greet", "input": {"city": "Rome"}}
    return Reply(calls=[Call(name="execute_capability", input=wanted, id=f"use_{len(request.messages)}")])


def opens(folder: Path, **more: Any) -> Any:
    return opened(folder, ScriptedModel(thinks), sandbox__allow_unsafe=True, **more)


async def until(session: Session, kind: str) -> BuildPosted:
    with anyio.fail_after(120):
        async for record in session.subscribe(0):
            if isinstance(record.event, BuildPosted) and record.event.kind == kind:
                return record.event
    raise AssertionError("the session was closed")


async def built(satchel: Satchel) -> None:
    """Have `greet` built, and wait for its end."""
    assert satchel.builds is not None
    first = await satchel.builds.build(Wanted(name="greet", description="Greet a city."))
    async for _ in satchel.builds.follow(first.build_id):
        pass


@requirement("loop:request-capability:build-id", "capabilities:announced", "capabilities:request:background")
async def test_a_capability_is_asked_for_reported_answered_about_announced_and_used(tmp_path: Path) -> None:
    async with opens(tmp_path) as satchel:
        session = await satchel.session()
        turn = await session.run_turn("Make yourself a tool that greets cities.")
        assert turn.status == "done"
        build = await satchel.builds.queue.get(turn.build_id)
        assert (build.name, build.asked_by, build.model) == ("greet", session.id, "")
        question = await until(session, "question")
        assert (question.text, question.options) == ("Which greeting?", ("Hello", "Hi"))
        assert [q.id for q in session.build_questions] == [question.id]
        assert await session.answer(question.id, "Hello", by="test") is None
        assert session.build_questions == ()
        with pytest.raises(NotFound):
            await session.answer(question.id, "Hi", by="another")
        done = await until(session, "complete")
        with anyio.fail_after(60):
            while [*(tmp_path / "home" / "builds").iterdir()]:  # noqa: ASYNC110 - removed when the Builder has ended
                await anyio.sleep(0.01)
        assert (done.build_id, done.status, done.capability) == (turn.build_id, "active", "greet")
        used = await session.run_turn("Greet Rome.")
        assert used.text == "It says: Hello, Rome!"
        # Everywhere the model is told the same way to call it, and that works in the conversation that has it built.
        how = "call cap_greet, through tool_call if it is not in your list"
        told_again = await session.run_turn("Make yourself a tool that greets cities.")
        assert how in told_again.text
        assert "execute_capability" not in told_again.text
        assert (await session.run_turn("Greet it as you were told.")).text == "It says: Hello, Rome!"
        log = await satchel.sessions.load(session.id)
        told = [r.event for r in log.records if isinstance(r.event, BuildPosted | Posted)]
        kinds = [event.kind if isinstance(event, BuildPosted) else "post" for event in told]
        assert kinds == ["progress", "question", "answer", "complete", "post"]
        # The model was told once, with its next message.
        blocks = [b.text for m in session.messages for b in m.blocks if isinstance(b, TextBlock)]
        said = [text for text in blocks if text.startswith("[Message from the Builder of greet]")]
        assert len(said) == 1
        # How the model calls it is no news for the user.
        assert how in said[0]
        assert 'Its input: {"type": "object", "properties": {"city"' in said[0]
        assert "cap_greet" not in done.text
    async with opens(tmp_path) as satchel:
        again = await satchel.session(session.id)
        assert [e for e in await _news(satchel, again) if isinstance(e, BuildPosted)] == told[:4]
        assert "cap_greet" in [tool.spec.name for tool in again.tools.tools], (
            "natively from the next session on"
        )


@requirement("builder:goes-on")
async def test_the_turn_that_asked_for_a_build_goes_on_when_somebody_follows_it(tmp_path: Path) -> None:
    async with opens(tmp_path, agent__mode="bypass") as satchel:
        session = await satchel.session(interactive=True)
        await session.run_turn("Make yourself a tool that greets cities.")
        question = await until(session, "question")
        await session.answer(question.id, "Hello", by="test")
        ends = [event async for event in _ended(session, 2)]
        assert ends[-1].text == "It says: Hello, Rome!"
        start = next(e for e in await _news(satchel, session) if isinstance(e, TurnStart) and e.turn == 2)
        assert start.message.text == ""
        assert len(start.inbox) == 1
        # What was answered without a message is remembered as said by the agent.
        assert satchel.memory is not None
        said = await satchel.memory.list(session=session.id)
        assert ("assistant", "It says: Hello, Rome!") in {(one.speaker, one.content) for one in said}


@requirement("builder:goes-on")
async def test_a_turn_that_goes_on_by_itself_ends_when_nobody_answers_what_it_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def acts(request: ModelRequest) -> Reply | str:
        reply = thinks(request)
        uses = isinstance(reply, Reply) and reply.calls[0].name == "execute_capability"
        return Reply(calls=[Call(name="bash", input={"command": "echo x"}, id="b")]) if uses else reply

    monkeypatch.setattr(questions, "_MOST_WAIT_S", 0.0)
    async with opened(
        tmp_path,
        ScriptedModel(acts),
        sandbox__allow_unsafe=True,
        agent__mode="ask",
        builder__question_wait_s=0.0,
    ) as satchel:
        session = await satchel.session(interactive=True, allow=["request_capability"])
        await session.run_turn("Make yourself a tool that greets cities.")
        ends = [event async for event in _ended(session, 2)]
        assert "nobody is there to be asked" in ends[-1].text
        [answered] = [e for e in await _news(satchel, session) if isinstance(e, QuestionAnswered)]
        assert [each.consent for each in answered.consents] == ["no"]
        assert session.open_questions == ()


@requirement("builder:goes-on")
@pytest.mark.parametrize("leaves", [False, True])
async def test_what_goes_on_after_a_turn_without_memory_is_not_remembered(
    tmp_path: Path, leaves: bool
) -> None:
    async with opens(tmp_path, agent__mode="bypass") as satchel:
        session = await satchel.session(interactive=not leaves)
        await session.run_turn("Make yourself a tool that greets cities.", memory=False)
        question = await until(session, "question")
        await session.answer(question.id, "Hello", by="test")
        if leaves:
            await until(session, "complete")
            await session.aclose()
            session = await satchel.session(session.id, interactive=True)
        assert [event.text async for event in _ended(session, 2)][-1] == "It says: Hello, Rome!"
        assert satchel.memory is not None
        assert not await satchel.memory.list(session=session.id)


@requirement("builder:goes-on")
async def test_after_a_build_that_the_user_cancels_nothing_goes_on(tmp_path: Path) -> None:
    async with opens(tmp_path) as satchel:
        session = await satchel.session(interactive=True)
        turn = await session.run_turn("Make yourself a tool that greets cities.")
        await until(session, "question")
        await satchel.builds.cancel(turn.build_id)
        await until(session, "error")
        await session.run_turn("Greet Rome.")
        assert session.turns == 2


async def _ended(session: Session, turn: int) -> AsyncIterator[Final]:
    with anyio.fail_after(120):
        async for record in session.subscribe(0):
            if isinstance(record.event, Final):
                yield record.event
            if isinstance(record.event, TurnEnd) and record.event.turn == turn:
                return


async def _news(satchel: Satchel, session: Session) -> list[Any]:
    log = await satchel.sessions.load(session.id)
    return [record.event for record in log.records]


@requirement("builder:durable")
async def test_a_build_of_a_program_with_its_own_model_goes_on_when_it_is_opened_again(
    tmp_path: Path,
) -> None:
    async with opens(tmp_path, builder__question_wait_s=60.0) as satchel:
        session = await satchel.session()
        await session.run_turn("Make yourself a tool that greets cities.")
        question = await until(session, "question")
    async with opens(tmp_path) as satchel:
        again = await satchel.session(session.id)
        assert [q.id for q in again.build_questions] == [question.id], "the question is still open"
        await again.answer(question.id, "Hi", by="test")
        assert (await until(again, "complete")).status == "active"
        kinds = [m.type for m in await satchel.builds.queue.messages(question.build_id)]
        assert kinds == ["progress", "question", "answer", "complete"]


@requirement("builder:wish")
@pytest.mark.parametrize("other", [False, True])
async def test_a_wish_during_a_build_reaches_it_from_any_conversation(tmp_path: Path, other: bool) -> None:
    async with opens(tmp_path, builder__question_wait_s=60.0) as satchel:
        first = await satchel.session()
        await first.run_turn("Make yourself a tool that greets cities.")
        question = await until(first, "question")
        session = await satchel.session() if other else first
        turn = await session.run_turn("It should shout.")
        assert "its Builder is told this as well" in turn.text
        assert await session.awaits_build() == (not other)
        command = find_command("/capability change greet And smile.")
        assert command is not None
        context = CommandContext(satchel=satchel, session=first, show=lambda _: None, tell=lambda _: None)
        assert "told this as well" in (await run_command(context, *command)).lines[0].text
        await first.answer(question.id, "Hello", by="test")
        assert (await until(first, "complete")).status == "active"
        building = [one for one in satchel.parts.models.given.requests if "You are the Builder" in one.system]
        results = [b.content for b in building[1].messages[-1].blocks if isinstance(b, ToolResultBlock)]
        told = "\n".join(results)
        assert (told.count("It should shout."), told.count("And smile.")) == (1, 1)


@requirement("builder:goes-on")
async def test_what_another_conversation_has_built_is_not_waited_for(tmp_path: Path) -> None:
    async with opens(tmp_path, builder__question_wait_s=60.0) as satchel:
        first = await satchel.session()
        await first.run_turn("Make yourself a tool that greets cities.")
        second = await satchel.session()
        turn = await second.run_turn("Make yourself a tool that greets cities.")
        assert "lookup_capability says when it is ready" in turn.text
        assert (await first.awaits_build(), await second.awaits_build()) == (True, False)


@requirement("storage:postgres:servers")
@pytest.mark.parametrize("how", ["is_interactive", "waits_for_builds"])
async def test_only_the_home_that_has_a_build_keeps_a_session_for_it(tmp_path: Path, how: str) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    a.mkdir()
    async with opens(a, builder__question_wait_s=60.0) as satchel:
        session = await satchel.session()
        await session.run_turn("Make yourself a tool that greets cities.")
        session.is_spare = True
        setattr(session, how, True)
        assert not await satchel.hand_over(session.id)
    # A home of another server has the same log, and not the build.
    shutil.copytree(a / "home" / "sessions", b / "home" / "sessions")
    async with opens(b) as satchel:
        session = await satchel.session(session.id)
        session.is_spare = True
        setattr(session, how, True)
        assert await satchel.hand_over(session.id)


async def test_two_requests_for_the_same_thing_at_once_make_one_build(tmp_path: Path) -> None:
    async with opens(tmp_path, builder__question_wait_s=0.0) as satchel:
        wanted = Wanted(name="greet", description="Greet a city.")
        found: list[Any] = []

        async def ask() -> None:
            found.append(await satchel.builds.build(wanted))

        async with anyio.create_task_group() as group:
            for _ in range(2):
                group.start_soon(ask)
        assert len({requested.build_id for requested in found}) == 1
        assert sorted(requested.is_new for requested in found) == [False, True]
        with anyio.fail_after(120):
            kinds = [message.type async for message in satchel.builds.follow(found[0].build_id)]
        assert kinds.count("complete") == 1


@requirement("builder:repair")
async def test_a_repair_gets_the_failing_input_and_becomes_a_new_version_beside_the_users_edits(
    tmp_path: Path,
) -> None:
    async with opens(tmp_path, builder__question_wait_s=0.0) as satchel:
        await built(satchel)
        folder = (await satchel.capabilities.catalogue.get("greet")).folder
        edited = GREET + "# by hand\n"
        (folder / "main.py").write_text(edited)
        requested = await satchel.builds.repair("greet", wish="Shout.", failing_input={"city": "Köln \ud800"})
        assert requested.is_new
        build = await satchel.builds.queue.get(requested.build_id)
        assert (build.kind, "Shout." in build.task, "\\ud800" in build.task) == ("repair", True, True)
        async for _ in satchel.builds.follow(requested.build_id):
            pass
        capability = await satchel.capabilities.catalogue.get("greet")
        assert (capability.version, capability.status) == (2, "active")
        assert (folder / "main.py").read_text() == edited, "what the user edited stays"
        told = next(one for one in satchel.parts.models.given.requests if "Shout." in one.messages[0].text)
        assert f"--- main.py\n{edited.strip()}" in told.messages[0].text
        assert f"--- tests/cases.jsonl\n{CASES.strip()}" in told.messages[0].text
        # What the Builder named only the first time is in the new version as well.
        assert "Say it with care." in build.task
        assert capability.tags == ("greeting",)
        package = await satchel.capabilities.catalogue.registered("greet", 2)
        assert "Say it with care." in package.document


@requirement("capabilities:changed:conversation")
async def test_a_conversation_has_a_capability_changed_and_uses_the_present_version_until_then(
    tmp_path: Path,
) -> None:
    async with opens(tmp_path, builder__question_wait_s=0.0) as satchel:
        await built(satchel)
        # A failure that was overcome since is no part of what shall change.
        for status in ("error", "ok"):
            await satchel.capabilities.catalogue.record_run(
                "greet",
                version=1,
                status=status,
                error="" if status == "ok" else "KeyError: 'x'",
                input={"city": "Ulm"},
                wall_ms=1,
                peak_mb=1,
                backend="x",
            )
        session = await satchel.session()
        turn = await session.run_turn("It should shout.")
        assert "Until then, version 1 works as before" in turn.text
        build = await satchel.builds.queue.get(turn.build_id)
        assert (build.kind, build.asked_by) == ("repair", session.id)
        assert "What the user says about it:\nIt should shout." in build.task
        assert "KeyError" not in build.task
        done = await until(session, "complete")
        assert (done.capability, done.status) == ("greet", "active")
        assert (await satchel.capabilities.catalogue.get("greet")).version == 2


@requirement("capabilities:changed:conversation")
async def test_the_user_approves_changes_and_rolls_back_a_capability_in_the_conversation(
    tmp_path: Path,
) -> None:
    def builds(request: ModelRequest) -> Reply | str:
        rounds = sum(message.role == "assistant" for message in request.messages)
        hosts = [] if "Repair the capability" in request.messages[0].text else ["example.org"]
        return [*BUILD[1:2], Reply(calls=[register(hosts=hosts)])][min(rounds, 1)]

    more = {"sandbox__allow_unsafe": True, "builder__question_wait_s": 0.0}
    async with opened(tmp_path, ScriptedModel(builds), **more) as satchel:
        made = satchel.builds
        assert made is not None
        shown: list[Event] = []
        told: list[str] = []

        async def run(text: str) -> CommandResult:
            command = find_command(text)
            assert command is not None
            context = CommandContext(satchel=satchel, session=session, show=shown.append, tell=told.append)
            return await run_command(context, *command)

        async def line(text: str) -> str:
            return (await run(text)).lines[0].text

        session = await satchel.session()
        requested = await made.build(Wanted(name="greet", description="Greet a city."))
        async for message in made.follow(requested.build_id):
            if message.payload.get("status") == "waiting":
                waits = (await run("/capability")).lines[-1].text
                assert waits.startswith("greet waits for your answer: Do you allow this")
                assert (await line("/capability")).startswith("greet  waiting")
                assert await line("/answer no") == "The Builder of greet has your answer."
        assert (await line("/capability")).startswith("greet  proposed")
        asked = await run("/capability approve greet")
        assert "example.org" in asked.lines[0].text
        assert asked.confirm is not None
        assert "2 cases passed" in (await asked.confirm.proceed()).lines[0].text
        assert "being built" in await line("/capability change greet It should shout.")
        (build,) = [each for each in await made.queue.open_builds() if each.kind == "repair"]
        assert ("It should shout." in build.task, build.asked_by) == (True, session.id)
        assert ("Do what the user says" in build.task, "Find the cause" in build.task) == (True, False)
        async for _ in made.follow(build.id):
            pass
        assert await line("/capability greet") == "greet  active, v2"
        assert await line("/capability rollback greet") == "greet  active, v1"
        assert await line("/capability disable greet") == "greet  disabled, v1"
        with pytest.raises(UsageError, match="Name a capability"):
            await run("/capability approve")


async def test_without_a_language_model_nothing_is_built_and_the_user_is_told_why(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, model="none")
    async with Satchel.open(settings, embedder=HashingEmbedder()) as satchel:
        assert satchel.builds is not None
        assert satchel.capabilities is not None
        with pytest.raises(UsageError, match="needs a language model"):
            await satchel.builds.build(Wanted(name="greet", description="Greet a city."))
        assert await satchel.capabilities.catalogue.list() == ()


async def test_the_job_runner_is_loaded_only_where_jobs_run(tmp_path: Path) -> None:
    async with opens(tmp_path) as satchel:
        await satchel.session()
    code = "import satchel.runtime.satchel, satchel.runtime.builds, satchel.cli.worker, sys; sys.exit('dbos' in sys.modules)"
    done = await anyio.run_process([sys.executable, "-c", code], check=False)
    assert done.returncode == 0


@requirement("builder:brief", "builder:brief:forgotten")
async def test_the_builder_is_told_what_became_memory_and_forgets_it_with_the_conversation(
    tmp_path: Path,
) -> None:
    looks = Call(name="bash", input={"command": "echo 21.5 knots; echo gusts"}, id="look")
    told: list[str] = []

    def model(request: ModelRequest) -> Reply | str:
        if "You are the Builder" in request.system:
            if len(request.messages) == 1:
                told.append(request.messages[0].text)
                return Reply(
                    calls=[
                        QUESTION,
                        write("main.py", "# The boat is the Kittiwake of Roscoff.\n" + GREET),
                    ]
                )
        elif request.messages[-1].text.startswith("The boat"):
            return Reply(calls=[looks])
        return thinks(request)

    async with opened(
        tmp_path, ScriptedModel(model), sandbox__allow_unsafe=True, agent__mode="bypass"
    ) as satchel:
        assert satchel.memory is not None
        session = await satchel.session()
        (session.cwd / "harbours.csv").write_text("Roscoff")
        # It makes the turn before it confidential, too.
        await session.run_turn("We sail at noon.")
        await session.run_turn("This is confidential, tell nobody: the wreck lies at 0815.")
        await session.run_turn("The boat is the Kittiwake of Roscoff.")
        await session.run_turn("My PIN is 4711.", memory=False)
        # Of no conversation, so that its words are in a build of one that never said them.
        await satchel.memory.pin(await satchel.memory.add("The user greets cities in Breton."))
        await session.run_turn("Make yourself a tool that greets cities.")
        question = await until(session, "question")
        (brief,) = told
        for words in (
            "Greet a city.",
            "Kittiwake of Roscoff",
            "\n  21.5 knots\n  gusts\n",
            "harbours.csv",
            "Time and locale",
            "in Breton",
        ):
            assert words in brief
        assert "4711" not in brief
        assert "0815" not in brief
        assert brief.count("Kittiwake of Roscoff") == 1
        with anyio.fail_after(60):
            while not [*(tmp_path / "home" / "builds").rglob("main.py")]:  # noqa: ASYNC110 - the Builder writes it
                await anyio.sleep(0.01)
        [code] = (tmp_path / "home" / "builds").rglob("main.py")
        code.write_bytes(b"\xff" + code.read_bytes())
        code.chmod(0o444)
        assert satchel.builds is not None
        await satchel.builds.queue.add_wish(question.build_id, "The boat is the Kittiwake of Roscoff.")
        gone = ("Kittiwake", "Breton")
        memories = await satchel.memory.list()
        await satchel.forget([one.id for one in memories if any(word in one.content for word in gone)])
        left = [
            f
            for f in (tmp_path / "home").rglob("*")
            if f.is_file()
            and any(words in f.read_bytes() for words in (b"Kittiwake of", b"cities in Breton"))
        ]
        assert code.read_bytes().startswith(b"\xff# [forgotten]")
        assert left == []
        assert question.text == "Which greeting?"
        # Whoever asks off the record is not quoted at all.
        quiet = await satchel.session(private=True)
        await quiet.run_turn("The other one is the Avocet.")
        await quiet.run_turn("Make yourself a tool that greets cities.")
    assert "Avocet" not in "".join(told)


@requirement("builder:brief")
async def test_a_build_that_begins_before_the_turn_that_asks_has_ended_is_told_of_that_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    was_read, briefs = anyio.Event(), list[str]()
    read_turns = SessionStore.read_turns

    async def reads(self: SessionStore, id: str, visit: Any) -> Any:
        log = await read_turns(self, id, visit)
        was_read.set()
        return log

    def model(request: ModelRequest) -> Reply | str:
        if "You are the Builder" in request.system:
            briefs.append(request.messages[0].text)
        elif request.messages[-1].text.startswith("Look at the wind"):
            return Reply(calls=[Call(name="bash", input={"command": "echo 21.5 knots"}, id="look")])
        elif any(
            isinstance(b, ToolResultBlock) and "knots" in b.content for b in request.messages[-1].blocks
        ):
            return Reply(calls=[Call(name="request_capability", input=GREETING, id="ask")])
        elif isinstance(request.messages[-1].blocks[-1], ToolResultBlock):
            return Reply(text="It is being built.", before=was_read.wait)
        return thinks(request)

    monkeypatch.setattr(SessionStore, "read_turns", reads)
    more = {"sandbox__allow_unsafe": True, "agent__mode": "bypass", "builder__question_wait_s": 0.0}
    async with opened(tmp_path, ScriptedModel(model), **more) as satchel:
        session = await satchel.session()
        await session.run_turn("Look at the wind, and make a tool of it for Roscoff.")
        await until(session, "complete")
    assert "User: Look at the wind, and make a tool of it for Roscoff." in briefs[0]
    assert "21.5 knots" in briefs[0]


@requirement("capabilities:calls")
async def test_a_capability_is_built_that_calls_another_one_once_the_user_says_yes(tmp_path: Path) -> None:
    party = """
def run(args: dict) -> str:
    from satchel_calls import call
    return call("greet", {"city": args["city"]}) * 2
"""
    lines = (
        '{"name": "a", "input": {"city": "Ulm"}, "expect": {"equals": "Hello, Ulm!Hello, Ulm!"}, "network": true}\n'
        '{"name": "b", "input": {}, "expect": {"error": "city"}}\n'
    )
    told: list[str] = []

    def model(request: ModelRequest) -> Reply | str:
        task = request.messages[0].text
        if "the capability `party`" not in task:
            return thinks(request)
        told.append(task)
        if len(request.messages) == 1:
            return Reply(calls=[write("main.py", party), write("tests/cases.jsonl", lines)])
        if len(request.messages) == 3:
            return Reply(calls=[tries(hosts=["capability:greet"])])
        told.append(request.messages[-1].text + str(request.messages[-1].blocks))
        return Reply(calls=[register(hosts=["capability:greet"])])

    async with opened(tmp_path, ScriptedModel(model), sandbox__allow_unsafe=True) as satchel:
        assert satchel.builds is not None
        assert satchel.capabilities is not None
        session = await satchel.session()
        await session.run_turn("Make yourself a tool that greets cities.")
        question = await until(session, "question")
        await session.answer(question.id, "Hello", by="test")
        await until(session, "complete")
        asked = await satchel.builds.build(Wanted(name="party", description="Greet a city twice."))
        questions = []
        async for message in satchel.builds.follow(asked.build_id):
            if message.type == "question":
                questions.append(message.text)
                await satchel.builds.answer(asked.build_id, message.id, "yes")
        assert "- greet(city: string): Greet a city by its name." in told[0]
        assert "Hello, Austin!Hello, Austin!" in told[-1], "run_code has the broker, too"
        assert len(questions) == 1
        assert "may call the capability greet" in questions[0]
        outcome = await satchel.capabilities.runner.run("party", {"city": "Rome"})
        assert (outcome.result, outcome.calls[0].capability) == ("Hello, Rome!Hello, Rome!", "greet")
