"""An open session, shared by all of its clients: decides what runs in it, and when."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final, Protocol

import anyio

from satchel.errors import NotFound, SatchelError, UsageError
from satchel.events import AskUser, Compaction, Event, QuestionAsked, SessionEnd, SessionTitled
from satchel.loop import compact_now, run_call
from satchel.messages import Message
from satchel.models import ChatModel
from satchel.runtime.driver import Driver, TurnBeginning
from satchel.runtime.questions import AskedClient
from satchel.runtime.replay import Replay
from satchel.runtime.sinks import HistorySink, SinkFeed
from satchel.runtime.taking_over import turns_of
from satchel.runtime.titling import Titling
from satchel.runtime.turns import TURN, RunningTurn, TurnResult
from satchel.runtime.waiting_line import WaitingLine
from satchel.runtime.web import close_state
from satchel.tools import ToolResult
from satchel.tools.builtin.jobs import STATE_KEY as JOBS
from satchel.tools.builtin.jobs import USERS_CALL, BackgroundCommands

_log = logging.getLogger(__name__)
_turns = logging.getLogger("satchel.turns")

_MOST_GONE_ON: Final = 3
"""Turns in a row without a message of the user, each of which may ask for another build."""
_CLOSING_STEP_S: Final = 5.0
"""The time limit of each step of closing, because a tool that hangs must not keep the session locked."""


class Client(AskedClient, Protocol):
    """One client's hold on a session; see `Session`."""

    is_spare: bool

    @property
    def follows(self) -> bool:
        """Whether it sees a turn that begins by itself."""


class SessionHub:
    """An open session; each has one hub in a process. Its parts do the work, and know nothing of the hub.

    Attributes:
        private: Nothing said is captured as memory.
        project_id: The project that it is in, which may be gone; "" is none.
        is_closing: Closing has begun: the session takes no more messages; `closed` is set at its end.
    """

    def __init__(
        self,
        driver: Driver,
        replay: Replay,
        *,
        titling: Titling,
        clients: set[Client],
        private: bool,
        sinks: Sequence[HistorySink],
    ) -> None:
        """Use `Satchel.session`."""
        parts, log, deliveries = driver.parts, driver.log, driver.deliveries
        self.id = log.id
        self.log = log
        self.driver = driver
        self.line = WaitingLine(log, parts.background, replay.waiting.values())
        self.deliveries = deliveries
        self.clients = clients
        self.private = private
        self.project_id = replay.project
        self.running: RunningTurn | None = None
        self.is_closing = False
        self.closed = anyio.Event()
        self._questions = driver.questions
        self._titling = titling
        self._direct_calls = 0
        self._gone_on = 0
        self._last_kept = replay.last_kept
        self._sinks = SinkFeed(sinks, broadcast=log.broadcast, background=parts.background) if sinks else None
        self._unlisten = parts.notices.listen(driver.hear)
        self._unwatch = parts.notices.watch(lambda notice: log.show(notice, is_kept=False))
        driver.questions.restore(replay.questions)
        self.jobs = BackgroundCommands(
            spawn=parts.background.start,
            on_end=deliveries.tell_end,
            on_read=deliveries.withdraw,
            clock=parts.clock,
            newest=replay.newest_job,
        )
        driver.environment.state[JOBS] = self.jobs

    @property
    def is_busy(self) -> bool:
        """Whether something runs in it, or waits for its turn."""
        return bool(self.log.activity or self.line.messages or self.jobs.running)

    def refuse_while_busy(self) -> None:
        """Raise a `UsageError` if something runs, or the session is closed."""
        if self.is_closing:
            raise UsageError(f"Session {self.id} is closed.")
        if self.log.activity:
            raise UsageError(
                f"{self.log.activity} in session {self.id}. Wait until it ends, or interrupt it."
            )

    @asynccontextmanager
    async def doing(self, activity: str) -> AsyncIterator[None]:
        """Begin no turn meanwhile; messages wait. `activity` is the beginning of a sentence that says what runs.

        Raises:
            UsageError: Something else runs, or the session is closed.
        """
        self.refuse_while_busy()
        self.log.activity = activity
        try:
            yield
        finally:
            await self.log.rest()
            self._advance()

    # Turns

    def start(
        self, said: TurnBeginning, *, question_id: str | None = None, waited: RunningTurn | None = None
    ) -> RunningTurn:
        """Begin a turn, which continues in the background, whether or not anybody follows it.

        Args:
            said: The message; its text may be empty if there are results or files, whose copies are with the session.
            question_id: The question that the text answers; None answers the open one, if there is one.
            waited: The turn whose message has waited in line.

        Raises:
            UsageError: The message is empty, a turn is running, or the session is closed.
            NotFound: No question with this id is open.
        """
        if not isinstance(said.text, str):
            raise UsageError(f"A message must be a text, not {type(said.text).__name__}.")
        if not said.text.strip() and not said.results and not said.files:
            raise UsageError("The message is empty.")
        self.refuse_while_busy()
        question = self.log.conversation.question
        if question_id is not None and (question is None or question.call_id != question_id):
            raise NotFound(f"No question {question_id!r} is open in session {self.id}.")
        self._gone_on = 0
        self._last_kept = said.memory and said.captures
        return self._begin(said, keeps=self._last_kept, waited=waited)

    async def send(self, said: TurnBeginning) -> RunningTurn:
        """Begin a turn, or let the message wait for the end of what runs and of those that came before it.

        An answer does not wait: neither to the question that ended the last turn, nor results of the caller's calls.

        Raises:
            LineFull, StorageError: As `WaitingLine.join`.
            UsageError, NotFound: As `start` and `SessionFiles.take`.
        """
        files = self.log.files
        said = replace(said, files=await files.take(said.files))
        waits = self.log.activity or (self.line.messages and not self._awaits_answer)
        is_empty = not (said.text and said.text.strip() or said.files)
        if not waits or said.results or is_empty or self.is_closing:
            running = self.start(said)
        else:
            running = await self.line.join(said)
        await files.drop(said.files)
        self._advance()
        return running

    @property
    def _awaits_answer(self) -> bool:
        conversation = self.log.conversation
        return conversation.question is not None or bool(conversation.calls_for_caller)

    def _advance(self) -> None:
        """Begin the turn of the message that is first in line, unless something runs or waits for an answer."""
        if self.log.activity or self.is_closing or self._awaits_answer:
            return
        first = self.line.next()
        if first is not None:
            self.start(first[0], waited=first[1])

    async def name(self, title: SessionTitled) -> None:
        """Give the session a title that a model made of what was said before, unless it has one or gets none."""
        if not (self._titling.is_titled or self.log.is_outdated):
            await self.log.record(title)

    def resume(self) -> RunningTurn:
        """See `Session.resume`."""
        self.refuse_while_busy()
        if not self.log.conversation.is_unfinished:
            raise UsageError(f"Session {self.id} has no interrupted turn.")
        return self._begin(None, keeps=True)

    def go_on(self) -> None:
        """Begin a turn that finishes what the user asked for, if a build that its model waited for has ended.

        Only where a client follows the session: otherwise the next message tells the model. Not more than a few times
        without a message of the user.
        """
        if (
            not self.deliveries.is_due
            or self.log.activity
            or self.is_closing
            or self.log.conversation.is_unfinished
            or self.log.conversation.question is not None
            or self.line.messages
            or not any(client.follows for client in self.clients)
            or self._gone_on >= _MOST_GONE_ON
        ):
            return
        self._gone_on += 1
        self._begin(TurnBeginning(goes_on=True), keeps=self._last_kept)

    def _begin(
        self, said: TurnBeginning | None, *, keeps: bool, waited: RunningTurn | None = None
    ) -> RunningTurn:
        number = self.log.conversation.turns + (said is not None)
        running = self.running = waited or RunningTurn(number, self.log.broadcast)
        running.begin(number)
        # No title is made of a conversation in which something is off the record.
        self._titling.is_titled = self._titling.is_titled or not keeps
        keeps = keeps and not self.private and self.driver.parts.settings.keeps_memory
        self.driver.begin(running, said, keeps=keeps)
        self.log.activity = "A turn is running"
        self.driver.parts.background.start(self._drive, running)
        return running

    async def _drive(self, running: RunningTurn) -> None:
        outcome: TurnResult | Exception
        TURN.set((self.id, running.number))
        try:
            outcome = await self.driver.run()
        # A boundary: the turn runs in the background, and whoever waits for it needs every outcome.
        except Exception as error:  # noqa: BLE001
            outcome = error
        except BaseException:
            self.log.activity = ""
            self._end_turn(running, SatchelError(f"Session {self.id} was closed while a turn was running."))
            raise
        _turns.info(
            "The turn ended: %s.",
            outcome.status if isinstance(outcome, TurnResult) else type(outcome).__name__,
        )
        try:
            await self.log.rest()
        finally:
            self._end_turn(running, outcome)
        # What a program asks for has nobody who looks for it in a list, and what is off the record is told to no other
        # model.
        names = not self.private and self._questions.has_audience()
        if names and isinstance(outcome, TurnResult) and outcome.status in ("done", "asking"):
            self._titling.begin()
        self._advance()

    def _end_turn(self, running: RunningTurn, outcome: TurnResult | Exception) -> None:
        self.running = self.driver.turn = None
        self._questions.close()
        running.finish(outcome)

    # Questions

    @property
    def open_questions(self) -> tuple[QuestionAsked | AskUser, ...]:
        """All questions that wait for an answer, oldest first."""
        own = self.log.conversation.question
        return (
            *self._questions.open.values(),
            *([own] if own is not None and not self.log.activity else []),
        )

    async def answer(self, id: str, **answer: Any) -> RunningTurn | None:
        """See `Session.answer`."""
        if await self.deliveries.answer(id, answer):
            return None
        own = self.log.conversation.question
        if own is not None and own.call_id == id:
            if self.running is not None:
                await self.running.ended()  # clients see the question while its turn is ending
            return self.start(TurnBeginning(text=answer.get("text") or ""), question_id=id)
        await self._questions.answer(id, **answer)
        if self.log.activity or not self.log.conversation.is_unfinished:
            return None
        # The program ended while this turn was asking. With its last answer, it continues.
        return self.resume() if not self._questions.open else None

    # Between turns

    async def take_over(self, history: Sequence[Message]) -> None:
        """See `Session.take_over`."""
        self.refuse_while_busy()
        if self.log.conversation.turns:
            raise UsageError(f"Session {self.id} has begun, so it can't take over another conversation.")
        events = turns_of(history, provider=self.driver.model.provider, model=self.driver.model.model)
        for event in events:
            self.log.conversation.apply(event)
        await self.log.record(*events)

    async def compact(self, focus: str = "") -> Compaction | None:
        """See `Session.compact`."""
        async with self.doing("The conversation is being compacted"):
            if self.log.conversation.question is not None:
                raise UsageError("A question to you is open. Answer it before you compact the conversation.")
            await self.log.take_in()
            terms = self.driver.terms
            event = await compact_now(
                self.log.conversation,
                model=self.driver.model,
                emit=lambda events: self.log.record(*events),
                estimator=terms.estimator,
                limits=terms.limits,
                focus=focus,
                session_id=self.id,
                hooks=terms.hooks,
                read_file=self.log.files.read,
            )
            if event is not None:
                self.log.watch.restart()
            return event

    async def run_tool(
        self, name: str, input: Mapping[str, Any], *, show: Callable[[Event], None]
    ) -> ToolResult:
        """See `Session.run_tool`."""
        async with self.doing("A tool is running"):
            await self.driver.tools.ensure_ready()
            self._direct_calls += 1

            async def emit(events: Sequence[Event]) -> None:
                await self.log.record(*events)
                for event in events:
                    show(event)

            called = await run_call(
                name,
                input,
                # With the length of the log, the id is unique even if the session is closed and opened again.
                call_id=f"{USERS_CALL}{self.log.journal.last_seq}_{self._direct_calls}",
                turn=self.log.conversation.turns,
                environment=replace(self.driver.environment, tools=self.driver.tools.toolbox),
                emit=emit,
                clock=self.driver.parts.clock,
                limits=self.driver.terms.limits,
                hooks=self.driver.terms.hooks,
            )
            return ToolResult(text=called.result, is_error=called.is_error, data=called.data)

    def use_model(self, model: ChatModel) -> None:
        """See `Session.use_model`."""
        self.refuse_while_busy()
        self.driver.model = model
        self.log.watch.restart()

    # The end

    async def close(self, reason: str) -> None:
        """Interrupt the running turn, log the end of the session and release its lock. May be called more than once.

        Each step is bounded and may fail; the lock is released in any case.
        """
        if self.is_closing:
            await self.closed.wait()
            return
        self.is_closing = True
        with anyio.CancelScope(shield=True):
            try:
                if self.running is not None:
                    await self.running.stop()
                why = (
                    f"Session {self.id} was closed. The message waits in it, and is sent before its next one."
                )
                self.line.fail(SatchelError(why))
                await self._step("a title", self._titling.aclose())
                await self._step("a tool", close_state(self.driver.environment.state))
                if self.log.conversation.turns:
                    await self._step("the log", self.log.record(SessionEnd(reason=reason)))
            finally:
                self._unlisten()
                self._unwatch()
                self.log.broadcast.close()
                if self._sinks is not None:
                    await self._step("a history sink", self._sinks.close())
                await self._step("the log", self.log.journal.aclose())
                self.closed.set()

    async def _step(self, part: str, work: Any) -> None:
        try:
            with anyio.move_on_after(_CLOSING_STEP_S) as scope:
                await work
            if scope.cancelled_caught:
                _log.warning("Closing session %s: %s took longer than %g s.", self.id, part, _CLOSING_STEP_S)
        except SatchelError as error:
            _log.warning("Closing session %s: %s failed: %s", self.id, part, error)
        # A boundary: whatever fails here (a tool, a sink, the disk), the lock must be released.
        except Exception:  # noqa: BLE001
            _log.exception("Closing session %s: %s failed.", self.id, part)
