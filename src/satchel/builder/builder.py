"""Builds a capability: one model with six tools in one sandbox, journaled like any session, resumed after a kill."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio

from satchel.builder.asking import Asking
from satchel.builder.queue import BuildQueue
from satchel.builder.records import CANCELLED, DECLINED, EARNED, Build, BuildMessage
from satchel.builder.registering import Registering
from satchel.builder.story import Story, late_answer_mark
from satchel.builder.tasks import GO_ON, MOVED, NOT_FINISHED, answers_text, gave_up, system_prompt
from satchel.builder.tools import BuildTools
from satchel.builder.workshop import Workshop, wanted_packages
from satchel.capabilities.running import LayerMaker, counted_by
from satchel.clock import Clock
from satchel.config import BuilderSettings
from satchel.errors import NotFound, SatchelError, StorageError
from satchel.events import (
    Action,
    Compaction,
    Event,
    MemoryCaptured,
    ModelCalled,
    SessionEnd,
    SessionStart,
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
    Spill,
    Toolbox,
    ToolPool,
    TurnInput,
    TurnLimits,
    TurnRunner,
)
from satchel.messages import Message, TextBlock, Usage
from satchel.models import ChatModel
from satchel.sandbox.port import Broker, Network, Sandbox, SessionSpec
from satchel.sessions import Journal, SessionStore
from satchel.tools import Decision, PlannedCall, ToolResult
from satchel.version import __version__
from satchel.wording import yes_or_no

_log = logging.getLogger(__name__)

_DURABLE: Final = (TurnStart, TurnResumed, Action, FinalEvent, TurnEnd, Compaction)
_MOST_ATTEMPTS: Final = 50
"""A build that ends the process each time must not be begun for ever. Twenty kills are a test's number."""
_MOST_DONE: Final = 3
"""Turns that the model may end without a registration before the build has failed."""
_LOOK_S: Final = 0.5
"""How often a build looks whether it was cancelled, which is one short read, or its time is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Builder:
    """Runs builds. One of them may run several at the same time.

    Attributes:
        prepare: Fills the working folder before the first round, for a repair.
        brief: What the model is told besides the task when a build begins.
        clean: Returns events without secrets; see the session logs.
        lend: The broker for what the code of a capability may call.
        spent_on_day: What all sessions have spent today, in US dollars; `day_usd` is the limit, or None.
    """

    settings: BuilderSettings
    clock: Clock
    queue: BuildQueue
    sessions: SessionStore
    sandbox: Callable[[], Awaitable[Sandbox]]
    model: Callable[[Build], Awaitable[ChatModel]]
    folder: Callable[[Build], Path]
    prepare: Callable[[Build, Workshop], Awaitable[None]]
    brief: Callable[[Build], Awaitable[str]]
    clean: Callable[[Sequence[Event]], Awaitable[Sequence[Event]]]
    layers: LayerMaker
    network: Callable[[Sequence[str]], Network]
    lend: Callable[[str, Sequence[str]], AbstractContextManager[Broker]]
    registering: Registering
    fail: Callable[[Build, str], Awaitable[None]]
    pool: ToolPool
    spill: Callable[[Path], Spill]
    environ: Mapping[str, str] = field(repr=False)
    spent_on_day: Callable[[], Awaitable[float]]
    day_usd: float | None = None

    async def build(self, build_id: str) -> Build:
        """Begin a build, or continue it where it stopped, until it has ended or waits for the user.

        Raises:
            NotFound: There is no such build.
            StorageLocked: Another process is building it.
            StorageError: The end could not be stored; the build can be continued.
        """
        build = await self.queue.get(build_id)
        if build.has_ended or build.status == "waiting":
            return build
        async with self._opened(build) as (journal, story):
            build = await self.queue.begin(build_id)
            if build.has_ended:
                return build
            if not await self.may_go_on(build):
                return await self._failed(build, CANCELLED)
            answer = await self.queue.answer_to(build.id, EARNED)
            if answer is None and await self.queue.proposal(build.id):
                return await self.queue.lay_aside(build.id)
            if answer is not None and not yes_or_no(answer.payload.get("text") or ""):
                return await self._failed(build, DECLINED)
            if build.attempts > _MOST_ATTEMPTS:
                return await self._failed(build, f"It was interrupted {_MOST_ATTEMPTS} times.")
            try:
                return await self._build(build, journal, story)
            except SatchelError as error:
                return await self._failed(build, str(error))

    async def may_go_on(self, build: Build) -> bool:
        """False once it was cancelled, or its capability removed. What it has registered still has to be told."""
        registering = self.registering
        # Whose build it is, the capability says: on a server, others can write the rows of builds.
        capability = await registering.catalogue.building(build.id)
        is_open = capability is not None and capability.id == build.capability_id
        return is_open or await registering.registered(build) is not None

    async def _failed(self, build: Build, reason: str) -> Build:
        # The catalogue first: once the build has ended, nobody looks at it again.
        await self.fail(build, reason)
        has_packages = await anyio.Path(self.folder(build) / "requirements.txt").exists()
        is_own = not has_packages and not await self.registering.reads_others(build)
        return await self.queue.end(build.id, "failed", reason, is_own=is_own)

    @asynccontextmanager
    async def _opened(self, build: Build) -> AsyncIterator[tuple[Journal, Story]]:
        story = Story()
        try:
            journal = await self.sessions.open(build.session_id, visit=story)
            story.conversation.end(journal.last_seq)
        except NotFound:
            journal = await self.sessions.create(self.folder(build), session_id=build.session_id)
        async with journal:
            yield journal, story

    async def _build(self, build: Build, journal: Journal, story: Story) -> Build:
        done = await self.registering.registered(build)
        proposal = await self.queue.proposal(build.id)
        if done is None and proposal.get("draft"):
            done = await self.registering.agreed(build, proposal)
        if done is not None:
            if story.conversation.is_unfinished:
                await journal.append(_end_of_turn(story, "Registered."), durable=True)
        else:
            model = await self.model(build)
            work = _Work(self, build, journal=journal, story=story, model=model)
            reason = await work.run()
            done = await self.registering.registered(build)
            if done is None and not reason:
                return await self.queue.lay_aside(build.id)
            if done is None:
                if story.refused and reason != CANCELLED and not gave_up(reason):
                    reason = f"{reason}\nThe last registration was refused: {story.refused}"
                return await self._failed(build, reason)
        return await self.queue.end(build.id, done.status, done.text, heard=story.heard)


class _Work:
    """One process's work on one build."""

    def __init__(
        self, builder: Builder, build: Build, *, journal: Journal, story: Story, model: ChatModel
    ) -> None:
        self._builder = builder
        self._build = build
        self._journal = journal
        self._story = story
        self._model = model
        self._settings = builder.settings
        self._is_late = False
        self._is_cancelled = False
        self._has_moved = False

    async def run(self) -> str:
        """Work until something is registered, the user is waited for, or it can't go on. Returns why it can't."""
        builder, build, settings = self._builder, self._build, self._settings
        await self._record(
            SessionStart(
                session_id=build.session_id,
                cwd=str(builder.folder(build)),
                provider=self._model.provider,
                model=self._model.model,
                version=__version__,
                resumed=self._journal.last_seq > 0,
                private=True,
            )
        )
        began_elsewhere = (
            bool(self._story.conversation.turns) and not await anyio.Path(builder.folder(build)).exists()
        )
        workshop = Workshop(
            await builder.sandbox(),
            SessionSpec(folder=builder.folder(build)),
            layers=builder.layers,
            network=builder.network,
            lend=partial(builder.lend, build.name),
        )
        asking = Asking(build, queue=builder.queue, clock=builder.clock, wait_s=settings.question_wait_s)
        async with workshop:
            if began_elsewhere or not self._story.conversation.turns:
                await builder.prepare(build, workshop)
            if began_elsewhere:
                await self._repeat(workshop)
            tools = BuildTools(
                build,
                workshop=workshop,
                story=self._story,
                queue=builder.queue,
                asking=asking,
                wait_s=settings.question_wait_s,
                registering=builder.registering,
                clock=builder.clock,
            )
            reason = await self._turns(tools)
        await self._record(SessionEnd(reason="the build ended or waits"))
        return reason

    async def _repeat(self, workshop: Workshop) -> None:
        """Write again what was written at another machine, whose folder isn't here."""
        for command in self._story.installs:
            with suppress(SatchelError):  # as it was there
                await workshop.require(wanted_packages(command) or ())
        for path, content in self._story.files.items():
            await workshop.write(path, content)
        text = "It goes on at another machine. What commands had made in its folder is not there."
        await self._builder.queue.tell(
            self._build.id, id=f"moved:{self._build.attempts}", type="progress", payload={"text": text}
        )
        self._has_moved = True

    async def _turns(self, tools: BuildTools) -> str:
        toolbox = Toolbox(tools.tools)
        while True:
            answers = await self._answers()
            if answers is None:
                return ""
            message, reason = await self._next_message(answers)
            if reason:
                return reason
            runner = TurnRunner(self._inputs(message, toolbox))
            counted_by.set((self._budget().check_call, self._count))
            async with anyio.create_task_group() as group:
                group.start_soon(self._stop, runner, tools)
                outcome = await runner.run()
                group.cancel_scope.cancel()
            if await self._builder.registering.registered(self._build) is not None:
                return ""
            if self._is_cancelled:
                return CANCELLED
            if self._is_late:
                return f"It took longer than {self._settings.timeout_s / 60:g} minutes (builder.timeout_s)."
            if outcome.status == "cancelled":
                return "It was cancelled."

    async def _answers(self) -> Sequence[tuple[BuildMessage, BuildMessage]] | None:
        """The questions for which the last turn had to end, with their answers; None if one has no answer yet."""
        story = self._story
        if not story.waits_for or story.conversation.open_calls:
            return ()
        if story.conversation.is_unfinished:
            for event in _end_of_turn(story, "It waits for the user."):
                await self._record(event)
        messages = {message.id: message for message in await self._builder.queue.messages(self._build.id)}
        found = [
            (messages[id], await self._builder.queue.answer_to(self._build.id, id)) for id in story.waits_for
        ]
        answers = [(question, answer) for question, answer in found if answer is not None]
        await self._builder.queue.mark_read([answer.number for _, answer in answers])
        return answers if len(answers) == len(found) else None

    async def _next_message(
        self, answers: Sequence[tuple[BuildMessage, BuildMessage]]
    ) -> tuple[Message | None, str]:
        """What the model is told next (None resumes an unfinished turn), or why there is nothing more to say."""
        conversation, settings = self._story.conversation, self._settings
        if self._story.rounds >= settings.max_rounds and not conversation.open_calls:
            return (
                None,
                f"It was not finished after {settings.max_rounds} answers of the model (builder.max_rounds).",
            )
        if self._left_s <= 0:
            return None, f"It took longer than {settings.timeout_s / 60:g} minutes (builder.timeout_s)."
        if not conversation.turns:
            brief = await self._builder.brief(self._build)
            return _said("\n\n".join(part for part in (self._build.task, brief) if part)), ""
        if conversation.is_unfinished:
            return None, ""
        if answers:
            return _said(answers_text(answers)), ""
        final = conversation.turn.final if conversation.turn is not None else None
        text = final.text if final is not None else ""
        match conversation.status:
            case "cancelled":
                return _said(MOVED if self._has_moved else GO_ON), ""
            case "done" if not gave_up(text) and self._story.turns_done < _MOST_DONE:
                return _said(NOT_FINISHED), ""
            case "limit" if self._was_cut_off:
                return _said("Your answer was cut off: it was too long. Go on in smaller steps."), ""
            case _:
                return None, text or "The model ended without saying why."

    @property
    def _was_cut_off(self) -> bool:
        turn = self._story.conversation.turn
        return turn is not None and turn.answer is not None and turn.answer.stop_reason == "max_tokens"

    @property
    def _left_s(self) -> float:
        return self._settings.timeout_s - self._story.used_s

    async def _stop(self, runner: TurnRunner, tools: BuildTools) -> None:
        """Stop the turn when the time is over, or the build was cancelled."""
        while True:
            await anyio.sleep(_LOOK_S)
            if tools.working_s >= self._left_s:
                self._is_late = True
                runner.cancel()
                return
            try:
                may_go_on = await self._builder.may_go_on(self._build)
            except StorageError as error:
                _log.warning("Whether the build %s was cancelled can't be read: %s", self._build.id, error)
                continue
            if not may_go_on:
                self._is_cancelled = True
                runner.cancel()
                return

    def _inputs(self, message: Message | None, toolbox: Toolbox) -> TurnInput:
        builder, build, settings, story = self._builder, self._build, self._settings, self._story
        # A turn counts its own rounds; the limit is for all turns of the build together.
        turn = story.conversation.turn
        in_turn = turn.answer.round if message is None and turn is not None and turn.answer is not None else 0
        folder = builder.folder(build)
        return TurnInput(
            message=message,
            conversation=story.conversation,
            turn=story.conversation.turns + (message is not None),
            model=self._model,
            system=system_prompt(settings),
            environment=CallEnvironment(
                tools=toolbox,
                gate=_Open(),
                pool=builder.pool,
                spill=builder.spill(self._journal.spill_dir),
                session_id=build.session_id,
                cwd=folder,
                roots=(folder,),
                spill_dir=self._journal.spill_dir,
                environ=builder.environ,
            ),
            emit=self._emit,
            clock=builder.clock,
            limits=TurnLimits(
                max_rounds=max(1, settings.max_rounds - story.rounds + in_turn),
                max_tokens=settings.max_tokens,
            ),
            budget=self._budget(),
            hooks=(_LateAnswers(builder.queue, build, story), *((_Moved(),) if self._has_moved else ())),
        )

    def _budget(self) -> HardBudget:
        return HardBudget(
            session_usd=self._settings.usd,
            day_usd=self._builder.day_usd,
            conversation=lambda: self._story.conversation,
            spent_on_day=self._builder.spent_on_day,
        )

    async def _count(self, provider: str, model: str, usage: Usage) -> None:
        """Log what code that is tried out has asked a model, so that the build's usage includes it."""
        turn = self._story.conversation.turns
        await self._record(
            ModelCalled(turn=turn, purpose="capability", provider=provider, model=model, usage=usage)
        )

    async def _record(self, event: Event) -> None:
        self._story.conversation.apply(event)
        await self._emit([event])

    async def _emit(self, events: Sequence[Event]) -> None:
        """See `satchel.loop.Emit`."""
        lasting = [event for event in events if not is_transient(event)]
        for event in lasting:
            self._story.note(event)
        # A build's session is no conversation with the user: none of it becomes memory.
        lasting += [MemoryCaptured(turn=e.turn, ids=()) for e in events if isinstance(e, TurnStart)]
        if lasting:
            durable = any(isinstance(event, _DURABLE) for event in lasting)
            await self._journal.append(await self._builder.clean(lasting), durable=durable)


class _Open:
    """The gate of a build: its tools reach nothing but its sandbox and the user."""

    async def decide(self, calls: Sequence[PlannedCall]) -> Sequence[Decision]:
        """See `Gate`."""
        return [Decision(allowed=True, by="mode") for _ in calls]


class _LateAnswers:
    """Adds answers that came too late for their questions, and wishes, to the next result, so that the model gets them
    while it works.
    """

    def __init__(self, queue: BuildQueue, build: Build, story: Story) -> None:
        self._queue = queue
        self._build = build
        self._story = story
        # Two results may be looked at before the first of them is in the log.
        self._taken: set[str] = set()

    async def on_observation(self, action: Action, result: ToolResult) -> ToolResult | None:
        """See `satchel.loop.OnObservation`."""
        if isinstance(result.data, Mapping) and result.data.get("answered"):
            self._taken.add(action.call_id)
        messages = await self._queue.messages(self._build.id)
        given_up = {m.payload.get("question_id") for m in messages if m.type == "progress"} - {None}
        late = {
            id: m
            for m in messages
            if (id := _late_id(m, given_up)) and id not in self._story.late_answers | self._taken
        }
        # After a registration nothing is heard any more: the end of the build names the wish.
        if not late or result.ends_turn:
            return None
        self._taken.update(late)
        notes = [f"{late_answer_mark(id)}\n{_said_late(message)}" for id, message in late.items()]
        await self._queue.mark_read([message.number for message in late.values()])
        return replace(result, text="\n\n".join((result.text, *notes)))


class _Moved:
    """Tells the model, with its next result, that it goes on at another machine."""

    def __init__(self) -> None:
        self._is_told = False

    async def on_observation(self, action: Action, result: ToolResult) -> ToolResult | None:
        """See `satchel.loop.OnObservation`."""
        del action
        if self._is_told:
            return None
        self._is_told = True
        return replace(result, text=f"{result.text}\n\n{MOVED}")


def _late_id(message: BuildMessage, given_up: Collection[Any]) -> str:
    """What the log calls a message that its model is told with a result; "" if it is no such message."""
    if message.wish:
        return message.id
    asked = message.payload.get("question_id")
    return str(asked) if message.type == "answer" and asked in given_up else ""


def _said_late(message: BuildMessage) -> str:
    if message.wish:
        return f"The user adds, as a part of your task: {message.wish}"
    words = message.payload.get("text")
    return "The user does not want to answer." if words is None else f"The user answers after all: {words}"


def _end_of_turn(story: Story, text: str) -> Sequence[Event]:
    """The end of a turn after whose last call the process was interrupted."""
    turn = story.conversation.turns
    ended = TurnEnd(turn=turn, status="done", rounds=story.rounds, usage=Usage(), duration_ms=0.0)
    return FinalEvent(turn=turn, text=text, status="done"), ended


def _said(text: str) -> Message:
    return Message(role="user", blocks=(TextBlock(text=text),))
