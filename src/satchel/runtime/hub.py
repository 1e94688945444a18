"""An open session, shared by all of its clients: runs its turns, writes its log, and publishes its events."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import anyio

from satchel.clock import local_day
from satchel.errors import LineFull, NotFound, SatchelError, StorageError, UsageError
from satchel.events import (
    Action,
    AskUser,
    BuildPosted,
    Compaction,
    Event,
    MemoryCaptured,
    MemorySurfaced,
    MessageTakenBack,
    MessageWaiting,
    ModelCalled,
    Notice,
    Observation,
    Posted,
    QuestionAnswered,
    QuestionAsked,
    Record,
    SessionEnd,
    SessionFiled,
    SessionTitled,
    SubAgentEvent,
    SurfacedMemory,
    TurnEnd,
    TurnResumed,
    TurnStart,
    is_transient,
)
from satchel.events import (
    Final as FinalEvent,
)
from satchel.loop import (
    CallEnvironment,
    HardBudget,
    Hook,
    PrefixWatch,
    Sampling,
    TokenEstimator,
    TurnInput,
    TurnLimits,
    TurnRunner,
    compact_now,
    run_call,
)
from satchel.memory.store.spending import Asked
from satchel.messages import Block, FileBlock, Message, TextBlock, ToolResultBlock, size_of_text
from satchel.models import ChatModel, Completion
from satchel.runtime.attachments import Attachments
from satchel.runtime.broadcast import Broadcast
from satchel.runtime.builds import Builds
from satchel.runtime.deliveries import Deliveries, post_block
from satchel.runtime.distilling import Distilling
from satchel.runtime.home import Home
from satchel.runtime.log_redactor import LogRedactor
from satchel.runtime.offered_tools import OfferedTools
from satchel.runtime.parts import Parts
from satchel.runtime.projects import SessionScope
from satchel.runtime.questions import Questions
from satchel.runtime.replay import Replay
from satchel.runtime.session_memory import SessionMemory
from satchel.runtime.session_tools import SessionTools
from satchel.runtime.sinks import HistorySink, SinkFeed
from satchel.runtime.sub_agents import SubAgents
from satchel.runtime.surroundings import surroundings_block, time_block
from satchel.runtime.taking_over import turns_of
from satchel.runtime.titling import Titling
from satchel.runtime.turns import TURN, RunningTurn, TurnResult, result_of
from satchel.runtime.web import close_state
from satchel.sessions import EphemeralJournal, Journal, Words, live_redactor
from satchel.sessions.attachments import MOST_FILES
from satchel.sessions.view import SessionView, turns_in
from satchel.tools import ModeGate, Registry, ToolResult
from satchel.tools.builtin.jobs import MOST_RESULT, USERS_CALL, BackgroundCommands, Job, source_of
from satchel.tools.builtin.jobs import STATE_KEY as JOBS
from satchel.tools.builtin.todo import STATE_KEY as TO_DO
from satchel.tools.documents.texts import write_texts
from satchel.tools.kept import kept_path, with_text_size
from satchel.tools.pictures.shrinking import make_smaller

_log = logging.getLogger(__name__)
_turns = logging.getLogger("satchel.turns")

_DURABLE: Final = (
    TurnStart, TurnResumed, QuestionAsked, QuestionAnswered, Action, AskUser, FinalEvent, TurnEnd, Compaction, Posted,
    BuildPosted, MessageWaiting, MessageTakenBack, SessionFiled,
)  # fmt: skip
"""Events that must survive a power failure before anything else happens: what is acknowledged, and what a tool is about
to do."""
_UNNOTICED_S: Final = 0.5
"""How long a message waits for external tools before the user is told; known tools take a few milliseconds."""
_GOES_ON: Final = (
    "[The user has written nothing since. Finish now what they asked for and this was built for; "
    "if it could not be built, tell them, or do it in another way.]"
)
_PLANS: Final = (
    "[Plan mode: you can read, and everything else is refused. If the user asks for work, look at all that the plan "
    "needs, ask what only they know, then propose the plan: tool_call with the name propose_plan and the input "
    '{"plan": "the approach, in Markdown", "steps": ["…"]}. A question needs no plan.]'
)
_MOST_WAITING: Final = 10
"""Messages in line. Whoever sends in a loop must not fill the log and the day's budget while one turn runs."""
_MOST_GONE_ON: Final = 3
"""Turns in a row without a message of the user, each of which may ask for another build."""
_CLOSING_STEP_S: Final = 5.0
"""The time limit of each step of closing, because a tool that hangs must not keep the session locked."""


@dataclass(slots=True)
class _Gathered:
    """What is collected during a turn for its capture and its result.

    Attributes:
        keeps: The turn is captured as memory.
        logged: Its records, without secrets.
        forgotten: Take the words out that were forgotten since the turn began.
        named: The memories that the model was shown before and that bear on the message.
    """

    keeps: bool
    is_written: bool = False
    view: SessionView = field(default_factory=SessionView)
    logged: list[Record] = field(default_factory=list)
    forgotten: list[Callable[[str], str]] = field(default_factory=list)
    named: tuple[SurfacedMemory, ...] = ()

    def result(self, session_id: str, question: AskUser | None) -> TurnResult:
        """What the turn came to. Its question may have been logged before it was resumed."""
        result = result_of(session_id, self.view.turn)
        asked = question.question if question is not None else None
        return replace(result, memory=(*result.memory, *self.named), pending_question=asked)


@dataclass(slots=True)
class _Waiting:
    """A message in line.

    Attributes:
        options: What the log doesn't keep of how its turn is to run; see `Session.start`.
        is_written: It is in the log, so that its sender knows that it waits.
    """

    message: MessageWaiting
    running: RunningTurn
    options: Mapping[str, Any] = field(default_factory=dict)
    is_written: bool = True


class SessionHub:
    """An open session. Each session has one hub in a process, and every event of the session passes through `record`.

    Attributes:
        path: The log's file; None for an ephemeral session.
        private: Nothing said is captured as memory.
        gate: Decides which calls may run; its `mode` may be changed.
        attachments: What comes with the next message.
        deliveries: What others have for it: posts, news of builds and their questions.
        jobs: Its commands in the background.
        sources: Where its tools come from.
        holds_line: No more turns of messages that wait are begun: the program is about to end. The log keeps them.
        project_id: The project that it is in, which may be gone; "" is none.
        scope: What it remembers with, and whose instructions it follows.
        is_closing: Closing has begun: the session takes no more messages; `closed` is set at its end.
    """

    def __init__(
        self,
        *,
        parts: Parts,
        home: Home,
        scope: SessionScope,
        distilling: Distilling,
        journal: Journal | EphemeralJournal,
        replay: Replay,
        model: ChatModel,
        system: Callable[[], str],
        gate: ModeGate,
        questions: Questions,
        broadcast: Broadcast,
        tools: OfferedTools,
        environment: CallEnvironment,
        redactor: LogRedactor,
        limits: TurnLimits,
        private: bool,
        hooks: Sequence[Hook],
        estimator: TokenEstimator,
        sinks: Sequence[HistorySink],
        builds: Builds | None,
        attachments: Attachments,
        is_followed: Callable[[], bool],
        sub_agent_system: Callable[[], str],
    ) -> None:
        """Use `Satchel.session`."""
        self.attachments = attachments
        self.id = journal.session_id
        self.path: Path | None = journal.path
        self.cwd = environment.cwd
        self.private = private
        self.gate = gate
        self.conversation = replay.conversation
        self.tools = tools
        self.broadcast = broadcast
        self.questions = questions
        self._parts = parts
        self._home = home
        self.scope = scope
        self.project_id = replay.project
        self._memory = SessionMemory(
            session_id=journal.session_id,
            parts=parts,
            home=home,
            scope=scope,
            distilling=distilling,
            conversation=lambda: self.conversation,
            record=self._record_quietly,
        )
        self._titling = Titling(
            parts,
            home,
            is_titled=replay.is_titled,
            check_budget=self.check_budget,
            count=self.count_model_call,
            record=self.record,
        )
        self._journal = journal
        self.model = model
        self._compose = system
        self._system = system()
        self._environment = environment
        self._limits = limits
        self._hooks = hooks
        self._estimator = estimator
        self._watch = PrefixWatch()
        self.redactor = redactor
        self._recording = anyio.Lock(fast_acquire=True)
        self._sinks = SinkFeed(sinks, broadcast=broadcast, background=parts.background) if sinks else None
        self.running: RunningTurn | None = None
        self._gathered: _Gathered | None = None
        self._activity = ""
        self.is_closing = False
        self.closed = anyio.Event()
        self._direct_calls = 0
        self._early_notices: list[Notice] = []
        self._unlisten = parts.notices.listen(self._hear)
        self._unwatch = parts.notices.watch(
            lambda notice: self.broadcast.publish_transient(notice, at=parts.clock.now(), is_kept=False)
        )
        self._needs_reload = False
        self._is_ending = False
        self.deliveries = Deliveries(
            session_id=journal.session_id,
            sessions=home.sessions,
            builds=builds,
            replay=replay,
            conversation=lambda: self.conversation,
            record=self.record,
            note=self._record_quietly,
        )
        self.sources = SessionTools(tools, parts=parts, gate=gate, cwd=environment.cwd, builds=builds)
        self._is_followed = is_followed
        self._gone_on = 0
        self._last_kept = replay.last_kept
        self._line: list[_Waiting] = []
        self.holds_line = False
        sub_agents = SubAgents(
            parts=parts,
            system=sub_agent_system,
            model=lambda: self.model,
            conversation=lambda: self.conversation,
            environment=lambda: self._environment,
            record=self.record,
            budget=self._budget,
            limits=limits,
            hooks=hooks,
            estimator=estimator,
        )
        self._environment = replace(environment, delegate=sub_agents)
        for message in replay.waiting.values():
            self._stand_in_line(message)
        self.questions.restore(replay.questions)
        self._lost_jobs = replay.jobs
        self.jobs = BackgroundCommands(
            spawn=parts.background.start,
            on_end=self._tell_end,
            on_read=lambda job: self.deliveries.withdraw(source_of(job.number)),
            clock=parts.clock,
            newest=replay.newest_job,
        )
        environment.state[JOBS] = self.jobs

    @property
    def has_begun(self) -> bool:
        """Whether something was said in it, so that notices are shown at once."""
        turn = self._gathered
        return turn.is_written if turn is not None else self.conversation.turns > 0

    @property
    def is_busy(self) -> bool:
        """Whether something runs in it, or waits for its turn."""
        return bool(self._activity or self._line or self.jobs.running)

    async def use_scope(self, scope: SessionScope) -> None:
        """Remember with these memories, and follow these instructions, from the next turn on."""
        self.scope.project, self.scope.memory, self.scope.also = scope.project, scope.memory, scope.also
        self._system = self._compose()
        if self._environment.memory is not None:
            self._environment = replace(self._environment, memory=scope.memory)
        await self.tools.update(wait=False)
        # The provider reads the conversation again, which is what the user asked for.
        self._watch.restart()

    @asynccontextmanager
    async def moving(self) -> AsyncIterator[None]:
        """Begin no turn meanwhile, so that all of it remembers in one place; messages wait.

        Raises:
            UsageError: Something else runs, or the session is closed.
        """
        self._refuse_while_busy()
        self._activity = "The conversation is being moved"
        try:
            yield
        finally:
            await self._reload_if_needed()
            self._rest()

    # Events

    async def record(self, *events: Event) -> tuple[Record, ...]:
        """Log events, then publish them, so that nothing is shown that a crash could take back.

        Events that are never logged skip the lock, the redaction and the log.

        Returns:
            The records of the events that were logged, as they are in the log.

        Raises:
            StorageError: The log can't be written; nothing was published.
        """
        if self._showed(events):
            return ()
        lasting = [event for event in events if not is_transient(event)]
        for event in lasting:
            match event:
                case Observation(files=files) | SubAgentEvent(event=Observation(files=files)):
                    await self._make_readable(files)
                case _:
                    pass
        durable = any(isinstance(event, _DURABLE) for event in lasting)

        async def without(forgotten: Sequence[str]) -> Sequence[Event]:
            self._forget_taken(forgotten)
            return await self.redactor.redacted(lasting)

        async with self._recording:
            written = await self._journal.append(
                await self.redactor.redacted(lasting), durable=durable, forgotten=without
            )
            for record, event in zip(written, lasting, strict=True):
                self.broadcast.publish(replace(record, event=event))
        for event in lasting:
            match event:
                case Observation(data={"status": "building", "build_id": str(build_id), **rest}) if build_id:
                    await self.deliveries.have_built(
                        build_id, model=self.model, wish=str(rest.get("wish", ""))
                    )
                case SessionTitled():
                    self._titling.is_titled = True
                case _:
                    pass
        return written

    def _showed(self, events: Sequence[Event]) -> bool:
        """Show events that are never logged; False, and nothing is shown, if one of them is."""
        if not all(map(is_transient, events)):
            return False
        for event in events:
            self.broadcast.publish_transient(event, at=self._parts.clock.now())
        return True

    def _hear(self, notice: Notice) -> None:
        """Record a notice from the board. Before the first message it waits, because a session in which nothing is said
        should leave no log.
        """
        if self.has_begun:
            if self._gathered is not None:
                self._gathered.view.take(notice)
            self._parts.background.start(self._record_quietly, notice)
        else:
            self._early_notices.append(notice)

    async def _record_quietly(self, *events: Event) -> None:
        """Record events that don't matter if the log can't be written any more."""
        with suppress(StorageError):
            await self.record(*events)

    # Turns

    def start(
        self,
        text: str,
        *,
        memory: bool = True,
        results: Sequence[ToolResultBlock] = (),
        question_id: str | None = None,
        captures: bool = True,
        sampling: Sampling | None = None,
        attached: str = "",
        files: Sequence[FileBlock] = (),
        waited: RunningTurn | None = None,
    ) -> RunningTurn:
        """Begin a turn, which continues in the background, whether or not anybody follows it.

        Args:
            text: The user's message; may be empty if there are results.
            memory: Whether the model is shown relevant memories, and the turn is captured as memory.
            results: The results of the calls that the caller ran.
            question_id: The question that the text answers; None answers the open one, if there is one.
            captures: See `Session.start`.
            sampling: See `Session.start`.
            attached: See `Session.start`.
            files: What is attached; the copies are with the session.
            waited: The turn whose message has waited in line.

        Raises:
            UsageError: The message is empty, a turn is running, or the session is closed.
            NotFound: No question with this id is open.
        """
        if not isinstance(text, str):
            raise UsageError(f"A message must be a text, not {type(text).__name__}.")
        if not text.strip() and not results and not files:
            raise UsageError("The message is empty.")
        self._refuse_while_busy()
        question = self.conversation.question
        if question_id is not None and (question is None or question.call_id != question_id):
            raise NotFound(f"No question {question_id!r} is open in session {self.id}.")
        self._gone_on = 0
        self._last_kept = memory and captures
        self.attachments.waiting = attached
        return self._begin(
            lambda running, gathered: self._runner(
                text, running, gathered, memory=memory, results=results, files=files, sampling=sampling
            ),
            number=self.conversation.turns + 1,
            keeps=memory and captures,
            waited=waited,
        )

    # The line

    @property
    def context_tokens(self) -> int:
        """See `Session.context_tokens`."""
        return self._estimator.tokens(self.conversation.size)

    @property
    def memory_tokens(self) -> int:
        """See `Session.memory_tokens`."""
        blocks = (block for message in self.conversation.messages for block in message.blocks)
        shown = (block for block in blocks if isinstance(block, TextBlock) and block.origin == "memory")
        return self._estimator.tokens(sum(size_of_text(block.text) for block in shown))

    @property
    def waiting(self) -> tuple[MessageWaiting, ...]:
        """The messages in line, the next one first."""
        return tuple(one.message for one in self._line)

    async def send(
        self,
        text: str,
        *,
        memory: bool,
        results: Sequence[ToolResultBlock],
        attached: str,
        files: Sequence[FileBlock] = (),
        **options: Any,
    ) -> RunningTurn:
        """Begin a turn, or let the message wait for the end of what runs and of those that came before it.

        An answer does not wait: neither to the question that ended the last turn, nor results of the caller's calls.

        Raises:
            LineFull: Too many messages wait.
            StorageError: It can't be written to disk; it doesn't wait.
            UsageError, NotFound: As `start`; or a file was never sent.
        """
        files = await self._taken(files)
        waits = self._activity or (self._line and not self._awaits_answer)
        if not waits or results or not (text.strip() or files) or self.is_closing:
            running = self.start(
                text, memory=memory, results=results, attached=attached, files=files, **options
            )
            await self._drop(files)
            return running
        if len(self._line) >= _MOST_WAITING:
            raise LineFull(
                f"{_MOST_WAITING} messages wait in session {self.id}, and no more may. Wait until one of them begins, "
                "or take one back."
            )
        message = MessageWaiting(
            id=f"said-{uuid4().hex}", text=text, memory=memory, attached=attached, files=tuple(files)
        )
        one = self._stand_in_line(message, options)
        one.is_written = False
        try:
            await self.record(message)
        except BaseException:
            if one in self._line:
                self._leave_line(one)
            raise
        one.is_written = True
        await self._drop(files)
        self._advance()
        return one.running

    async def _taken(self, files: Sequence[FileBlock]) -> Sequence[FileBlock]:
        """Copy what is attached to the session, so that the log names nothing that isn't there."""
        if not files:
            return ()
        if len(files) > MOST_FILES:
            raise UsageError(f"A message may have {MOST_FILES} files at most.")
        spill_dir = self._environment.spill_dir
        taken = await self._parts.pool.run(self._parts.uploads.take, files, spill_dir)
        await self._make_readable(taken)
        return await self._parts.pool.run(lambda: [with_text_size(spill_dir, file) for file in taken])

    async def _make_readable(self, files: Sequence[FileBlock]) -> None:
        """Put smaller pictures beside large ones, and the text of documents beside them, before a model is asked."""
        place, sandbox = self._environment.spill_dir, self._parts.sandboxes.get
        for part, make in (("pictures", make_smaller), ("documents", write_texts)):
            for trouble in await make(files, place, sandbox):
                self._parts.notices.post_once(Notice(part=part, text=trouble))

    async def _drop(self, files: Sequence[FileBlock]) -> None:
        if files:
            await self._parts.pool.run(self._parts.uploads.drop, files)

    def _read_file(self, file: FileBlock) -> bytes | None:
        """The bytes of an attached file; None if they are gone."""
        try:
            return kept_path(self._environment.spill_dir, file).read_bytes()
        except OSError:
            return None

    def _stand_in_line(self, message: MessageWaiting, options: Mapping[str, Any] | None = None) -> _Waiting:
        one = _Waiting(message, RunningTurn(0, self.broadcast, waited=message.id), options or {})
        one.running.stop_with(lambda: self._parts.background.start(self.take_back, message.id))
        self._line.append(one)
        return one

    def _leave_line(self, one: _Waiting) -> None:
        self._line.remove(one)
        one.running.finish(TurnResult(session_id=self.id, turn=0, status="cancelled", text=""))

    async def take_back(self, id: str) -> MessageWaiting | None:
        """Take a message out of the line. None if it is not in it: its turn has begun."""
        one = next((one for one in self._line if one.message.id == id), None)
        if one is None:
            return None
        self._leave_line(one)
        await self.record(MessageTakenBack(id=id))
        return one.message

    @property
    def _awaits_answer(self) -> bool:
        return self.conversation.question is not None or bool(self.conversation.calls_for_caller)

    def _advance(self) -> None:
        """Begin the turn of the message that is first in line, unless something runs or waits for an answer."""
        if not self._line or self._activity or self.is_closing or self.holds_line or self._awaits_answer:
            return
        one = self._line[0]
        if one.is_written:  # otherwise its sender comes here next
            del self._line[0]
            said = one.message
            self.start(
                said.text,
                memory=said.memory,
                attached=said.attached,
                files=said.files,
                waited=one.running,
                **one.options,
            )

    def _rest(self) -> None:
        """Nothing runs any more."""
        self._activity = ""
        self._advance()

    def resume(self) -> RunningTurn:
        """Continue the turn that the program left unfinished.

        Calls that had not started run now; those that had started are answered with "interrupted; outcome unknown".

        Raises:
            UsageError: No turn is unfinished, one is running, or the session is closed.
        """
        self._refuse_while_busy()
        if not self.conversation.is_unfinished:
            raise UsageError(f"Session {self.id} has no interrupted turn.")
        return self._begin(
            lambda running, gathered: self._runner(None, running, gathered),
            number=self.conversation.turns,
            keeps=True,
        )

    def _begin(
        self, prepare: Any, *, number: int, keeps: bool, waited: RunningTurn | None = None
    ) -> RunningTurn:
        running = self.running = waited or RunningTurn(number, self.broadcast)
        running.begin(number)
        # No title is made of a conversation in which something is off the record.
        self._titling.is_titled = self._titling.is_titled or not keeps
        gathered = self._gathered = _Gathered(
            keeps=keeps and not self.private and self._parts.settings.keeps_memory
        )
        self._activity = "A turn is running"
        self._parts.background.start(self._drive, running, gathered, prepare)
        return running

    async def _drive(self, running: RunningTurn, gathered: _Gathered, prepare: Any) -> None:
        outcome: TurnResult | Exception
        TURN.set((self.id, running.number))
        try:
            runner: TurnRunner | None = None
            with anyio.CancelScope() as scope:
                running.stop_with(partial(self._interrupt, scope.cancel))
                runner = await prepare(running, gathered)
            if runner is None:
                # Interrupted before anything was logged, so there is nothing to close. It must not come again.
                if running.waited:
                    await self.record(MessageTakenBack(id=running.waited))
                outcome = TurnResult(session_id=self.id, turn=running.number, status="cancelled", text="")
            else:
                running.stop_with(partial(self._interrupt, runner.cancel))
                ended = await runner.run()
                # The turn could not be written to the log, so it is not acknowledged: the caller gets the error.
                failed = isinstance(ended.error, StorageError)
                outcome = ended.error if failed and ended.error else gathered.result(self.id, ended.question)
        # A boundary: the turn runs in the background, and whoever waits for it needs every outcome.
        except Exception as error:  # noqa: BLE001
            outcome = error
        except BaseException:
            self._end_turn(running, SatchelError(f"Session {self.id} was closed while a turn was running."))
            raise
        ended_as = outcome.status if isinstance(outcome, TurnResult) else type(outcome).__name__
        _turns.info("The turn ended: %s.", ended_as)
        await self._reload_if_needed()
        # What a program asks for has nobody who looks for it in a list, and what is off the record is told to no other
        # model.
        names = not self.private and self.questions.has_audience()
        self._end_turn(running, outcome)
        if names and isinstance(outcome, TurnResult) and outcome.status in ("done", "asking"):
            self._titling.begin(self.conversation)
        self._advance()

    async def _reload_if_needed(self) -> None:
        self.redactor.end_turn()
        if self._needs_reload:
            self._is_ending = True
            try:
                await self.reload()
            finally:
                self._is_ending = False

    def _end_turn(self, running: RunningTurn, outcome: TurnResult | Exception) -> None:
        self.running = self._gathered = None
        self._activity = ""
        self.questions.close()
        running.finish(outcome)

    async def _runner(
        self,
        text: str | None,
        running: RunningTurn,
        gathered: _Gathered,
        *,
        memory: bool = True,
        results: Sequence[ToolResultBlock] = (),
        files: Sequence[FileBlock] = (),
        sampling: Sampling | None = None,
        goes_on: bool = False,
    ) -> TurnRunner:
        """Prepare a turn, up to its first event."""
        await self._take_in_rewriting()
        if not await self._parts.external.wait(_UNNOTICED_S):
            waiting = Notice(part="tools", text="Waiting for external tools to report their schemas.")
            self.broadcast.publish_transient(waiting, at=self._parts.clock.now())
        notices = [Notice(part="tools", text=notice) for notice in await self.sources.ensure_ready()]
        await self.deliveries.collect_posts()
        await self.deliveries.collect_builds()
        self.tools.fix()
        posted = self.deliveries.next if text is not None else ()
        message = (
            None if text is None else self._message(text, memory, [*results, *files], posted, goes_on=goes_on)
        )
        self._environment = replace(
            self._environment,
            tools=self.tools.toolbox,
            # If nobody can answer, the question of a tool ends the turn instead.
            ask=self.questions.ask if self.questions.has_audience() else None,
        )

        async def emit(events: Sequence[Event]) -> None:
            await self._emit(events, gathered, notices)

        async def refresh() -> None:
            self._forget_taken(await self._journal.take_rewritten() or ())
            # The model may have repeated the words since they were forgotten.
            for clean in gathered.forgotten:
                self.conversation.rewrite(clean)
            self._take_to_do()

        is_guests = await self._memory.is_guests(text)

        async def surface(messages: Sequence[Message]) -> MemorySurfaced | None:
            shown, gathered.named = await self._memory.surface(
                messages, model=self.model, is_guests=is_guests
            )
            return shown

        surfaces = text is not None and memory and not goes_on and self.scope.memory is not None
        return TurnRunner(
            TurnInput(
                turn=running.number,
                conversation=self.conversation,
                message=message,
                inbox=(*(post.id for post in posted), *([running.waited] if running.waited else [])),
                model=self.model,
                system=self._system,
                environment=self._environment,
                emit=emit,
                clock=self._parts.clock,
                limits=self._limits,
                sampling=sampling or Sampling(),
                budget=self._budget(),
                surface=surface if surfaces else None,
                standing=partial(self._memory.stand, self.model) if surfaces and not is_guests else None,
                is_guests=is_guests,
                hooks=self._hooks,
                estimator=self._estimator,
                watch=self._watch,
                refresh=refresh,
                read_file=self._read_file,
            )
        )

    def _message(
        self,
        text: str,
        memory: bool,
        first: Sequence[Block],
        posted: Sequence[Posted],
        *,
        goes_on: bool,
    ) -> Message:
        blocks: list[Block] = [*first]
        if text.strip():
            blocks.append(TextBlock(text=text))
        folder = self._environment.spill_dir
        blocks += [
            TextBlock(
                text=f"[Attached by the user: {file.name}, {file.media_type}, {file.size:,} bytes. Tools find it at "
                f"{kept_path(folder, file)}]",
                origin="context",
            )
            for file in first
            if isinstance(file, FileBlock) and folder is not None
        ]
        blocks += [post_block(post) for post in posted]
        if goes_on:
            blocks.append(TextBlock(text=_GOES_ON, origin="notice"))
        if self.gate.mode == "plan" and not self.conversation.proposes_plan:
            blocks.append(TextBlock(text=_PLANS, origin="notice"))
        blocks += self._memory.absent(self.model, wanted=memory)
        if not self.conversation.turns:
            blocks.append(surroundings_block(self.cwd, self._parts.settings.environ))
        blocks.append(time_block(self._parts.clock.now()))
        return Message(role="user", blocks=tuple(blocks))

    def _interrupt(self, cancel: Callable[[], object]) -> None:
        cancel()
        self._journal.stop_waiting()

    async def stop(self, running: RunningTurn) -> None:
        """Interrupt a turn and wait until it has ended."""
        running.cancel()
        with anyio.CancelScope(shield=True):
            await running.ended()

    def _refuse_while_busy(self) -> None:
        if self.is_closing:
            raise UsageError(f"Session {self.id} is closed.")
        if self._activity:
            raise UsageError(f"{self._activity} in session {self.id}. Wait until it ends, or interrupt it.")

    async def _emit(self, events: Sequence[Event], gathered: _Gathered, first: Sequence[Notice] = ()) -> None:
        """Record what the loop emits. The end of the turn is recorded after the capture."""
        if self._showed(events):
            return
        batch = list(events)
        starts = [event for event in batch if isinstance(event, TurnStart)]
        if not gathered.is_written:
            gathered.is_written = True
            told = {notice.text for notice in first}
            batch += [*first, *(early for early in self._early_notices if early.text not in told)]
            self._early_notices = []
        if not gathered.keeps:
            # Marked as captured at once, or a later process would take it for a turn whose capture a crash prevented.
            batch += [MemoryCaptured(turn=start.turn, ids=()) for start in starts]
        ending = [event for event in batch if isinstance(event, TurnEnd)]
        await self._record_turn([event for event in batch if not isinstance(event, TurnEnd)], gathered)
        if ending and gathered.keeps:
            notices = await self._memory.capture(
                ending[0].turn,
                turns_in(gathered.logged, provider=self.model.provider),
                forgotten=gathered.forgotten,
            )
            await self._record_turn(notices, gathered)
        await self._record_turn(ending, gathered)
        for start in starts:
            self.deliveries.build_news.begin_turn(start.message.text)
            await self.deliveries.settle(start.inbox)

    async def _record_turn(self, events: Sequence[Event], gathered: _Gathered) -> None:
        if not events:
            return
        for event in events:
            gathered.view.take(event)
        records = await self.record(*events)
        gathered.logged.extend(records)
        for event in events:
            await self._memory.check_shown(event)
            if isinstance(event, FinalEvent) and self.running is not None:
                self.running.said_all()

    # Forgetting

    def forget_words(self, redact: Callable[[str, str, bool], str], ids: Sequence[str]) -> None:
        """Take forgotten words out of the conversation at once, and out of whatever the running turn still writes."""
        is_surfaced = self.conversation.has_shown(ids)
        self._titling.stop()

        def clean(text: str) -> str:
            return redact(self.id, text, is_surfaced)

        self.conversation.rewrite(clean, ids)
        self._take_to_do()
        self._watch.restart()
        if self._activity:
            self.redactor.forget(clean)
            self._needs_reload = True
        if self._gathered is not None:
            self._gathered.forgotten.append(clean)
        for one in self._line:
            said = one.message
            one.message = replace(said, text=clean(said.text), attached=clean(said.attached))

    async def reload(self) -> None:
        """Read the log again, because words in it were forgotten. If a turn is running, this happens when it ends."""
        if self._activity and not self._is_ending:
            self._needs_reload = True
            return
        await self._read_log()

    async def _take_in_rewriting(self) -> None:
        """Read the log again if another process has forgotten words in it; nothing else tells this one."""
        if await self._journal.take_rewritten() is not None or self._needs_reload:
            await self._read_log()

    def _take_to_do(self) -> None:
        """The list that the tool keeps has no words that were forgotten."""
        to_do = self.conversation.to_do
        self._environment.state[TO_DO] = list(to_do.data) if to_do is not None else []

    def _forget_taken(self, texts: Sequence[str]) -> None:
        """The same while something runs, which a new conversation would not reach."""
        if texts:
            self.forget_words(live_redactor([Words(text=text) for text in texts]), ())
            self._needs_reload = True

    async def _read_log(self) -> None:
        self._needs_reload = False
        with suppress(NotFound):  # nothing was logged yet
            replay = Replay()
            log = await self._home.sessions.load(self.id, visit=replay)
            replay.end(log.last_seq)
            self.conversation = replay.conversation
            self.deliveries.restore(replay)
        self.broadcast.forget()
        self._watch.restart()

    def go_on(self) -> None:
        """Begin a turn that finishes what the user asked for, if a build that its model waited for has ended.

        Only where a client follows the session: otherwise the next message tells the model. Not more than a few times
        without a message of the user.
        """
        if (
            not self.deliveries.is_due
            or self._activity
            or self.is_closing
            or self.conversation.is_unfinished
            or self.conversation.question is not None
            or self._line
            or not self._is_followed()
            or self._gone_on >= _MOST_GONE_ON
        ):
            return
        self._gone_on += 1
        self._begin(
            lambda running, gathered: self._runner("", running, gathered, goes_on=True),
            number=self.conversation.turns + 1,
            keeps=self._last_kept,
        )

    # What was said elsewhere

    async def take_over(self, history: Sequence[Message]) -> None:
        """See `Session.take_over`."""
        self._refuse_while_busy()
        if self.conversation.turns:
            raise UsageError(f"Session {self.id} has begun, so it can't take over another conversation.")
        events = turns_of(history, provider=self.model.provider, model=self.model.model)
        for event in events:
            self.conversation.apply(event)
        if events:
            await self.record(*events)

    # Questions

    @property
    def open_questions(self) -> tuple[QuestionAsked | AskUser, ...]:
        """All questions that wait for an answer, oldest first."""
        own = self.conversation.question
        return (*self.questions.open.values(), *([own] if own is not None and not self._activity else []))

    async def answer(self, id: str, **answer: Any) -> RunningTurn | None:
        """See `Session.answer`."""
        if await self.deliveries.answer(id, answer):
            return None
        own = self.conversation.question
        if own is not None and own.call_id == id:
            if self.running is not None:
                await self.running.ended()  # clients see the question while its turn is ending
            return self.start(answer.get("text") or "", question_id=id)
        await self.questions.answer(id, **answer)
        if self._activity or not self.conversation.is_unfinished:
            return None
        # The program ended while this turn was asking. With its last answer, it continues.
        return self.resume() if not self.questions.open else None

    # Between turns

    def _budget(self) -> HardBudget:
        budget = self._parts.settings.budget
        return HardBudget(
            session_usd=budget.session_usd,
            day_usd=budget.day_usd,
            turn_tokens=budget.turn_tokens,
            conversation=lambda: self.conversation,
            spent_on_day=self._spent_on_day,
        )

    async def _spent_on_day(self) -> float:
        return await self._home.spent_on(local_day(self._parts.clock.now()))

    async def check_budget(self) -> None:
        """See `HardBudget.check_call`."""
        await self._budget().check_call()

    async def count_model_call(self, purpose: str, answer: Completion | Asked) -> None:
        """Log a model call that is not part of the conversation, so that the session's usage includes it."""
        event = ModelCalled(
            turn=self.conversation.turns,
            purpose=purpose,
            provider=answer.provider,
            model=answer.model,
            usage=answer.usage,
        )
        await self.record(event)
        self.conversation.apply(event)

    async def compact(self, focus: str = "") -> Compaction | None:
        """See `Session.compact`."""
        self._refuse_while_busy()
        if self.conversation.question is not None:
            raise UsageError("A question to you is open. Answer it before you compact the conversation.")
        self._activity = "The conversation is being compacted"
        try:
            await self._take_in_rewriting()
            event = await compact_now(
                self.conversation,
                model=self.model,
                emit=lambda events: self.record(*events),
                estimator=self._estimator,
                limits=self._limits,
                focus=focus,
                session_id=self.id,
                hooks=self._hooks,
                read_file=self._read_file,
            )
            if event is not None:
                self._watch.restart()
            return event
        finally:
            await self._reload_if_needed()
            self._rest()

    async def run_tool(
        self, name: str, input: Mapping[str, Any], *, show: Callable[[Event], None]
    ) -> ToolResult:
        """See `Session.run_tool`."""
        self._refuse_while_busy()
        self._activity = "A tool is running"
        try:
            await self.sources.ensure_ready()
            self._direct_calls += 1

            async def emit(events: Sequence[Event]) -> None:
                await self.record(*events)
                for event in events:
                    show(event)

            called = await run_call(
                name,
                input,
                # With the length of the log, the id is unique even if the session is closed and opened again.
                call_id=f"{USERS_CALL}{self._journal.last_seq}_{self._direct_calls}",
                turn=self.conversation.turns,
                environment=replace(self._environment, tools=self.tools.toolbox),
                emit=emit,
                clock=self._parts.clock,
                limits=self._limits,
                hooks=self._hooks,
            )
            return ToolResult(text=called.result, is_error=called.is_error, data=called.data)
        finally:
            await self._reload_if_needed()
            self._rest()

    # Tools and model

    async def refresh_tools(self) -> Registry:
        """See `Session.refresh_tools`."""
        self._refuse_while_busy()
        return await self.sources.refresh()

    def use_model(self, model: ChatModel) -> None:
        """See `Session.use_model`."""
        self._refuse_while_busy()
        self.model = model
        self._watch.restart()

    # Commands in the background

    async def _tell_end(self, job: Job) -> None:
        rows = [f"{job.state} {job.command}"]
        if job.result:
            cut = job.result[:MOST_RESULT] + ("…" if len(job.result) > MOST_RESULT else "")
            rows += [f"> {line}" for line in cut.splitlines()]
        await self.deliveries.post(
            "\n".join(rows), source=source_of(job.number), untrusted=job.untrusted and bool(job.result)
        )

    async def tell_lost_jobs(self) -> None:
        """Tell of those that ended with a program that could not tell."""
        for number in sorted(self._lost_jobs):
            text = f"Background command {number} ended when Satchel did. What it printed is gone."
            await self.deliveries.post(text, source=source_of(number))
        self._lost_jobs = set()

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
                    await self.stop(self.running)
                for one in self._line:
                    why = f"Session {self.id} was closed. The message waits in it, and is sent before its next one."
                    one.running.finish(SatchelError(why))
                await self._step("a title", self._titling.aclose())
                await self._step("a tool", close_state(self._environment.state))
                if self.conversation.turns:
                    await self._step("the log", self.record(SessionEnd(reason=reason)))
            finally:
                self._unlisten()
                self._unwatch()
                self.broadcast.close()
                if self._sinks is not None:
                    await self._step("a history sink", self._sinks.close())
                await self._step("the log", self._journal.aclose())
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
