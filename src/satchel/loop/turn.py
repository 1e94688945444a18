"""One turn: ask the model, run its calls, give it their results, until it has answered or a limit says
stop.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TypeAlias

import anyio
from anyio.lowlevel import checkpoint_if_cancelled

from satchel.clock import Clock
from satchel.errors import ContextOverflow, ModelError, SatchelError, UsageError
from satchel.events import (
    AskUser,
    Assistant,
    Event,
    Failure,
    Final,
    MemorySurfaced,
    Notice,
    TurnEnd,
    TurnStart,
    TurnStatus,
)
from satchel.loop import closing
from satchel.loop.answers import Answer, normalise, read_answer
from satchel.loop.compaction import compact
from satchel.loop.emitter import Emit, Emitter
from satchel.loop.history import History
from satchel.loop.hooks import Hook, HookChain
from satchel.loop.limits import Budget, Limits
from satchel.loop.prompt import PrefixWatch
from satchel.loop.rounds import Repeats, Round, Step, Workshop
from satchel.loop.tokens import TokenEstimator
from satchel.messages import Block, Message, TextBlock, ToolResultBlock, Usage
from satchel.models.encoding import clean_text
from satchel.models.port import ChatModel, Completion, ModelRequest

__all__ = ["Outcome", "Surface", "Turn", "TurnInput", "TurnState", "run_turn"]

Surface: TypeAlias = Callable[[Sequence[Message]], Awaitable[MemorySurfaced | None]]
"""Looks for memory that fits the newest messages, the user's last; None where nothing does."""

_RESULTS_PART = 0.3
"""Of the model's window, for the results of one round together: a round must not fill what compaction can't
free."""
_DEFAULT_LIMITS = Limits()


class TurnState(Enum):
    """Where a turn stands."""

    STARTING = "starting"
    """The message is written down; memory is looked up."""
    PREPARING = "preparing"
    """Limits and budgets are looked at; room is made in the window."""
    ASKING = "asking"
    """The model answers."""
    CALLING = "calling"
    """The calls of its answer run."""
    ENDING = "ending"
    """It is decided how the turn ends; that is written down."""
    ENDED = "ended"


_NEXT = {
    TurnState.STARTING: {TurnState.PREPARING},
    TurnState.PREPARING: {TurnState.ASKING, TurnState.ENDING},
    TurnState.ASKING: {TurnState.ASKING, TurnState.CALLING, TurnState.ENDING},
    TurnState.CALLING: {TurnState.PREPARING, TurnState.ENDING},
    TurnState.ENDING: {TurnState.ENDED},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a turn ended.

    Attributes:
        text: The answer, the question, or an honest sentence about what went wrong.
        messages: The whole history from here on. It is valid; where `question` is set, its call is open and
            the next turn takes both.
        usage: Of this turn: tokens and money of its model calls, compaction included.
        rounds: Model calls that gave an answer.
        steps: The calls of tools, in order.
        memory: What was surfaced for the message, or None.
        error: Why the status is "failed", where an error is the reason.
    """

    turn: int
    status: TurnStatus
    text: str
    messages: tuple[Message, ...]
    usage: Usage
    rounds: int
    steps: tuple[Step, ...] = ()
    question: AskUser | None = None
    memory: MemorySurfaced | None = None
    error: SatchelError | None = None
    untrusted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnInput:
    """What a turn needs.

    Attributes:
        message: What the user says.
        history: As the turn before, or `sessions.rebuild`, left it.
        untrusted: Something in the message or the history, or what was left out of it, comes from outside. It stays
            so: what a model says while it has such a text before it, and what is made of that, can't be told apart.
        question: The open question of the turn before: the message becomes its call's result.
        turn: Number of the turn, from 1.
        model: Answers.
        system: See `build_system`; the same for all turns of a session.
        workshop: Where calls run.
        emit: See `Emit`.
        clock: Measures durations.
        limits: See `Limits`.
        budget: None means no limit.
        surface: None means no memory.
        hooks: Called in this order.
        estimator: Of the session.
        watch: Of the session.
    """

    message: Message
    history: Sequence[Message] = ()
    untrusted: bool = False
    question: AskUser | None = None
    turn: int
    model: ChatModel
    system: str
    workshop: Workshop
    emit: Emit
    clock: Clock
    limits: Limits = _DEFAULT_LIMITS
    budget: Budget | None = None
    surface: Surface | None = None
    hooks: Sequence[Hook] = ()
    estimator: TokenEstimator = field(default_factory=TokenEstimator)
    watch: PrefixWatch = field(default_factory=PrefixWatch)


class Turn:
    """One turn, which runs once.

    Its events obey a grammar: `TurnStart` first; every `Assistant` with calls is followed by a `Permission`
    and an `Action` for each call that runs, before any of them starts, and by one `Observation` for each
    call; then, exactly once each and last, `Final` and `TurnEnd`. An open question is the one call without
    an observation: `AskUser` names it, and the next turn's `TurnStart` answers it.
    """

    def __init__(self, given: TurnInput) -> None:
        """Take what it needs; nothing runs yet.

        Raises:
            UsageError: The message says nothing, or the history is not valid.
        """
        blocks = tuple(_cleaned(block) for block in given.message.blocks)
        if (
            given.message.role != "user"
            or not all(isinstance(b, TextBlock) and b.text.strip() for b in blocks)
            or not blocks
        ):
            raise UsageError("The message is empty. Say something.")
        self._given = given
        self._message = Message(role="user", blocks=blocks)
        self._history = History(given.history)
        self._system_size = len(given.system.encode("utf-8", "replace"))
        self._emitter = Emitter(given.emit, limit_s=given.limits.emit_timeout_s)
        self._hooks = HookChain(given.hooks, emitter=self._emitter, limit_s=given.limits.hook_timeout_s)
        self._scope = anyio.CancelScope()
        self._state = TurnState.STARTING

        self._started_s = 0.0
        self._rounds = 0
        self._usage = Usage()
        self._unpriced = 0
        self._repeats = Repeats()
        self._untrusted = given.untrusted
        self._steps: list[Step] = []
        self._last_steps: tuple[Step, ...] = ()
        self._said = ""
        self._beside = ""
        self._answer: Answer | None = None
        self._round: Round | None = None
        self._has_overflowed = False
        self._compacted_size = 0
        self._memory: MemorySurfaced | None = None

        self._final: Final | None = None
        self._question: AskUser | None = None
        self._error: SatchelError | None = None
        self._final_is_out = False
        self._end_is_out = False

    @property
    def outcome(self) -> Outcome | None:
        """How it ended, or None while it has not: for who was cancelled while waiting for `run`."""
        return self._outcome() if self._state is TurnState.ENDED else None

    @property
    def state(self) -> TurnState:
        """Where it stands."""
        return self._state

    def cancel(self) -> None:
        """Stop it where it stands; `run` then returns an outcome with the status "cancelled". From its own
        loop only.
        """
        self._scope.cancel()

    async def run(self) -> Outcome:
        """Run it.

        Whatever happens, the history of the outcome is valid and the events are complete. An error never
        comes out: it is told as a `Failure` and in the outcome.

        Raises:
            asyncio.CancelledError: The task was cancelled from outside; by then the turn is closed and
            written down.
        """
        self._started_s = self._given.clock.monotonic_s()
        try:
            with self._scope:
                await self._drive()
        except asyncio.CancelledError:
            await self._close_cancelled()
            raise
        # A boundary: the journal broke, or there is a defect in the loop itself. The conversation must go on.
        except Exception as error:  # noqa: BLE001
            await self._close_failed(error)
        else:
            if self._state is not TurnState.ENDED:
                await self._close_cancelled()
        return self._outcome()

    async def _drive(self) -> None:
        steps = {
            TurnState.STARTING: self._start,
            TurnState.PREPARING: self._prepare,
            TurnState.ASKING: self._ask,
            TurnState.CALLING: self._call,
            TurnState.ENDING: self._end,
        }
        while self._state is not TurnState.ENDED:
            following = await steps[self._state]()
            # A step may never have had to wait, so a cancellation is looked for between two of them.
            if following is not TurnState.ENDED and self._final is None:
                await checkpoint_if_cancelled()
            assert following in _NEXT[self._state], f"{self._state} -> {following}"
            self._state = following

    # Starting

    async def _start(self) -> TurnState:
        before = self._history.messages
        answers = self._take_message()
        start = TurnStart(turn=self._given.turn, message=self._message, answers=answers)
        await self._emitter(start)
        if self._given.surface is not None:
            await self._look_up_memory(self._given.surface, (*before, self._message))
        await self._hooks.turn_started(start)
        return TurnState.PREPARING

    def _take_message(self) -> str | None:
        """Put the message into the history, and close what is open; the id of the call that it answers, if
        any.
        """
        blocks: tuple[Block, ...] = self._message.blocks
        answers = None
        asked = self._given.question
        if asked is not None and asked.call_id in [call.id for call in self._history.open_calls]:
            answers = asked.call_id
            self._history.observe([ToolResultBlock(tool_use_id=answers, content=self._message.text)])
            # What was said is the call's result; it is not said twice.
            blocks = tuple(b for b in blocks if not (isinstance(b, TextBlock) and b.origin == "said"))
        self._history.close_calls()
        self._history.say(blocks)
        return answers

    async def _look_up_memory(self, surface: Surface, messages: Sequence[Message]) -> None:
        try:
            surfaced = await surface(messages)
        # A boundary: when memory is down the conversation goes on, and the user is told (DESIGN 1, promise
        # 8).
        except Exception as error:  # noqa: BLE001
            await self._emitter(self._failure("memory", error))
            return
        if surfaced is not None and surfaced.text.strip():
            self._memory = surfaced
            self._untrusted = self._untrusted or surfaced.untrusted
            self._history.say((TextBlock(text=clean_text(surfaced.text), origin="memory"),))
            await self._emitter(surfaced)

    # Preparing

    async def _prepare(self) -> TurnState:
        if self._rounds >= self._given.limits.max_rounds:
            text = closing.rounds_text(self._given.limits.max_rounds, self._steps, self._last_steps)
            return self._decide("limit", text)
        tokens = self._given.estimator.tokens(self._request_size)
        exceeded = await self._exceeded_budget(ahead_tokens=tokens)
        if exceeded:
            return self._decide("limit", closing.budget_text(exceeded, self._steps))
        window = self._given.model.context_window
        # What compaction could not make smaller a moment ago it can't make smaller now.
        if window is not None and tokens > window * self._given.limits.compact_at and self._has_grown:
            await self._make_room()
        return TurnState.ASKING

    @property
    def _request_size(self) -> int:
        return self._system_size + self._given.workshop.tools.size + self._history.size

    @property
    def _has_grown(self) -> bool:
        return self._history.size > self._compacted_size * 1.1

    async def _exceeded_budget(self, *, ahead_tokens: int) -> str:
        if self._given.budget is None:
            return ""
        verdict = await self._given.budget.check(
            self._usage, unpriced=self._unpriced, ahead_tokens=ahead_tokens
        )
        if verdict.notice:
            await self._emitter(Notice(part="budget", text=verdict.notice))
        return verdict.exceeded

    async def _make_room(self) -> bool:
        """Compact the history; whether it became shorter."""
        event = await compact(
            self._history.messages,
            model=self._given.model,
            turn=self._given.turn,
            trigger="auto",
            tell=self._emitter,
            estimator=self._given.estimator,
            keep_part=self._given.limits.keep_part,
            session_id=self._given.workshop.session_id,
        )
        self._compacted_size = self._history.size
        if event is None:
            return False
        self._spend(event.usage)
        self._history.replace(event.messages)
        self._compacted_size = self._history.size
        self._given.watch.restart()
        await self._emitter(event)
        return True

    def _spend(self, usage: Usage) -> None:
        self._usage += usage
        if usage.cost_usd is None and usage.total_tokens:
            self._unpriced += 1

    # Asking

    async def _ask(self) -> TurnState:
        assert self._history.is_sendable
        request = ModelRequest(
            system=self._given.system,
            messages=self._history.messages,
            tools=self._given.workshop.tools.definitions,
            max_tokens=self._given.limits.max_tokens,
            session_id=self._given.workshop.session_id,
        )
        broken = self._given.watch.check(request)
        if broken:
            text = f"{broken} The provider has to read the whole conversation anew."
            await self._emitter(Notice(part="cache", text=text))
        answer = self._answer = Answer()
        try:
            await read_answer(
                self._given.model,
                request,
                answer=answer,
                tell=self._tell,
                max_bytes=self._given.limits.max_answer_bytes,
            )
        except _JournalFailed as failed:
            raise failed.error from None
        except ContextOverflow as error:
            return await self._overflowed(error)
        except ModelError as error:
            return await self._model_failed(error)
        # A boundary: an adapter's defect must not cost the conversation.
        except Exception as error:  # noqa: BLE001
            return await self._model_failed(error)
        if answer.completion is None:
            await self._emitter(*self._keep_partial())
            return self._decide(
                "limit", closing.endless_text(self._said, self._given.limits.max_answer_bytes)
            )
        return await self._take_answer(normalise(answer.completion, taken=self._history.call_ids))

    async def _tell(self, event: Event) -> None:
        # Told apart from an error of the model, because the same `try` sees both.
        try:
            await self._emitter(event)
        except Exception as error:
            raise _JournalFailed(error) from error

    async def _take_answer(self, completion: Completion) -> TurnState:
        self._rounds += 1
        self._has_overflowed = False
        if not completion.usage.estimated:
            self._given.estimator.learn(self._request_size, completion.usage.input_tokens)
        # From here to the end of the emit nothing can be cancelled: history and journal get the answer
        # together.
        self._answer = None
        self._history.answer(completion.blocks)
        calls = completion.message.tool_uses
        if calls:
            self._round = self._new_round(completion)
        text = self._beside = completion.message.text
        self._said = text or self._said
        await self._emitter(self._record(completion))
        if not calls:
            return self._finish(completion, text)
        exceeded = await self._exceeded_budget(ahead_tokens=0)
        if exceeded:
            unstarted = f"Not started: {exceeded}"
            await self._emitter(*self._close_round(running=unstarted, waiting=unstarted))
            return self._decide("limit", closing.budget_text(exceeded, self._steps))
        return TurnState.CALLING

    def _record(self, completion: Completion) -> Assistant:
        self._spend(completion.usage)
        return Assistant(
            turn=self._given.turn,
            round=self._rounds,
            blocks=completion.blocks,
            stop_reason=completion.stop_reason,
            provider=completion.provider,
            model=completion.model,
            usage=completion.usage,
        )

    def _new_round(self, completion: Completion) -> Round:
        calls = completion.message.tool_uses
        share = self._given.limits.max_result_chars
        if self._given.model.context_window is not None:
            room = self._given.estimator.bytes(int(self._given.model.context_window * _RESULTS_PART))
            share = min(share, room // min(len(calls), self._given.limits.max_calls))
        return Round(
            calls,
            turn=self._given.turn,
            number=self._rounds,
            workshop=self._given.workshop,
            limits=self._given.limits,
            result_chars=share,
            hooks=self._hooks,
            emitter=self._emitter,
            clock=self._given.clock,
            repeats=self._repeats,
            untrusted=self._untrusted,
            refusal={calls[-1].id: closing.CUT_OFF} if completion.stop_reason == "max_tokens" else None,
        )

    def _finish(self, completion: Completion, text: str) -> TurnState:
        """The model asked for no tool: its answer is the turn's, if it is one."""
        match completion.stop_reason:
            case "refusal":
                return self._decide("failed", closing.refusal_text(text, self._given.model))
            case "max_tokens":
                return self._decide("limit", closing.cut_text(text))
            case _:
                if text.strip():
                    return self._decide("done", text)
                # Some models end with nothing to add after their tools; what they said before them is the
                # answer.
                if self._said:
                    return self._decide("done", self._said)
                status: TurnStatus = "done" if self._steps else "failed"
                return self._decide(status, closing.empty_text(self._given.model, self._steps))

    async def _overflowed(self, error: ContextOverflow) -> TurnState:
        """The history is too long for the model: make room, and ask once more."""
        self._answer = None
        if not self._has_overflowed:
            self._has_overflowed = True
            if await self._make_room():
                return TurnState.ASKING
        return await self._model_failed(error)

    async def _model_failed(self, error: Exception) -> TurnState:
        await self._emitter(*self._keep_partial(), self._failure("model", error))
        self._error = _as_ours(error)
        return self._decide("failed", closing.failure_text(error, self._given.model))

    def _keep_partial(self) -> list[Event]:
        """What was shown of an answer that did not come to its end stays in the history: its text."""
        answer, self._answer = self._answer, None
        if answer is None or not answer.size:
            return []
        self._rounds += 1
        blocks = answer.blocks
        usage = Usage(
            input_tokens=self._given.estimator.tokens(self._request_size),
            output_tokens=self._given.estimator.tokens(answer.size),
            estimated=True,
        )
        self._history.answer(blocks)
        self._said = "".join(block.text for block in blocks if isinstance(block, TextBlock)) or self._said
        partial = Completion(
            blocks=blocks,
            stop_reason="other",
            # It may have ended a moment before it was stopped; then what it used is known.
            usage=answer.completion.usage if answer.completion is not None else usage,
            provider=self._given.model.provider,
            model=self._given.model.model,
        )
        return [self._record(partial)]

    # Calling

    async def _call(self) -> TurnState:
        round = self._round
        assert round is not None
        await round.run()
        streak, question = round.streak, round.question
        self._take_results(round)
        if question is not None:
            self._question = question
            return self._decide("asking", closing.question_text(self._beside, question.question))
        if streak > self._given.limits.max_repeats:
            return self._decide("limit", closing.repeat_text(streak, self._steps))
        return TurnState.PREPARING

    def _take_results(self, round: Round) -> None:
        self._history.observe(round.results)
        self._untrusted = round.untrusted
        self._last_steps = round.steps
        self._steps += round.steps
        self._round = None

    def _close_round(self, *, running: str, waiting: str) -> list[Event]:
        round = self._round
        if round is None:
            return []
        events = round.close(running=running, waiting=waiting)
        self._take_results(round)
        return events

    # Ending

    def _decide(self, status: TurnStatus, text: str) -> TurnState:
        self._final = Final(turn=self._given.turn, text=text, status=status, untrusted=self._untrusted)
        return TurnState.ENDING

    async def _end(self) -> TurnState:
        final = self._final
        assert final is not None
        if self._hooks.hears_final:
            await self._emitter(*self._last_events(with_end=False))
            await self._hooks.final(final)
        await self._emitter(*self._last_events())
        return TurnState.ENDED

    def _last_events(self, *, with_end: bool = True) -> list[Event]:
        """What is still to be said of how the turn ended; each is given once."""
        final = self._final
        assert final is not None
        events: list[Event] = []
        if not self._final_is_out:
            self._final_is_out = True
            if self._question is not None:
                events.append(self._question)
            events.append(final)
        if with_end and not self._end_is_out:
            self._end_is_out = True
            duration_ms = (self._given.clock.monotonic_s() - self._started_s) * 1000
            events.append(
                TurnEnd(
                    turn=self._given.turn,
                    status=final.status,
                    rounds=self._rounds,
                    usage=self._usage,
                    duration_ms=duration_ms,
                )
            )
        return events

    async def _close_cancelled(self) -> None:
        """The turn was stopped from outside or by `cancel`: keep what there is, and write down how it
        ended.
        """
        try:
            if self._final is None:
                events = self._keep_partial()
                events += self._close_round(
                    running=closing.CANCELLED_RUNNING, waiting=closing.CANCELLED_WAITING
                )
                self._decide("cancelled", self._said)
            else:
                events = []
            events += self._last_events()
            await self._emitter(*events, limit_s=self._given.limits.closing_timeout_s)
            self._state = TurnState.ENDED
        # A boundary: the user wants it to stop, and it does, even when the journal can't take how it ended.
        except Exception as error:  # noqa: BLE001
            await self._close_failed(error)

    async def _close_failed(self, error: Exception) -> None:
        """The journal, or the loop itself, broke: close the history, and try once to write down what
        happened.
        """
        self._error = self._error or _as_ours(error)
        events = self._keep_partial()
        events += self._close_round(running=closing.FAILED_RUNNING, waiting=closing.FAILED_WAITING)
        self._history.close_calls(closing.FAILED_WAITING)
        # Nobody may take for granted what the journal refused: neither an answer nor an open question.
        said = f"{self._final.text}\n\n" if self._final is not None else ""
        self._question = None
        self._decide("failed", said + closing.failure_text(error, self._given.model))
        events = [self._failure("turn", error), *events, *self._last_events()]
        try:
            await self._emitter(*events, limit_s=self._given.limits.closing_timeout_s)
        # A boundary: it broke before, and the outcome tells of it.
        except Exception as again:  # noqa: BLE001
            self._error.add_note(f"Writing down how the turn ended failed as well: {again}")
        self._state = TurnState.ENDED

    def _failure(self, part: str, error: Exception) -> Failure:
        expected = isinstance(error, SatchelError)
        written = "" if expected else "".join(traceback.format_exception(error))
        return Failure(part=part, message=str(error), error=type(error).__name__, traceback=written[-20_000:])

    def _outcome(self) -> Outcome:
        final = self._final
        assert final is not None
        return Outcome(
            turn=self._given.turn,
            status=final.status,
            text=final.text,
            messages=self._history.messages,
            usage=self._usage,
            rounds=self._rounds,
            steps=tuple(self._steps),
            question=self._question,
            memory=self._memory,
            error=self._error,
            untrusted=self._untrusted,
        )


class _JournalFailed(Exception):
    """Carries an error of the caller's `Emit` past the handlers of the model's errors."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def _as_ours(error: Exception) -> SatchelError:
    if isinstance(error, SatchelError):
        return error
    ours = SatchelError(f"{type(error).__name__}: {error}")
    ours.__cause__ = error
    return ours


def _cleaned(block: Block) -> Block:
    return replace(block, text=clean_text(block.text)) if isinstance(block, TextBlock) else block


async def run_turn(given: TurnInput) -> Outcome:
    """Run one turn; see `Turn` for the outcome and the errors. Who wants to stop it makes a `Turn`."""
    return await Turn(given).run()
