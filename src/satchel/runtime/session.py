"""One open session: its history, its journal, and the turns that run in it one after the other."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import ReferenceType, ref

import anyio

from satchel.conversation import Conversation
from satchel.errors import SatchelError, StorageError, UsageError
from satchel.events import (
    Action,
    AskUser,
    Compaction,
    Event,
    Final,
    MemoryCaptured,
    MemorySurfaced,
    Notice,
    Permission,
    Record,
    SessionEnd,
    SurfacedMemory,
    TurnEnd,
    TurnStart,
)
from satchel.loop import (
    CallEnvironment,
    HardBudget,
    Hook,
    Limits,
    PrefixWatch,
    PriorSpend,
    TokenEstimator,
    TurnInput,
    TurnOutcome,
    TurnRunner,
    compact,
    run_call,
)
from satchel.messages import Message, TextBlock, Usage
from satchel.models import ChatModel
from satchel.runtime.capture import RECALL_PROVIDER, episodes_of, said_in
from satchel.runtime.log_redactor import LogRedactor
from satchel.runtime.turns import RunningTurn, Step, Turn
from satchel.runtime.web import close_state
from satchel.sessions import Journal
from satchel.tools import ModeGate, Registry, ToolResult

if TYPE_CHECKING:
    from satchel.runtime.satchel import Satchel

__all__ = ["Session"]

_DURABLE = (TurnStart, Action, AskUser, Final, TurnEnd, Compaction)
"""What must survive a loss of power before anything goes on: what was acknowledged, and what a tool is about to do."""


@dataclass(slots=True)
class _Progress:
    """What is gathered of the running turn for its result; `keeps`: what is said becomes memory."""

    keeps: bool
    said: list[Record] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)
    notices: list[str] = field(default_factory=list)
    memory: tuple[SurfacedMemory, ...] = ()


class Session:
    """A conversation. Made by `Satchel.session`; closed with it, or earlier by `aclose`.

    Attributes:
        id: Names it for ever.
        cwd: Its working directory.
        private: Nothing that is said is captured as memory, from here on.
        gate: Who may run what; its `mode` may be changed.
        tools: What the model may call.
    """

    def __init__(
        self,
        satchel: Satchel,
        *,
        journal: Journal,
        conversation: Conversation,
        model: ChatModel,
        system: str,
        gate: ModeGate,
        tools: Registry,
        environment: CallEnvironment,
        redactor: LogRedactor,
        limits: Limits,
        private: bool,
        hooks: Sequence[Hook] = (),
    ) -> None:
        """Use `Satchel.session`."""
        self.id = journal.session_id
        self.cwd = environment.cwd
        self.private = private
        self.gate = gate
        self.tools = tools
        self._satchel = satchel
        self._journal = journal
        self._model = model
        self._system = system
        self._environment = environment
        self._limits = limits
        self._hooks = hooks
        self._estimator = TokenEstimator()
        self._watch = PrefixWatch()
        self._running: RunningTurn | None = None
        self._turn_lock = anyio.Lock()
        self._is_closed = False
        self._direct_calls = 0
        self._redactor = redactor
        self._has_all_tools = False
        self._mcp_version = -1
        self._conversation = conversation

    @property
    def path(self) -> Path:
        """The log's file."""
        return self._journal.path

    @property
    def model(self) -> ChatModel:
        """What answers."""
        return self._model

    @property
    def turns(self) -> int:
        """How many turns were begun."""
        return self._conversation.turns

    @property
    def usage(self) -> Usage:
        """Tokens and money of the whole session."""
        return self._conversation.usage

    @property
    def messages(self) -> tuple[Message, ...]:
        """The history as the model would get it."""
        return self._conversation.messages

    @property
    def pending_question(self) -> AskUser | None:
        """The question that the next message answers, or None."""
        return self._conversation.question

    @property
    def untrusted(self) -> bool:
        """Whether something from outside is before the model: what it says and stores is kept as from there."""
        return self._conversation.untrusted

    # Turns

    async def run_turn(self, text: str, *, memory: bool = True) -> Turn:
        """Say something and wait for the answer. A task that is cancelled meanwhile interrupts the turn in good order.

        Args:
            text: What the user says.
            memory: Whether fitting memories are shown to the model, and this exchange is kept as one.

        Raises:
            UsageError: The text is empty.
            StorageError: It could not be written down; nothing was asked of the model.
        """
        running = await self.start(text, memory=memory)
        try:
            return await running.result()
        except anyio.get_cancelled_exc_class():
            await self._stop(running)
            raise

    def stream(self, text: str, *, memory: bool = True) -> AsyncIterator[Event]:
        """The same, event by event while it happens. Who stops reading interrupts the turn."""
        reader: list[ReferenceType[AsyncIterator[Event]]] = []
        events = self._stream(text, memory, reader)
        reader.append(ref(events))
        return events

    async def _stream(
        self, text: str, memory: bool, reader: Sequence[ReferenceType[AsyncIterator[Event]]]
    ) -> AsyncIterator[Event]:
        running = await self.start(text, memory=memory)
        running.reader = reader[0]
        try:
            async for event in running.events():
                yield event
        finally:
            await self._stop(running)

    async def start(self, text: str, *, memory: bool = True) -> RunningTurn:
        """Begin a turn that goes on by itself, whoever follows it.

        Raises:
            UsageError: The text is empty, a turn is running, or the session is closed.
        """
        if self._is_closed:
            raise UsageError(f"Session {self.id} is closed.")
        if not isinstance(text, str):
            raise UsageError(f"A message is text, and this is a {type(text).__name__}.")
        if not text.strip():
            raise UsageError("There is nothing to say: the message is empty.")
        if self._running is not None and self._running.is_ending:
            await self._stop(self._running)
        self._refuse_while_running()
        notices = await self.settle_tools()
        blocks = (TextBlock(text=text), *self._without_memory(memory))
        self._refuse_while_running()
        progress = _Progress(keeps=memory and not self.private and self._satchel.settings.keeps_memory)
        turn = TurnRunner(
            TurnInput(
                message=Message(role="user", blocks=blocks),
                conversation=self._conversation,
                turn=self._conversation.turns + 1,
                model=self._model,
                system=self._system,
                environment=self._environment,
                emit=lambda events: self._emit(events, running, progress),
                clock=self._satchel.clock,
                limits=self._limits,
                budget=self._budget(),
                surface=self._surface if memory and self._satchel.memory is not None else None,
                hooks=self._hooks,
                estimator=self._estimator,
                watch=self._watch,
            )
        )
        running = self._running = RunningTurn(turn.cancel)
        if notices:
            progress.notices += notices
            running.tell([Notice(part="tools", text=text) for text in notices])
        self._cost_before = dict(self._journal.cost_by_day)
        self._satchel.run(self._drive, turn, running, progress)
        return running

    def cancel(self) -> None:
        """Interrupt the running turn, if there is one."""
        if self._running is not None:
            self._running.cancel()

    async def _stop(self, running: RunningTurn) -> None:
        running.cancel()
        with anyio.CancelScope(shield=True):
            # Whoever reads the turn's events is told.
            with suppress(SatchelError):
                await running.result()

    async def _drive(self, turn: TurnRunner, running: RunningTurn, progress: _Progress) -> None:
        async with self._turn_lock:
            try:
                outcome = await turn.run()
                if isinstance(outcome.error, StorageError):
                    # What the log did not take was not acknowledged, and the user has to hear that.
                    running.finish(outcome.error)
                else:
                    running.finish(self._result(outcome, progress))
            # A boundary: the turn runs in the background, and whoever waits for it must hear of every end.
            except Exception as error:  # noqa: BLE001
                running.finish(error)
            except BaseException:
                running.finish(SatchelError(f"Session {self.id} was closed while a turn was running."))
                raise

    def _result(self, outcome: TurnOutcome, progress: _Progress) -> Turn:
        steps = tuple(
            Step(
                tool=step.tool,
                input=step.input,
                result=step.result,
                is_error=step.is_error,
                was_refused=step.call_id in progress.refused,
                duration_ms=step.duration_ms,
            )
            for step in outcome.steps
        )
        return Turn(
            session_id=self.id,
            turn=outcome.turn,
            status=outcome.status,
            text=outcome.text,
            steps=steps,
            usage=outcome.usage,
            memory=progress.memory,
            pending_question=outcome.question.question if outcome.question is not None else None,
            notices=tuple(progress.notices),
        )

    async def _emit(self, events: Sequence[Event], running: RunningTurn, progress: _Progress) -> None:
        """Write down, remember, show: in this order, so that nothing is shown that a crash could take back."""
        if not progress.keeps:
            # Settled at once and with nothing: no later process may take it for a turn that a crash kept from memory.
            starts = [event.turn for event in events if isinstance(event, TurnStart)]
            events = [*events, *(MemoryCaptured(turn=turn, ids=()) for turn in starts)]
        if not any(isinstance(event, TurnStart) for event in events):
            told = self._satchel.mcp.take_notices()
            events = [*(Notice(part="mcp", text=text) for text in told), *events]
        ending = [event for event in events if isinstance(event, TurnEnd)]
        if ending:
            before = [event for event in events if not isinstance(event, TurnEnd)]
            await self._write(before, progress)
            after = [*await self._capture(ending[0].turn, progress), *ending]
            await self._write(after, progress)
            events = [*before, *after]
        else:
            await self._write(events, progress)
        for event in events:
            match event:
                case MemorySurfaced():
                    progress.memory = event.memories
                case Notice():
                    progress.notices.append(event.text)
                case Permission(decision="deny", by="nobody" | "rule", call_id=call_id):
                    progress.refused.add(call_id)
                case _:
                    pass
        running.tell(events)

    async def _write(self, events: Sequence[Event], progress: _Progress) -> None:
        durable = any(isinstance(event, _DURABLE) for event in events)
        records = await self._journal.append(await self._redactor.redacted(events), durable=durable)
        progress.said.extend(record for record in records if isinstance(record.event, TurnStart | Final))

    # Memory

    def _without_memory(self, wanted: bool) -> tuple[TextBlock, ...]:
        """What recall has to say instead of an answer, where memory takes no part."""
        if self._model.provider != RECALL_PROVIDER or (wanted and self._satchel.memory is not None):
            return ()
        if not self._satchel.settings.memory.enabled:
            why = "Memory is switched off (memory.enabled)"
        elif not wanted:
            why = "Memory is left out of this message"
        else:
            why = "Memory is not available now"
        return (
            TextBlock(
                text=f"{why}: I looked nothing up, and the session's log alone keeps this.", origin="notice"
            ),
        )

    async def _surface(self, messages: Sequence[Message]) -> MemorySurfaced | None:
        """What to show beside the newest message."""
        memory = self._satchel.memory
        assert memory is not None
        settings = self._satchel.settings.memory
        recalls_only = self._model.provider == RECALL_PROVIDER
        context = await memory.surface(
            messages[-1:] if recalls_only else messages,
            budget_tokens=settings.budget_tokens,
            limit=settings.limit,
            threshold=settings.surface_threshold,
            # A model still sees what was shown to it before; whoever has no model is answered anew each time.
            exclude=() if recalls_only else self._conversation.surfaced_ids,
            exclude_session=None if recalls_only or self._conversation.is_compacted else self.id,
        )
        if not context:
            return None
        return MemorySurfaced(
            turn=self._conversation.turns,
            text=context.text,
            memories=tuple(
                SurfacedMemory(
                    id=hit.memory.id,
                    content=hit.memory.content,
                    score=round(hit.score, 4),
                    session=hit.memory.source.session,
                    source_turn=hit.memory.source.turn,
                )
                for hit in context.memories
            ),
            tokens=context.tokens,
            untrusted=any(hit.memory.trust == "outside" for hit in context.memories),
        )

    async def _capture(self, turn: int, progress: _Progress) -> list[Event]:
        """Keep what was said in a turn; it is in the log already, so a store that fails now catches up later."""
        if not progress.keeps or self._satchel.memory is None:
            return []
        episodes = [
            episode
            for said in said_in(progress.said, provider=self._model.provider)
            for episode in episodes_of(self.id, said)
        ]
        try:
            ids = await self._satchel.memory.add_episodes(episodes)
            self._satchel.distilling.poke()
        except SatchelError as error:
            text = (
                f"This turn is in the session log and not yet in memory; it will be captured later. {error}"
            )
            return [Notice(part="memory", text=text)]
        return [MemoryCaptured(turn=turn, ids=tuple(ids))]

    # Beside the turns

    def _budget(self) -> HardBudget:
        budget = self._satchel.settings.budget
        before = self._conversation.usage.cost_usd or 0.0
        return HardBudget(
            session_usd=budget.session_usd,
            day_usd=budget.day_usd,
            turn_tokens=budget.turn_tokens,
            spent=partial(self._spent, before),
        )

    async def _spent(self, before: float) -> PriorSpend:
        day = f"{self._satchel.clock.now():%Y-%m-%d}"
        return PriorSpend(
            session_usd=before,
            # This turn's own calls are in the log already; the loop counts them itself.
            day_usd=await self._satchel.spent_on(day, excluding=self.id) + self._cost_before.get(day, 0.0),
        )

    async def compact(self, focus: str = "") -> Compaction | None:
        """Replace older messages by a summary now.

        Args:
            focus: What the summary should keep above all.

        Returns:
            What was done, or None where there is nothing to leave out.
        """
        self._refuse_while_running()
        if self._conversation.question is not None:
            raise UsageError("A question to you is open. Answer it first, then compact.")
        if self._conversation.open_calls:
            raise UsageError("Calls of the last answer are open. Send a message first, then compact.")
        notices: list[Event] = []

        async def tell(event: Event) -> None:
            notices.append(event)

        async with self._turn_lock:
            event = await compact(
                self._conversation.messages,
                model=self._model,
                turn=self._conversation.turns,
                trigger="manual",
                emit=tell,
                estimator=self._estimator,
                focus=focus,
                session_id=self.id,
            )
            if event is None:
                return None
            await self._journal.append(await self._redactor.redacted([*notices, event]), durable=True)
            self._conversation.apply(event)
            self._watch.restart()
        return event

    async def run_tool(
        self,
        name: str,
        input: Mapping[str, Any],
        *,
        show: Callable[[Event], None] = lambda _: None,
    ) -> ToolResult:
        """Run a tool that the user asked for, without a model; it is written down like any other call.

        Args:
            name: Of the tool.
            input: Its arguments.
            show: Gets the events while it runs.

        Raises:
            NotFound: There is no such tool.
            UsageError: The input does not fit its schema.
        """
        self._refuse_while_running()
        await self.settle_tools()
        self._direct_calls += 1

        async def emit(events: Sequence[Event]) -> None:
            durable = any(isinstance(event, _DURABLE) for event in events)
            await self._journal.append(await self._redactor.redacted(events), durable=durable)
            for event in events:
                show(event)

        async with self._turn_lock:
            called = await run_call(
                name,
                input,
                # The log's length makes it unique over all times that the session was open.
                call_id=f"user_{self._journal.last_seq}_{self._direct_calls}",
                turn=self._conversation.turns,
                environment=self._environment,
                emit=emit,
                clock=self._satchel.clock,
                limits=self._limits,
                hooks=self._hooks,
            )
        return ToolResult(text=called.result, is_error=called.is_error, data=called.data)

    async def note(self, notice: Notice) -> None:
        """Write a notice into the log that belongs to no turn, such as a `/` command and its output."""
        await self._journal.append(await self._redactor.redacted([notice]))

    async def settle_tools(self) -> list[str]:
        """Wait until everything is there that this session can offer; from then on its tools stay as they are.

        Returns:
            What the user should know of them, the first time; afterwards nothing.
        """
        mcp = self._satchel.mcp
        if self._has_all_tools:
            if self._mcp_version != mcp.version:
                self._mcp_version = mcp.version
                await self._offer(await self._satchel.tools())
            return []
        registry = await self._satchel.tools()
        if self._has_all_tools:
            return []
        self._mcp_version = mcp.version
        self._has_all_tools = self._satchel.external.is_complete
        await self._offer(registry)
        if not self._has_all_tools:
            return ["Some executables are still asked for their schemas; the next message can use them."]
        return list(self._satchel.external.notices)

    async def refresh_tools(self) -> Registry:
        """Look for tools again and offer what is there now.

        What was offered keeps its place and, where it did not change, its bytes, so that the model's provider finds as
        much as possible of the conversation in its cache; new tools are added at the end. Before the first message the
        order is the usual one.

        Returns:
            What is offered now.

        Raises:
            UsageError: A turn is running.
        """
        self._refuse_while_running()
        await self._satchel.external.refresh()
        await self._satchel.mcp.refresh()
        registry = await self._satchel.tools()
        self._has_all_tools = True
        await self._offer(registry)
        return registry

    async def _offer(self, registry: Registry) -> None:
        if self._conversation.turns:
            now = {tool.spec.name: tool for tool in registry.tools}
            # A tool that is gone stays in the model's sight, or everything said before would be read anew: a call of it
            # is answered with what became of it.
            kept = [now.pop(tool.spec.name, tool) for tool in self.tools.tools]
            registry = Registry([*kept, *now.values()])
        if registry.definitions != self.tools.definitions:
            self._watch.restart()
        self.tools = registry
        self._environment = replace(self._environment, tools=await self._satchel.toolbox(registry))

    def use_model(self, model: ChatModel) -> None:
        """Let another model answer from the next turn on. The caller closes the one before."""
        self._refuse_while_running()
        self._model = model
        self._watch.restart()

    async def reload(self) -> None:
        """Read the log again: words in it were forgotten."""
        log = await self._satchel.sessions.load(self.id)
        self._conversation = Conversation.from_records(log.records)
        self._watch.restart()

    def _refuse_while_running(self) -> None:
        if self._running is not None and not self._running.is_over:
            raise UsageError(f"A turn is running in session {self.id}. Wait for its end, or interrupt it.")

    async def aclose(self, reason: str = "closed") -> None:
        """Interrupt what runs, write down that the session ended, and give it free. It may be called twice."""
        if self._is_closed:
            return
        self._is_closed = True
        with anyio.CancelScope(shield=True):
            if self._running is not None and not self._running.is_over:
                await self._stop(self._running)
            await close_state(self._environment.state)
            try:
                if self._conversation.turns:
                    await self._journal.append([SessionEnd(reason=reason)])
            except StorageError:
                pass  # everything that was said is there; how it ended is a courtesy
            finally:
                await self._journal.aclose()
                self._satchel.release(self)
