"""The parts of an open session, each by itself: its log, its line, and what is delivered to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from satchel.clock import ManualClock
from satchel.errors import LineFull, StorageError
from satchel.events import Event, MessageTakenBack, MessageWaiting
from satchel.loop import ToolPool
from satchel.runtime.background import Background
from satchel.runtime.deliveries import Deliveries
from satchel.runtime.driver import TurnBeginning
from satchel.runtime.log_redactor import LogRedactor
from satchel.runtime.notices import NoticeBoard
from satchel.runtime.replay import Replay
from satchel.runtime.session_files import SessionFiles
from satchel.runtime.session_log import SessionLog
from satchel.runtime.waiting_line import WaitingLine
from satchel.sandbox.port import Sandbox
from satchel.sessions import SessionStore
from satchel.sessions.attachments import Uploads
from satchel.tasks import background_tasks
from tests.sessions.worlds import said

pytestmark = pytest.mark.anyio

SECRET = "AKIA" + "QYLPMN5HFIQR7XYA"


async def _no_sandbox() -> Sandbox:
    raise AssertionError


@dataclass
class Part:
    sessions: SessionStore
    log: SessionLog
    replay: Replay
    followed: list[Event]

    async def written(self) -> list[Event]:
        return [record.event for record in await self.log.journal.records()]


@asynccontextmanager
async def opened(folder: Path, session_id: str | None = None) -> AsyncIterator[Part]:
    clock, pool = ManualClock(), ToolPool(1)
    sessions, replay = SessionStore(folder / "sessions", None, clock=clock), Replay()
    journal = await (
        sessions.create(folder) if session_id is None else sessions.open(session_id, visit=replay)
    )
    files = SessionFiles(
        folder=journal.spill_dir,
        uploads=Uploads(folder),
        pool=pool,
        sandbox=_no_sandbox,
        notices=NoticeBoard(),
    )
    redactor = LogRedactor(redacts=True, pool=pool)
    log = SessionLog(journal, replay, sessions=sessions, files=files, redactor=redactor, clock=clock)
    followed: list[Event] = []

    async def follow(event: Event) -> None:
        followed.append(event)

    log.followers.append(follow)
    try:
        yield Part(sessions, log, replay, followed)
    finally:
        await journal.aclose()
        pool.close()


async def test_a_log_writes_without_secrets_what_it_shows_as_it_was_said(tmp_path: Path) -> None:
    async with opened(tmp_path) as part:
        event = said(f"The key is {SECRET}.")
        shown = part.log.broadcast.subscribe()
        await part.log.record(event)
        assert (await anext(shown)).event == event
        assert part.followed == [event]
        assert await part.written() == [said("The key is [redacted:aws-key].")]


async def test_what_is_forgotten_while_something_runs_is_not_written_and_the_log_is_read_at_its_end(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as part:
        log, cleaned = part.log, list[str]()
        log.on_forgotten.append(lambda clean: cleaned.append(clean("the red kite")))
        log.activity = "A test is running"
        log.forget(lambda _, text, __: text.replace("kite", "[forgotten]"), ())
        before = log.conversation
        await log.record(said("The red kite hangs there."))
        assert cleaned == ["the red [forgotten]"]
        assert await part.written() == [said("The red [forgotten] hangs there.")]
        assert log.conversation is before
        await log.rest()
        assert log.activity == ""
        assert [message.text for message in log.conversation.messages] == ["The red [forgotten] hangs there."]


async def test_what_ran_has_ended_also_if_the_log_cannot_be_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: object, **__: object) -> None:
        raise StorageError("The disk is gone.")

    async with opened(tmp_path) as part:
        await part.log.record(said("The red kite hangs there."))
        part.log.activity = "A test is running"
        part.log.forget(lambda _, text, __: text, ())
        with monkeypatch.context() as patch:
            patch.setattr(part.sessions, "load", fails)
            await part.log.rest()
            assert part.log.activity == ""
            with pytest.raises(StorageError):
                await part.log.take_in()
        before = part.log.conversation
        await part.log.take_in()
        assert part.log.conversation is not before, "it is read before anything is said"


async def test_a_line_keeps_ten_messages_in_the_log_and_gives_them_back_in_order(tmp_path: Path) -> None:
    async with opened(tmp_path) as part, background_tasks() as group:
        line = WaitingLine(part.log, Background(group, report=lambda _: None))
        running = [await line.join(TurnBeginning(text=f"Number {n}")) for n in range(10)]
        with pytest.raises(LineFull):
            await line.join(TurnBeginning(text="One too many"))
        taken = await line.take_back(running[1].waited)
        assert taken is not None
        assert taken.text == "Number 1"
        assert (await running[1].result()).status == "cancelled"
        first, second = line.next(), line.next()
        assert first == (TurnBeginning(text="Number 0"), running[0])
        assert second == (TurnBeginning(text="Number 2"), running[2])
        line.is_held = True
        assert line.next() is None
        events = await part.written()
        assert [type(event) for event in events] == [*[MessageWaiting] * 10, MessageTakenBack]


async def test_what_was_posted_is_delivered_once_also_after_the_log_was_opened_again(tmp_path: Path) -> None:
    async with opened(tmp_path) as part:
        deliveries = Deliveries(part.log, part.replay, inbox=part.sessions.inbox, builds=None)
        await deliveries.post("The oven is warm.", source="the kitchen")
        [post] = deliveries.next
        id = part.log.id
    async with opened(tmp_path, id) as part:
        deliveries = Deliveries(part.log, part.replay, inbox=part.sessions.inbox, builds=None)
        assert deliveries.next == (post,)
        await deliveries.settle([post.id])
        assert not deliveries.next
        assert part.replay.delivered == {post.id}
