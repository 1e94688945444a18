"""Drives the turns of an open session: prepares each, runs it, and has what was said captured as memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import Final

import anyio

from satchel.errors import StorageError
from satchel.events import (
    Event,
    MemoryCaptured,
    MemorySurfaced,
    MessageTakenBack,
    Notice,
    Observation,
    Posted,
    Record,
    SurfacedMemory,
    TurnEnd,
    TurnStart,
    is_transient,
)
from satchel.events import (
    Final as FinalEvent,
)
from satchel.loop import (
    AddContext,
    CallEnvironment,
    HardBudget,
    Hook,
    Room,
    Sampling,
    TokenEstimator,
    TurnInput,
    TurnLimits,
    TurnRunner,
)
from satchel.messages import Block, FileBlock, Message, TextBlock, ToolResultBlock
from satchel.models import ChatModel
from satchel.models.port import window_of
from satchel.runtime.deliveries import Deliveries, post_block
from satchel.runtime.log_redactor import Clean
from satchel.runtime.parts import Parts
from satchel.runtime.projects import SessionScope
from satchel.runtime.questions import Questions
from satchel.runtime.session_log import SessionLog
from satchel.runtime.session_memory import SessionMemory
from satchel.runtime.session_tools import SessionTools
from satchel.runtime.surroundings import surroundings_block, time_block
from satchel.runtime.turns import RunningTurn, TurnResult, result_of
from satchel.sessions.view import SessionView, turns_in
from satchel.tools.builtin.todo import STATE_KEY as TO_DO

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


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnBeginning:
    """What begins a turn; for what is not described here see `Session.start`.

    Attributes:
        goes_on: Nobody said anything: a build has ended that the model waited for.
    """

    text: str = ""
    memory: bool = True
    results: Sequence[ToolResultBlock] = ()
    captures: bool = True
    sampling: Sampling | None = None
    attached: str = ""
    files: Sequence[FileBlock] = ()
    goes_on: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What holds for every turn of a session, and for its sub-agents.

    Attributes:
        hooks: The program's.
        budget: Makes the budget of a turn.
    """

    limits: TurnLimits
    hooks: Sequence[Hook]
    estimator: TokenEstimator
    budget: Callable[[], HardBudget]


@dataclass(slots=True)
class _Turn:
    """A turn, and what is collected for its capture and its result.

    Attributes:
        said: None resumes the turn that the program left unfinished.
        keeps: It is captured as memory.
        notices: What its first events are followed by.
        logged: Its records, without secrets.
        forgotten: Take the words out that were forgotten since it began.
        named: The memories that the model was shown before and that bear on the message.
    """

    running: RunningTurn
    said: TurnBeginning | None
    keeps: bool
    is_written: bool = False
    notices: list[Notice] = field(default_factory=list)
    view: SessionView = field(default_factory=SessionView)
    logged: list[Record] = field(default_factory=list)
    forgotten: list[Clean] = field(default_factory=list)
    named: tuple[SurfacedMemory, ...] = ()


@dataclass(frozen=True, slots=True)
class _Attached:
    """A hook that adds what was sent along to the message that it came with.

    It is not part of the user's words, so memory doesn't take it for something that the user said.
    """

    text: str

    async def on_turn_start(self, start: TurnStart) -> AddContext | None:
        """See `Hook`."""
        return AddContext(text=self.text, untrusted=True) if self.text else None


@dataclass(slots=True, eq=False)
class Driver:
    """Runs one turn at a time.

    Attributes:
        mentions: A hook that reads what a message mentions.
        environment: Where the next turn's calls run.
        compose: Makes the system text.
        room: What the parts of a request may take of the window of the model.
        turn: The one that has begun and not ended.
    """

    log: SessionLog
    _: KW_ONLY
    parts: Parts
    memory: SessionMemory
    deliveries: Deliveries
    tools: SessionTools
    questions: Questions
    mentions: Hook
    terms: Terms
    environment: CallEnvironment
    model: ChatModel
    compose: Callable[[Room], str]
    room: Room = field(default_factory=Room, init=False)
    turn: _Turn | None = field(default=None, init=False)
    _system: str = field(default="", init=False)
    _early_notices: list[Notice] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        """Follow the log."""
        self._system = self.compose(self.room)
        self.log.followers.append(self._follow)
        self.log.on_forgotten.append(self._forget)

    @property
    def has_begun(self) -> bool:
        """Whether something was said in the session, so that notices are shown at once."""
        return self.turn.is_written if self.turn is not None else self.log.conversation.turns > 0

    async def use_scope(self, scope: SessionScope) -> None:
        """Remember with these memories, and follow these instructions, from the next turn on."""
        own = self.memory.scope
        own.project, own.memory, own.also = scope.project, scope.memory, scope.also
        self._system = self.compose(self.room)
        if self.environment.memory is not None:
            self.environment = replace(self.environment, memory=scope.memory)
        await self.tools.update(wait=False)
        # The provider reads the conversation again, which is what the user asked for.
        self.log.watch.restart()

    async def _fit(self) -> None:
        """Make what is offered fit the window of the model, which another one may be since the last turn."""
        room = Room.of(await window_of(self.model))
        if room != self.room:
            self.room = room
            self._system = self.compose(room)
            self.tools.fit(room.tools_bytes)
            self.log.watch.restart()

    def hear(self, notice: Notice) -> None:
        """Record a notice from the board. Before the first message it waits, because a session in which nothing is said
        should leave no log.
        """
        if self.has_begun:
            if self.turn is not None:
                self.turn.view.take(notice)
            self.parts.background.start(self.log.note, notice)
        else:
            self._early_notices.append(notice)

    def begin(self, running: RunningTurn, said: TurnBeginning | None, *, keeps: bool) -> None:
        """Take in the next turn, which `run` runs."""
        self.turn = _Turn(running, said, keeps)
        self.questions.by_itself = said is not None and said.goes_on

    async def run(self) -> TurnResult:
        """Run the turn that has begun to its end.

        Raises:
            StorageError: It could not be written to the log, so it is not acknowledged.
        """
        turn, runner = self.turn, None
        assert turn is not None
        running = turn.running
        with anyio.CancelScope() as scope:
            running.stop_with(partial(self._interrupt, scope.cancel))
            runner = await self._prepared(turn)
        if runner is None:
            # Interrupted before anything was logged, so there is nothing to close. It must not come again.
            if running.waited:
                await self.log.record(MessageTakenBack(id=running.waited))
            return TurnResult(session_id=self.log.id, turn=running.number, status="cancelled", text="")
        running.stop_with(partial(self._interrupt, runner.cancel))
        ended = await runner.run()
        if isinstance(ended.error, StorageError):
            raise ended.error
        result = result_of(self.log.id, turn.view.turn)
        # The question may have been logged before the turn was resumed.
        asked = ended.question.question if ended.question is not None else None
        return replace(result, memory=(*result.memory, *turn.named), pending_question=asked)

    def _interrupt(self, cancel: Callable[[], object]) -> None:
        cancel()
        self.log.journal.stop_waiting()

    async def _prepared(self, turn: _Turn) -> TurnRunner:
        """The turn, up to its first event."""
        log, said = self.log, turn.said
        await log.take_in()
        if not await self.parts.external.wait(_UNNOTICED_S):
            log.show(Notice(part="tools", text="Waiting for external tools to report their schemas."))
        await self._fit()
        turn.notices = [Notice(part="tools", text=text) for text in await self.tools.ensure_ready()]
        await self.deliveries.collect_posts()
        await self.deliveries.collect_builds()
        self.tools.fix()
        posted = self.deliveries.next if said is not None else ()
        self.environment = replace(
            self.environment,
            tools=self.tools.toolbox,
            # If nobody can answer, the question of a tool ends the turn instead.
            ask=self.questions.ask if self.questions.has_audience() else None,
        )
        is_guests = await self.memory.is_guests(said.text if said is not None else None)

        async def surface(messages: Sequence[Message]) -> MemorySurfaced | None:
            shown, turn.named = await self.memory.surface(messages, model=self.model, is_guests=is_guests)
            return shown

        async def refresh() -> None:
            await log.forget_taken()
            # The model may have repeated the words since they were forgotten.
            for clean in turn.forgotten:
                log.conversation.rewrite(clean)
            self._take_to_do()

        surfaces = said is not None and said.memory and not said.goes_on and self.memory.is_on
        return TurnRunner(
            TurnInput(
                turn=turn.running.number,
                conversation=log.conversation,
                message=self._message(said, posted) if said is not None else None,
                inbox=(
                    *(post.id for post in posted),
                    *([turn.running.waited] if turn.running.waited else []),
                ),
                model=self.model,
                system=self._system,
                environment=self.environment,
                emit=partial(self._emit, turn),
                clock=self.parts.clock,
                limits=self.terms.limits,
                sampling=(said.sampling if said is not None else None) or Sampling(),
                budget=self.terms.budget(),
                surface=surface if surfaces else None,
                standing=partial(self.memory.stand, self.model) if surfaces and not is_guests else None,
                is_guests=is_guests,
                hooks=(
                    self.mentions,
                    _Attached(said.attached if said is not None else ""),
                    *self.terms.hooks,
                ),
                estimator=self.terms.estimator,
                watch=log.watch,
                refresh=refresh,
                read_file=log.files.read,
            )
        )

    def _message(self, said: TurnBeginning, posted: Sequence[Posted]) -> Message:
        conversation = self.log.conversation
        blocks: list[Block] = [*said.results, *said.files]
        if said.text.strip():
            blocks.append(TextBlock(text=said.text))
        blocks += map(self.log.files.block, said.files)
        blocks += map(post_block, posted)
        if said.goes_on:
            blocks.append(TextBlock(text=_GOES_ON, origin="notice"))
        if self.tools.gate.mode == "plan" and not conversation.proposes_plan:
            blocks.append(TextBlock(text=_PLANS, origin="notice"))
        blocks += self.memory.absent(self.model, wanted=said.memory)
        if not conversation.turns:
            blocks.append(surroundings_block(self.environment.cwd, self.parts.settings.environ))
        blocks.append(time_block(self.parts.clock.now()))
        return Message(role="user", blocks=tuple(blocks))

    async def _emit(self, turn: _Turn, events: Sequence[Event]) -> None:
        """Record what the loop emits. The end of the turn is recorded after the capture."""
        if all(map(is_transient, events)):
            await self.log.record(*events)
            return
        starts = [event for event in events if isinstance(event, TurnStart)]
        ending: list[Event] = [event for event in events if isinstance(event, TurnEnd)]
        others = [event for event in events if not isinstance(event, TurnEnd)]
        if not turn.is_written:
            turn.is_written = True
            told = {notice.text for notice in turn.notices}
            others += [*turn.notices, *(early for early in self._early_notices if early.text not in told)]
            self._early_notices = []
        if not turn.keeps:
            # Marked as captured at once, or a later process would take it for a turn whose capture a crash prevented.
            others += [MemoryCaptured(turn=start.turn, ids=()) for start in starts]
        for batch in (others, ending):
            if batch is ending and ending and turn.keeps:
                said = turns_in(turn.logged, provider=self.model.provider)
                number = turn.running.number
                batch[:0] = await self.memory.capture(number, said, forgotten=turn.forgotten)
            for event in batch:
                turn.view.take(event)
            turn.logged += await self.log.record(*batch)
            if any(isinstance(event, FinalEvent) for event in batch):
                turn.running.said_all()
        for start in starts:
            self.deliveries.build_news.begin_turn(start.message.text)
            await self.deliveries.settle(start.inbox)

    async def _follow(self, event: Event) -> None:
        """Have built what a call asks for."""
        match event:
            case Observation(data={"status": "building", "build_id": str(build_id), **rest}) if build_id:
                wish = str(rest.get("wish", ""))
                await self.deliveries.have_built(build_id, model=self.model, wish=wish)
            case Observation(data={"status": "adding", "adds_to": str(build_id), "wish": str(wish)}):
                await self.deliveries.add_wish(build_id, wish)
            case _:
                pass

    def _forget(self, clean: Clean) -> None:
        self._take_to_do()
        if self.turn is not None:
            self.turn.forgotten.append(clean)

    def _take_to_do(self) -> None:
        """The list that the tool keeps has no words that were forgotten."""
        to_do = self.log.conversation.to_do
        self.environment.state[TO_DO] = list(to_do.data) if to_do is not None else []
