"""One session, many clients: each follows, answers and interrupts; none of them ends what the others see."""

from __future__ import annotations

import gc
import re
import shutil
import sqlite3
import weakref
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from satchel.clock import ManualClock
from satchel.errors import LineFull, NotFound, StorageError, UsageError
from satchel.events import (
    Action,
    AskUser,
    CallConsent,
    Event,
    MessageWaiting,
    Notice,
    Posted,
    QuestionAnswered,
    QuestionAsked,
    Record,
    TextDelta,
    TurnStart,
)
from satchel.models import Call, Reply, ScriptedModel
from satchel.models.port import ModelRequest
from satchel.runtime import Session
from satchel.runtime.broadcast import Broadcast, Subscription
from satchel.sessions.log import encode_records
from satchel.tools import Question, ToolContext, ToolResult, function_tool
from tests.requirements import requirement
from tests.runtime.world import opened

pytestmark = pytest.mark.anyio

WRITES = Reply(calls=[Call(name="bash", input={"command": "echo hi > made.txt"})])


@asynccontextmanager
async def followed(session: Session, after_seq: int | None = 0) -> AsyncIterator[list[Record]]:
    """Everything that a client sees, while the block runs."""
    seen: list[Record] = []

    async def read() -> None:
        async for record in session.subscribe(after_seq):
            seen.append(record)  # noqa: PERF401 - what has come by now is looked at meanwhile

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        await anyio.wait_all_tasks_blocked()
        yield seen
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()


async def question_of(session: Session) -> QuestionAsked:
    """The next question that is asked in a session."""
    subscription = session.subscribe(0)
    async for record in subscription:
        if isinstance(record.event, QuestionAsked):
            await subscription.aclose()
            return record.event
    raise AssertionError("no question came")


async def open_question(session: Session) -> str:
    """The id of the question that is open, once one is."""
    async for _ in session.subscribe(0):
        for question in session.open_questions:
            if isinstance(question, QuestionAsked):
                return question.id
    raise AssertionError("no question came")


def types(records: Sequence[Record]) -> list[str]:
    return [record.event.type for record in records]


async def test_a_message_that_comes_between_the_last_words_and_the_end_of_a_turn_is_taken(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path, ScriptedModel(["One.", "Two."])) as satchel:
        terminal = await satchel.session()
        browser = await satchel.session(terminal.id)
        with anyio.fail_after(120):
            running = await terminal.start("First.")
            async for record in browser.subscribe(0):
                if record.event.type == "final":
                    break
            assert not running.is_over
            assert (await browser.run_turn("Second.")).text == "Two."
            assert (await running.result()).text == "One."


def said_to(session: Session) -> list[str]:
    """What the user has said, as the model was told."""
    return [text for m in session.messages if m.role == "user" and (text := m.text.partition("\n")[0])]


def held(held: anyio.Event) -> ScriptedModel:
    """A model whose first answer waits, and which repeats what it was told after that."""
    return ScriptedModel([Reply(text="One.", chunk=1, between=held.wait), *(f"{n}" for n in range(2, 20))])


async def begins_to_speak(session: Session) -> None:
    """Wait for the first words of the model."""
    async for record in session.subscribe(0):
        if isinstance(record.event, TextDelta):
            return


@requirement("clients:line")
async def test_messages_that_come_during_a_turn_are_taken_in_order_after_it(tmp_path: Path) -> None:
    go_on = anyio.Event()
    async with opened(tmp_path, held(go_on)) as satchel:
        terminal = await satchel.session()
        browser = await satchel.session(terminal.id)
        with anyio.fail_after(120):
            first = await terminal.start("First.")
            await begins_to_speak(terminal)
            async with followed(browser, None) as seen:
                second = await terminal.start("Second.")
                third = await browser.start("Third.")
                fourth = await browser.start("Fourth.")
                await anyio.wait_all_tasks_blocked()
                shown = [r.event.text for r in seen if isinstance(r.event, MessageWaiting)]
                assert shown == ["Second.", "Third.", "Fourth."]
                assert [message.text for message in terminal.waiting] == shown
                third.cancel()
                assert (await third.result()).status == "cancelled"
                assert not first.is_over
                terminal.cancel()  # ends the running turn alone
                assert (await first.result()).status == "cancelled"
                assert (await second.result()).text == "2"
                assert (await fourth.result()).text == "3"
            assert said_to(browser) == ["First.", "Second.", "Fourth."]
            assert [e.turn async for e in fourth.events() if isinstance(e, TurnStart)] == [3]
            assert not terminal.waiting
            assert await terminal.take_back(fourth.waited) is None


@requirement("clients:line")
async def test_the_line_is_bounded_and_an_answer_goes_before_it(tmp_path: Path) -> None:
    asks = Reply(calls=[Call(name="ask_user", input={"question": "Which?"})])
    go_on = anyio.Event()

    async def hold(input: Mapping[str, Any], context: ToolContext) -> ToolResult:
        await go_on.wait()
        return ToolResult(text="held")

    holds = function_tool(hold, name="hold", description="Holds.", properties={})
    model = ScriptedModel([Reply(calls=[Call(name="hold", input={})]), asks, *(f"{n}" for n in range(20))])
    async with opened(tmp_path, model) as satchel:
        session = await satchel.session(tools=[holds])
        with anyio.fail_after(120):
            first = await session.start("First.")
            later = [await session.start(f"Later {n}.") for n in range(10)]
            with pytest.raises(LineFull, match="10 messages wait"):
                await session.start("Too many.")
            go_on.set()
            assert (await first.result()).status == "asking"
            assert len(session.waiting) == 10  # none of them is taken for the answer
            assert (await session.run_turn("The red one.")).text == "0"
            assert [(await each.result()).text for each in later] == [str(n) for n in range(1, 11)]
            assert said_to(session)[-10:] == [f"Later {n}." for n in range(10)]


@requirement("clients:line")
async def test_an_answer_may_come_with_the_question_while_its_turn_is_ending(tmp_path: Path) -> None:
    asks = Reply(calls=[Call(name="ask_user", input={"question": "Which?"})])
    async with opened(tmp_path, ScriptedModel([asks, "Thanks."])) as satchel:
        session = await satchel.session()
        answered = None
        async for event in (await session.start("First.")).events():
            if isinstance(event, AskUser):
                answered = await session.answer(event.call_id, "The red one.")
        assert answered is not None
        assert (await answered.result()).text == "Thanks."


@requirement("clients:line")
async def test_what_waited_is_forgotten_with_the_turn_that_it_became(tmp_path: Path) -> None:
    go_on = anyio.Event()
    async with opened(tmp_path, held(go_on)) as satchel:
        session = await satchel.session()
        with anyio.fail_after(120):
            await session.start("First.")
            second = await session.start("Mo is ill.")
            go_on.set()
            await second.result()
        assert satchel.memory is not None
        [kept] = [m for m in await satchel.memory.list(limit=50) if m.content == "Mo is ill."]
        await satchel.forget([kept.id])
        assert session.path is not None
        assert "Mo is ill." not in session.path.read_text()


@requirement("clients:line")
async def test_a_waiting_message_that_is_interrupted_before_it_begins_does_not_come_again(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path, held(anyio.Event())) as satchel:
        session = await satchel.session()
        with anyio.fail_after(120):
            await session.start("First.")
            second = await session.start("Second.")
            session.cancel()
            await second.begun()
            session.cancel()
            assert (await second.result()).status == "cancelled"
        await session.aclose()
        assert not (await satchel.session(session.id)).waiting


@requirement("clients:line")
async def test_what_is_forgotten_leaves_the_messages_that_wait(tmp_path: Path) -> None:
    async with opened(tmp_path, held(anyio.Event())) as satchel:
        session = await satchel.session()
        assert satchel.memory is not None
        fact = await satchel.memory.add("The quagga code is 4711.")
        with anyio.fail_after(120):
            await session.start("First.")
            await session.start("I repeat: The quagga code is 4711.")
            await satchel.forget([fact])
        assert "4711" not in session.waiting[0].text


@requirement("clients:line")
async def test_messages_that_wait_outlive_the_program(tmp_path: Path) -> None:
    (tmp_path / "a" / "work").mkdir(parents=True)
    async with opened(tmp_path / "a", held(anyio.Event())) as satchel:
        session = await satchel.session()
        await session.start("First.")
        await begins_to_speak(session)
        await session.start("Second.")
        back = await session.start("Third.")
        await session.take_back(back.waited)
        shutil.copytree(tmp_path / "a", tmp_path / "b")  # what `kill -9` leaves
    shutil.copytree(tmp_path / "b", tmp_path / "c")
    async with opened(tmp_path / "c") as satchel:
        assert (await satchel.session(session.id)).waiting
        await satchel.delete_session(session.id)
        assert await satchel.sessions.list() == []
    async with opened(tmp_path / "b", ScriptedModel(["2", "4"])) as satchel:
        again = await satchel.session(session.id)
        assert [message.text for message in again.waiting] == ["Second."]
        with anyio.fail_after(120):
            assert (await again.run_turn("Fourth.")).text == "4"
        log = await satchel.sessions.load(session.id)
        starts = [r.event.message.text for r in log.records if isinstance(r.event, TurnStart)]
        assert starts == ["First.", "Second.", "Fourth."]
        assert not again.waiting


@requirement("clients:slow")
async def test_a_slow_client_gets_streamed_text_in_larger_pieces_and_nothing_is_held_for_it(
    tmp_path: Path,
) -> None:
    broadcast = Broadcast(last_seq=0, read=_nothing)
    slow = broadcast.subscribe()
    at = ManualClock().now()
    for number in range(10_000):
        broadcast.publish_transient(TextDelta(text=f"{number} "), at=at)
    broadcast.publish_transient(Notice(part="x", text="end"), at=at)
    first, second = await anext(slow), await anext(slow)
    assert isinstance(first.event, TextDelta)
    assert first.event.text == "".join(f"{number} " for number in range(10_000))
    assert second.event == Notice(part="x", text="end")
    late = broadcast.subscribe()
    assert (await anext(late)).event == first.event


@requirement("clients:leave")
async def test_a_reader_that_is_dropped_without_leaving_is_no_longer_fed() -> None:
    broadcast = Broadcast(last_seq=0, read=_nothing)
    reader = broadcast.subscribe()
    gone = weakref.ref(reader)
    del reader
    gc.collect()
    assert gone() is None


async def _nothing(after: int, limit: int) -> Sequence[Record]:
    return ()


@requirement("clients:slow")
async def test_of_a_calls_progress_only_the_newest_waits(tmp_path: Path) -> None:
    gate, counted = anyio.Event(), 5_000

    async def work(_: Mapping[str, Any], context: ToolContext) -> ToolResult:
        for number in range(counted):
            await context.progress({"done": number})
        gate.set()
        return ToolResult(text="ok")

    tool = function_tool(work, name="work", description="Works.", properties={})
    async with opened(tmp_path, ScriptedModel([Reply(calls=[Call(name="work")]), "Done."])) as satchel:
        session = await satchel.session(tools=[tool])
        subscription = session.subscribe(0)
        await session.run_turn("Go.")
        unread = await _drain(session, subscription)
    assert sum(event.type == "tool_progress" for event in unread) <= 1
    assert unread[-1].type == "turn_end"


async def _drain(session: Session, subscription: Subscription) -> list[Event]:
    events = []
    async for record in subscription:
        events.append(record.event)
        if record.seq == session.last_seq:
            return events
    return events


@requirement("questions:once")
async def test_when_two_clients_answer_the_first_answer_holds_and_the_other_client_is_told(
    tmp_path: Path,
) -> None:
    model = ScriptedModel([WRITES, "Fine."])
    async with opened(tmp_path, model) as satchel:
        session = await satchel.session(interactive=True)
        outcomes: dict[str, str] = {}

        async def say(name: str, consent: Any) -> None:
            try:
                await session.answer(question.id, consent=consent, by=name)
                outcomes[name] = "held"
            except UsageError as error:
                outcomes[name] = str(error)

        with anyio.fail_after(120):
            running = await session.start("Write it.")
            question = await question_of(session)
            async with anyio.create_task_group() as group:
                group.start_soon(say, "one", "no")
                group.start_soon(say, "two", "once")
            await running.result()
        assert sorted(outcomes) == ["one", "two"]
        assert outcomes["one"] == "held"
        assert "has been answered already" in outcomes["two"]
        assert not (tmp_path / "work" / "made.txt").exists()
        with pytest.raises(NotFound, match="No question"):
            await session.answer("nothing", consent="once")


@requirement("questions:durable")
async def test_a_permission_question_survives_a_restart_and_its_answer_continues_the_turn(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path, ScriptedModel([WRITES])) as satchel:
        session = await satchel.session(interactive=True)
        with anyio.fail_after(120):
            await session.start("Write it.")
            question = await question_of(session)
        log = session.path
        assert log is not None
        left = log.read_bytes()
    # As a kill leaves it: nothing of how the turn was closed is in the log.
    log.write_bytes(left)
    model = ScriptedModel(["It is written."])
    async with opened(tmp_path, model) as satchel:
        session = await satchel.session(session.id, interactive=True)
        assert session.is_interrupted
        assert [asked.id for asked in session.open_questions if isinstance(asked, QuestionAsked)] == [
            question.id
        ]
        with anyio.fail_after(120):
            running = await session.answer(question.id, consent="once", by="terminal")
            assert running is not None
            result = await running.result()
        assert (result.status, result.text, result.turn) == ("done", "It is written.", 1)
        assert (tmp_path / "work" / "made.txt").read_text() == "hi\n"
        records = (await satchel.sessions.load(session.id)).records
        order = [
            r.event.type for r in records if r.event.type in ("question_asked", "question_answered", "action")
        ]
        assert order == ["question_asked", "question_answered", "action"]
        assert [message.role for message in model.requests[0].messages] == ["user", "assistant", "user"]


@requirement("questions:sealed")
@pytest.mark.parametrize("forged", ["an answer", "the call", "what was asked"])
async def test_who_can_write_to_a_log_permits_no_call(tmp_path: Path, forged: str) -> None:
    """The log is a file here; on a server its lines are rows, which others may be able to write."""
    async with opened(tmp_path, ScriptedModel([WRITES])) as satchel:
        session = await satchel.session(interactive=True)
        with anyio.fail_after(120):
            await session.start("Write it.")
            question = await question_of(session)
        log = session.path
        assert log is not None
        left = log.read_bytes()
        if forged == "the call":
            await session.answer(question.id, consent="once")
            left = b"".join(
                line for line in log.read_bytes().splitlines(True) if b"question_" in line or line in left
            )
    if forged == "an answer":
        seq = len(left.splitlines()) + 1
        given = QuestionAnswered(
            id=question.id, consents=(CallConsent(call_id=question.calls[0].call_id, consent="once"),)
        )
        left += encode_records([Record(seq=seq, at=ManualClock().now(), event=given)])
    assistant, asked = (
        next(line for line in left.splitlines() if f'"type":"{type}"'.encode() in line)
        for type in ("assistant", "question_asked")
    )
    if forged == "the call":
        left = left.replace(assistant, assistant.replace(b"echo hi", b"echo no"))
    if forged == "what was asked":
        left = left.replace(asked, asked.replace(b"echo hi", b"echo no"))
    log.write_bytes(left)
    (tmp_path / "work" / "made.txt").unlink(missing_ok=True)
    async with opened(tmp_path, ScriptedModel(["It is written."])) as satchel:
        session = await satchel.session(session.id, interactive=True)
        if forged == "what was asked":
            await session.answer(question.id, consent="once")
        else:
            await session.resume()
        with anyio.fail_after(120):
            async for record in session.subscribe(len(left.splitlines())):
                if isinstance(record.event, QuestionAsked):
                    break
        assert not (tmp_path / "work" / "made.txt").exists()
        (again,) = session.open_questions
        assert isinstance(again, QuestionAsked)
        command = "echo no > made.txt" if forged == "the call" else "echo hi > made.txt"
        assert [call.input for call in again.calls] == [{"command": command}]


@requirement("questions:sealed")
async def test_a_consent_of_one_turn_permits_nothing_in_another(tmp_path: Path) -> None:
    call = Call(name="bash", input={"command": "echo hi >> made.txt"}, id="c1")
    model = ScriptedModel([Reply(calls=[call]), "It is written.", Reply(calls=[call])])
    async with opened(tmp_path, model) as satchel:
        session = await satchel.session(interactive=True)
        with anyio.fail_after(120):
            running = await session.start("Write it.")
            question = await question_of(session)
            await session.answer(question.id, consent="once")
            assert (await running.result()).status == "done"
            await session.start("Write it again?")
            await open_question(session)
            (second,) = session.open_questions
        log = session.path
        assert log is not None
        text = log.read_text()
    assert isinstance(second, QuestionAsked)
    # The first call and its consent, as whoever can write to the log may put them into the second turn.
    (given,) = [line for line in text.splitlines(True) if '"question_answered"' in line]
    for mine, other in ((question.calls[0].call_id, second.calls[0].call_id), (question.id, second.id)):
        parts = text.split(f'"{other}"')
        text = f'"{mine}"'.join(part.replace(f'"{mine}"', '"before"') for part in parts)
    seq = len(text.splitlines()) + 1
    log.write_text(text + re.sub(r'"seq":\d+', f'"seq":{seq}', given, count=1))
    async with opened(tmp_path, ScriptedModel(["It is written."])) as satchel:
        session = await satchel.session(session.id, interactive=True)
        with anyio.fail_after(120):
            await session.resume()
            async for record in session.subscribe(seq):
                if isinstance(record.event, QuestionAsked | Action):
                    break
        assert (tmp_path / "work" / "made.txt").read_text() == "hi\n"
        assert len(session.open_questions) == 1


@requirement("questions:durable")
async def test_an_answer_is_on_disk_before_the_call_runs(tmp_path: Path) -> None:
    look = Call(
        name="bash",
        input={"command": f"cat {tmp_path}/home/sessions/*/*.jsonl | grep -cE '^.{{0,60}}question_answered'"},
    )
    async with opened(tmp_path, ScriptedModel([Reply(calls=[look]), "Done."])) as satchel:
        session = await satchel.session(interactive=True)
        with anyio.fail_after(120):
            running = await session.start("Look.")
            await session.answer(await open_question(session), consent="once", by="me")
            assert "\n1\n" in f"\n{(await running.result()).steps[0].result}\n"


@requirement("questions:tool")
async def test_a_running_tool_asks_whoever_follows_and_nobody_where_nobody_does(tmp_path: Path) -> None:
    async def wonder(_: Mapping[str, Any], context: ToolContext) -> ToolResult:
        if context.ask is None:
            return ToolResult(text="nobody")
        return ToolResult(text=str(await context.ask(Question(text="Which?", options=("a", "b")))))

    tool = function_tool(wonder, name="wonder", description="Wonders.", properties={})
    calls = Reply(calls=[Call(name="wonder")])
    async with opened(tmp_path, ScriptedModel([calls, "Done.", calls, "Done."])) as satchel:
        session = await satchel.session(tools=[tool])
        alone = await session.run_turn("Go.")
        assert alone.steps[0].result == "nobody"
        follower = await satchel.session(session.id, interactive=True)
        with anyio.fail_after(120):
            running = await session.start("Go.")
            question = await question_of(session)
            await follower.answer(question.id, "b", by="follower")
            assert (await running.result()).steps[0].result == "b"


@requirement("clients:inbox")
async def test_a_post_is_shown_at_once_and_delivered_once_with_the_next_message(
    tmp_path: Path,
) -> None:
    model = ScriptedModel(["First.", "Second.", "Third."])
    async with opened(tmp_path, model) as satchel:
        session = await satchel.session()
        await session.run_turn("Hello.")
        async with followed(session, None) as seen:
            await satchel.post(session.id, "The build is finished.", source="builder")
        assert [(r.event.source, r.event.text) for r in seen if isinstance(r.event, Posted)] == [
            ("builder", "The build is finished.")
        ]
        await session.run_turn("And now?")
        await session.run_turn("And then?")
        told = [said for request in model.requests for said in _texts(request) if "build is finished" in said]
        assert [_count(request, "build is finished") for request in model.requests] == [0, 1, 1]
        assert told[0].startswith("[Message from builder]")
        with pytest.raises(NotFound):
            await satchel.post("nosuchsession", "Hello?", source="builder")


@requirement("clients:inbox")
async def test_what_is_posted_while_nobody_has_the_session_waits_for_it(tmp_path: Path) -> None:
    model = ScriptedModel(["First.", "Second."])
    async with opened(tmp_path, model) as satchel:
        session = await satchel.session()
        await session.run_turn("Hello.")
        await session.aclose()
        await satchel.post(session.id, "Nobody was here.", source="cron")
    async with opened(tmp_path, model) as satchel:
        session = await satchel.session(session.id)
        await session.run_turn("Anything new?")
        assert _count(model.requests[-1], "Nobody was here.") == 1
        with sqlite3.connect(tmp_path / "home" / "satchel.db") as database:
            assert database.execute("select count(*) from session_inbox").fetchone() == (0,)


def _texts(request: ModelRequest) -> list[str]:
    return [getattr(block, "text", "") for message in request.messages for block in message.blocks]


def _count(request: ModelRequest, words: str) -> int:
    return sum(words in text for text in _texts(request))


@requirement("clients:notices")
async def test_a_notice_is_heard_by_every_session(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel(["One.", "Two."])) as satchel:
        one, two = await satchel.session(), await satchel.session()
        await one.run_turn("Hello.")
        await two.run_turn("Hello.")
        async with followed(one, None) as first, followed(two, None) as second:
            satchel.notices.post(Notice(part="mcp", text="The server weather is down."))
        assert [record.event for record in first] == [record.event for record in second]
        assert [record.event.type for record in first] == ["notice"]


@requirement("clients:close")
async def test_a_tool_that_fails_while_closing_leaves_no_session_locked(tmp_path: Path) -> None:
    class Fails:
        async def aclose(self) -> None:
            raise RuntimeError("I can't stop.")

    async def start(_: Mapping[str, Any], context: ToolContext) -> ToolResult:
        context.state["own"] = Fails()
        return ToolResult(text="started")

    tool = function_tool(start, name="start", description="Starts.", properties={})
    async with opened(tmp_path, ScriptedModel([Reply(calls=[Call(name="start")]), "Done."])) as satchel:
        session = await satchel.session(tools=[tool])
        await session.run_turn("Start it.")
        await session.aclose()
        again = await satchel.session(session.id)
        assert again.turns == 1


@requirement("clients:background")
async def test_a_background_task_that_fails_ends_nothing_and_is_reported(tmp_path: Path) -> None:
    async def fail() -> None:
        raise RuntimeError("This is a defect.")

    async with opened(tmp_path, ScriptedModel(["Still here."])) as satchel:
        satchel.parts.background.start(fail)
        await anyio.wait_all_tasks_blocked()
        assert (await (await satchel.session()).run_turn("Hello?")).text == "Still here."
        assert any("This is a defect." in notice.text for notice in satchel.notices)


@requirement("clients:busy")
async def test_a_message_waits_for_a_compaction(tmp_path: Path) -> None:
    reached, hold = anyio.Event(), anyio.Event()

    async def before() -> None:
        reached.set()
        await hold.wait()

    def script(request: ModelRequest) -> Reply:
        return Reply(text="Summary.", before=before) if "transcript" in request.system else Reply(text="Yes.")

    async with opened(tmp_path, ScriptedModel(script)) as satchel:
        session = await satchel.session()
        for _ in range(4):
            await session.run_turn("word " * 2_000)
        async with anyio.create_task_group() as group:
            group.start_soon(session.compact)
            with anyio.fail_after(60):
                await reached.wait()
            waiting = await session.start("And me?")
            assert waiting.waits
            hold.set()
            with anyio.fail_after(60):
                assert (await waiting.result()).text == "Yes."


@requirement("clients:busy")
async def test_a_message_that_waits_is_sent_although_the_log_could_not_be_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, hold = anyio.Event(), anyio.Event()

    async def held() -> None:
        reached.set()
        await hold.wait()

    async with opened(tmp_path, ScriptedModel([Reply(text="One.", before=held), "Two."])) as satchel:
        session = await satchel.session()
        await session.start("The red kite.")
        waiting = await session.start("And me?")
        with anyio.fail_after(60):
            await reached.wait()
        load = satchel.sessions.load

        async def fails_once(*_: object, **__: object) -> None:
            monkeypatch.setattr(satchel.sessions, "load", load)
            raise StorageError("The database is away.")

        for must_read in satchel.home.on_redacted:
            await must_read(session.id)
        monkeypatch.setattr(satchel.sessions, "load", fails_once)
        hold.set()
        with anyio.fail_after(60):
            assert (await waiting.result()).text == "Two."


@requirement("clients:busy")
async def test_a_turn_can_be_interrupted_while_it_is_still_getting_ready(tmp_path: Path) -> None:
    tools = tmp_path / "home" / "tools"
    tools.mkdir(parents=True, mode=0o700)
    slow = tools / "slow"
    slow.write_text("#!/bin/sh\nsleep 30\n")
    slow.chmod(0o700)
    model = ScriptedModel(["Never.", "Answered."])
    async with opened(tmp_path, model, tools__schema_timeout_s=5) as satchel:
        session = await satchel.session()
        with anyio.fail_after(120):
            running = await session.start("Hello")
            session.cancel()
            result = await running.result()
        assert (result.status, model.requests) == ("cancelled", [])


@requirement("clients:join")
async def test_who_joins_an_open_session_takes_it_as_it_is(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel([])) as satchel:
        session = await satchel.session(mode="plan")
        assert (await satchel.session(session.id)).mode == "plan"
        with pytest.raises(UsageError, match="takes it as it is"):
            await satchel.session(session.id, mode="bypass")


@requirement("storage:postgres:servers")
async def test_a_session_is_handed_over_only_while_nobody_needs_it(tmp_path: Path) -> None:
    go_on = anyio.Event()
    async with opened(tmp_path, ScriptedModel(["One.", Reply(text="Two.", before=go_on.wait)])) as satchel:
        session = await satchel.session()
        await (await session.start("Hello")).result()
        assert not await satchel.hand_over(session.id)
        session.is_spare = True
        running = await session.start("And?")
        assert not await satchel.hand_over(session.id)
        go_on.set()
        await running.result()
        with anyio.fail_after(60):
            while not await satchel.hand_over(session.id):
                await anyio.wait_all_tasks_blocked()
        assert session.is_closed
        assert not satchel.has_open(session.id)
        assert (await satchel.session(session.id)).turns == 2
