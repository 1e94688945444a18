"""One turn: ask the model, run the calls in its answer, return the results; until it answers without calls, or a limit
is reached.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import anyio
from anyio.lowlevel import checkpoint_if_cancelled

from satchel.clock import Clock
from satchel.conversation import INTERRUPTED, Conversation
from satchel.errors import ContextOverflow, ModelError, SatchelError, UsageError
from satchel.events import (
    AskUser,
    Assistant,
    Event,
    Failure,
    Final,
    MemorySurfaced,
    Notice,
    Observation,
    TurnEnd,
    TurnResumed,
    TurnStart,
    TurnStatus,
)
from satchel.loop import closing
from satchel.loop.answers import PartialAnswer, normalise, read_answer
from satchel.loop.calls import CallEnvironment, ToolCallRecord
from satchel.loop.compaction import compact
from satchel.loop.emitter import Emit, Emitter
from satchel.loop.hooks import Hook, HookChain
from satchel.loop.limits import Budget, Sampling, TurnLimits
from satchel.loop.prompt import PrefixWatch
from satchel.loop.rounds import Repeats, Round
from satchel.loop.tokens import TokenEstimator
from satchel.messages import (
    Block,
    FileBlock,
    Message,
    StopReason,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    Usage,
    clean_text,
    size_of_message,
    text_of,
)
from satchel.models.port import ChatModel, Completion, FileReader, ModelRequest, price_by

Surface: TypeAlias = Callable[[Sequence[Message]], Awaitable[MemorySurfaced | None]]
"""Searches memory for what fits the newest messages that hold words, the user's last; None if nothing does."""

Standing: TypeAlias = Callable[[], Awaitable[Sequence[MemorySurfaced]]]
"""What stands before the model whatever is said, profile and agenda, where it is not there yet."""

_Step: TypeAlias = Callable[[], Awaitable["_Step | None"]]
"""A step of a turn, which returns the next one; None after the last."""

_SURFACE_MESSAGES = 3
"""Messages that memory searches with: it weighs the last three (see `MemoryStore.surface`)."""
_RESULTS_PART = 0.3
"""The part of the model's window that the results of one round may fill together, because compaction can't remove the
newest round."""
_DEFAULT_LIMITS = TurnLimits()
_DEFAULT_SAMPLING = Sampling()


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnOutcome:
    """How a turn ended.

    Attributes:
        text: The answer, the question, or a sentence about what went wrong.
        usage: Tokens and money of this turn's model calls, compaction and sub-agents included.
        rounds: Model calls that gave an answer.
        steps: The tool calls, in order; if the turn was resumed, those since then.
        question: The open question to the user, if the status is "asking".
        error: The error behind the status "failed", if there is one.
    """

    status: TurnStatus
    text: str
    usage: Usage
    rounds: int
    steps: tuple[ToolCallRecord, ...] = ()
    question: AskUser | None = None
    error: SatchelError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnInput:
    """The inputs of a turn.

    Attributes:
        message: The user's message. If calls wait for the caller (`Conversation.calls_for_caller`), it brings their
            results, with or without words. None resumes the newest turn, which the program left unfinished.
        turn: The number of the turn, from 1.
        system: See `build_system`; the same in all turns of a session.
        inbox: The ids of the posts that the message delivers.
        budget: None means no limit.
        surface: None means no memory.
        standing: Asked before `surface`; None means nothing.
        is_guests: Somebody else than the user writes: the model is sent nothing of what memory added before.
        hooks: Called in this order.
        refresh: Called before each request. It takes words out of the conversation that were forgotten meanwhile.
        call_prefix: Begins the ids of the calls: of several conversations in one session, each has its own.
    """

    message: Message | None
    conversation: Conversation
    turn: int
    model: ChatModel
    system: str
    environment: CallEnvironment
    emit: Emit
    clock: Clock
    inbox: tuple[str, ...] = ()
    limits: TurnLimits = _DEFAULT_LIMITS
    sampling: Sampling = _DEFAULT_SAMPLING
    budget: Budget | None = None
    surface: Surface | None = None
    standing: Standing | None = None
    is_guests: bool = False
    hooks: Sequence[Hook] = ()
    estimator: TokenEstimator = field(default_factory=TokenEstimator)
    watch: PrefixWatch = field(default_factory=PrefixWatch)
    read_file: FileReader | None = None
    refresh: Callable[[], Awaitable[None]] | None = None
    call_prefix: str = ""


class TurnRunner:
    """Runs one turn, once.

    The events of a turn obey a grammar. `TurnStart` comes first. Every `Assistant` with calls is followed by a
    `Permission` and an `Action` for each call that runs, before any of them starts, and by one `Observation` for each
    call. `Final` and `TurnEnd` come last, once each. Calls without an observation stay open: the one that `AskUser`
    names, or those that the caller runs. The next turn's `TurnStart` answers them.

    If the asking call resumes with the answer (`TurnStart.resumes`), its `Action` and its `Observation`, both in round
    0, come before the first `Assistant`. An unfinished turn resumes with `TurnResumed`.
    """

    def __init__(self, inputs: TurnInput) -> None:
        """Check the inputs; nothing runs yet.

        Raises:
            UsageError: The message is empty, or brings results of calls that are not open; or there is no message and
                no unfinished turn.
        """
        self._inputs = inputs
        self._conversation, self._environment = inputs.conversation, inputs.environment
        self._model, self._limits, self._estimator = inputs.model, inputs.limits, inputs.estimator
        self._message = _checked(inputs.message, inputs.conversation)
        self._system_size = len(inputs.system.encode("utf-8", "replace"))
        self._emitter = Emitter(
            inputs.emit, limit_s=inputs.limits.emit_timeout_s, apply=inputs.conversation.apply
        )
        self._hooks = HookChain(inputs.hooks, emitter=self._emitter, limit_s=inputs.limits.hook_timeout_s)
        self._scope = anyio.CancelScope()
        self._has_ended = False

        self._started_s = 0.0
        self._rounds = 0
        self._unpriced = 0
        self._repeats = Repeats()
        self._steps: list[ToolCallRecord] = []
        self._last_steps: tuple[ToolCallRecord, ...] = ()
        self._last_text = ""
        self._text_with_calls = ""
        self._answer: PartialAnswer | None = None
        self._round: Round | None = None
        self._has_overflowed = False
        self._compacted_size = 0

        self._final: Final | None = None
        self._question: AskUser | None = None
        self._error: SatchelError | None = None
        self._final_is_out = False
        self._end_is_out = False

    @property
    def _usage(self) -> Usage:
        """What the turn has used, with what was asked beside it: by its sub-agents and by MCP servers."""
        turn = self._conversation.turn
        return turn.usage if turn is not None else Usage()

    @property
    def outcome(self) -> TurnOutcome | None:
        """The outcome, or None before the end: for a caller that was cancelled while waiting for `run`."""
        return self._outcome() if self._has_ended else None

    def cancel(self) -> None:
        """Stop the turn; `run` then returns an outcome with the status "cancelled". Call it on the event loop only."""
        self._scope.cancel()

    async def run(self) -> TurnOutcome:
        """Run the turn.

        Whatever happens, the conversation is valid afterwards and the events are complete. Errors are not raised; a
        `Failure` and the outcome report them.

        Raises:
            asyncio.CancelledError: The task was cancelled from outside. By then the end of the turn is logged.
        """
        self._started_s = self._inputs.clock.monotonic_s()
        try:
            with self._scope:
                await self._drive()
        except asyncio.CancelledError:
            await self._close_cancelled()
            raise
        # A boundary: the journal failed, or the loop has a defect. The conversation must stay usable.
        except Exception as error:  # noqa: BLE001
            await self._close_failed(error)
        else:
            if not self._has_ended:
                await self._close_cancelled()
        return self._outcome()

    async def _drive(self) -> None:
        step: _Step | None = self._start
        while step is not None:
            step = await step()
            # A step may never have waited, so cancellation is checked between steps.
            if step is not None and self._final is None:
                await checkpoint_if_cancelled()

    # Starting

    async def _start(self) -> _Step:
        if self._message is None:
            return await self._resume()
        question = self._conversation.question
        # One less than memory weighs, because the message itself is the last.
        recent = self._conversation.last_words(_SURFACE_MESSAGES - 1)
        start = TurnStart(
            turn=self._inputs.turn,
            message=self._message,
            answers=question.call_id if question is not None else None,
            resumes=question is not None and question.resumable,
            inbox=self._inputs.inbox,
        )
        await self._emitter(start)
        await self._sample_tokens(start.message.text)
        await self._add_context(start, recent)
        return self._resume_call(start) if start.resumes else self._prepare

    async def _resume(self) -> _Step:
        """Resume where the program stopped. What was logged is not done again."""
        before = self._conversation.turn
        assert before is not None
        await self._emitter(TurnResumed(turn=self._inputs.turn))
        answer = before.answer
        if answer is not None:
            self._rounds = answer.round
            self._last_text = self._text_with_calls = text_of(answer.blocks)
        self._question = self._conversation.question
        if before.final is not None:
            self._final, self._final_is_out = before.final, True
            return self._end
        if answer is None and not before.has_context:
            await self._add_context(before.start, ())
        if self._question is not None:
            return self._decide(
                "asking", closing.question_text(self._text_with_calls, self._question.question)
            )
        is_open = self._conversation.open_calls
        started = [
            call
            for call in is_open
            if self._conversation.was_started(call.id) and not self._is_repeatable(call)
        ]
        if started:
            await self._emitter(*(self._without_result(call, INTERRUPTED) for call in started))
        waiting = [call for call in is_open if call not in started]
        if answer is None:
            return self._resume_call(before.start) if waiting else self._prepare
        if waiting:
            self._round = self._new_round(waiting, stop_reason=answer.stop_reason)
            return self._call
        if any(isinstance(block, ToolUseBlock) for block in answer.blocks):
            return self._prepare
        return self._finish(answer.stop_reason, self._last_text)

    def _is_repeatable(self, call: ToolUseBlock) -> bool:
        tool = self._environment.tools.get(call.name)
        return tool is not None and tool.spec.repeatable

    def _without_result(self, call: ToolUseBlock, text: str) -> Observation:
        """The observation of an open call that gets no result."""
        return Observation(
            turn=self._inputs.turn,
            round=self._rounds,
            call_id=call.id,
            tool=call.name,
            text=text,
            is_error=True,
        )

    def _resume_call(self, start: TurnStart) -> _Step:
        """Let the asking call resume with the answer; it gives the result."""
        asked = [call for call in self._conversation.open_calls if call.id == start.answers]
        self._round = self._new_round(asked, answer=start.message.text)
        return self._call

    async def _add_context(self, start: TurnStart, recent: Sequence[Message]) -> None:
        """Let memory and the hooks add to the message. `recent` are the messages before it."""
        if self._inputs.standing is not None:
            await self._add_memory(self._inputs.standing())
        if self._inputs.surface is not None:
            await self._add_memory(self._inputs.surface((*recent, start.message)))
        await self._hooks.turn_started(start)

    async def _add_memory(self, finding: Awaitable[Sequence[MemorySurfaced] | MemorySurfaced | None]) -> None:
        try:
            found = await finding
        # A boundary: the conversation continues without memory, and the user is told (DESIGN 1, promise 8).
        except Exception as error:  # noqa: BLE001
            await self._emitter(self._failure("memory", error))
            return
        for event in found if isinstance(found, Sequence) else (found,):
            if event is not None and event.text.strip():
                await self._emitter(event)

    # Preparing

    async def _prepare(self) -> _Step:
        if self._rounds >= self._limits.max_rounds:
            text = closing.rounds_text(self._limits.max_rounds, self._steps, self._last_steps)
            return self._decide("limit", text)
        tokens = self._estimator.tokens(self._request_size)
        exceeded = await self._exceeded_budget(ahead_tokens=tokens)
        if exceeded:
            return self._decide("limit", closing.budget_text(exceeded, self._steps))
        window = self._model.context_window
        # If the last compaction could not make the history smaller, another one can't either until it has grown.
        if window is not None and tokens > window * self._limits.compact_at and self._has_grown:
            await self._make_room()
        return self._ask

    @property
    def _request_size(self) -> int:
        return self._system_size + self._environment.tools.size + self._conversation.size

    @property
    def _has_grown(self) -> bool:
        return self._conversation.size > self._compacted_size * 1.1

    async def _exceeded_budget(self, *, ahead_tokens: int) -> str:
        if self._inputs.budget is None:
            return ""
        verdict = await self._inputs.budget.check(
            self._usage, unpriced=self._unpriced, ahead_tokens=ahead_tokens
        )
        if verdict.notice:
            await self._emitter(Notice(part="budget", text=verdict.notice))
        return verdict.exceeded

    async def _make_room(self) -> bool:
        """Compact the history; return whether it became shorter."""
        await self._refresh()
        event = await compact(
            self._conversation.messages,
            model=self._model,
            turn=self._inputs.turn,
            trigger="auto",
            to_do=self._conversation.to_do.text if self._conversation.to_do is not None else "",
            emit=self._emitter,
            estimator=self._estimator,
            keep_part=self._limits.keep_part,
            patience=self._limits.patience,
            session_id=self._environment.session_id,
            on_request=self._hooks.request,
            read_file=self._inputs.read_file,
        )
        self._compacted_size = self._conversation.size
        if event is None:
            return False
        self._spend(event.usage)
        self._inputs.watch.restart()
        self._repeats = Repeats()  # what was summarised may have to be read again
        await self._emitter(event)
        self._compacted_size = self._conversation.size
        return True

    async def _sample_tokens(self, *texts: str) -> None:
        failure = self._estimator.sample(texts)
        if failure is not None:
            await self._emitter(failure)

    def _spend(self, usage: Usage) -> None:
        if usage.cost_usd is None and usage.total_tokens:
            self._unpriced += 1

    # Asking

    async def _refresh(self) -> None:
        if self._inputs.refresh is not None:
            await self._inputs.refresh()

    async def _ask(self) -> _Step:
        await self._refresh()
        assert self._conversation.is_sendable
        sampling = self._inputs.sampling
        request = ModelRequest(
            system=self._inputs.system,
            messages=self._conversation.messages_for_guest
            if self._inputs.is_guests
            else self._conversation.messages,
            tools=self._environment.tools.definitions,
            max_tokens=min(filter(None, (self._limits.max_tokens, sampling.max_tokens)), default=None),
            temperature=sampling.temperature,
            response_schema=sampling.response_schema,
            options=sampling.options,
            session_id=self._environment.session_id,
            read_file=self._inputs.read_file,
        )
        # A guest's request is another one on purpose, and the user's go on from the user's last.
        broken = "" if self._inputs.is_guests else self._inputs.watch.check(request)
        if broken:
            text = f"{broken} The provider has to read the whole conversation again."
            await self._emitter(Notice(part="cache", text=text))
        await self._hooks.request(request)
        answer = self._answer = PartialAnswer()
        try:
            await read_answer(
                self._model,
                request,
                answer=answer,
                emit=self._show,
                max_bytes=self._limits.max_answer_bytes,
                patience=self._limits.patience,
            )
        except _JournalFailed as failed:
            raise failed.error from None
        except ContextOverflow as error:
            return await self._overflowed(error)
        except ModelError as error:
            return await self._model_failed(error)
        # A boundary: a defect in an adapter must not break the conversation.
        except Exception as error:  # noqa: BLE001
            return await self._model_failed(error)
        if answer.completion is None:
            await self._emitter(*self._keep_partial())
            return self._decide("limit", closing.endless_text(self._last_text, self._limits.max_answer_bytes))
        prefix = self._inputs.call_prefix
        return await self._accept_answer(
            normalise(answer.completion, taken=self._conversation.call_ids, prefix=prefix)
        )

    async def _show(self, event: Event) -> None:
        # Marks the error as the journal's: the `try` above also sees the model's errors.
        try:
            await self._emitter(event)
        except Exception as error:
            raise _JournalFailed(error) from error

    async def _accept_answer(self, completion: Completion) -> _Step:
        self._rounds += 1
        self._has_overflowed = False
        if not completion.usage.estimated:
            self._estimator.learn(self._request_size, completion.usage.input_tokens)
        elif self._estimator.has_counter:
            # The adapter estimates without the caller's counter.
            usage = replace(
                completion.usage,
                input_tokens=self._estimator.tokens(self._request_size),
                output_tokens=self._estimator.tokens(size_of_message(completion.message)),
            )
            completion = replace(completion, usage=price_by(self._model, usage))
        # The round exists before the answer is logged: whatever stops the turn from here on answers its calls.
        self._answer = None
        calls = completion.message.tool_uses
        if calls:
            self._round = self._new_round(calls, stop_reason=completion.stop_reason)
        text = self._text_with_calls = completion.message.text
        self._last_text = text or self._last_text
        await self._emitter(self._record(completion))
        await self._sample_tokens(text)
        if not calls:
            return self._finish(completion.stop_reason, text)
        exceeded = await self._exceeded_budget(ahead_tokens=0)
        if exceeded:
            unstarted = f"Not started: {exceeded}"
            await self._emitter(*self._close_round(running=unstarted, waiting=unstarted))
            return self._decide("limit", closing.budget_text(exceeded, self._steps))
        return self._call

    def _record(self, completion: Completion) -> Assistant:
        self._spend(completion.usage)
        return Assistant(
            turn=self._inputs.turn,
            round=self._rounds,
            blocks=completion.blocks,
            stop_reason=completion.stop_reason,
            provider=completion.provider,
            model=completion.model,
            usage=completion.usage,
        )

    def _new_round(
        self,
        calls: Sequence[ToolUseBlock],
        *,
        stop_reason: StopReason = "tool_use",
        answer: str | None = None,
    ) -> Round:
        share = self._limits.max_result_chars
        if self._model.context_window is not None:
            room = self._estimator.bytes(int(self._model.context_window * _RESULTS_PART))
            share = min(share, room // min(len(calls), self._limits.max_calls))
        return Round(
            calls,
            turn=self._inputs.turn,
            number=self._rounds if answer is None else 0,
            environment=self._environment,
            limits=self._limits,
            result_chars=share,
            hooks=self._hooks,
            emitter=self._emitter,
            clock=self._inputs.clock,
            repeats=self._repeats,
            untrusted=self._conversation.untrusted,
            answer=answer,
            refusal={calls[-1].id: closing.CUT_OFF} if stop_reason == "max_tokens" else None,
        )

    def _finish(self, stop_reason: StopReason, text: str) -> _Step:
        """End the turn with an answer that has no calls."""
        match stop_reason:
            case "refusal":
                return self._decide("failed", closing.refusal_text(text, self._model))
            case "max_tokens":
                return self._decide("limit", closing.cut_text(text))
            case _:
                if text.strip():
                    return self._decide("done", text)
                # Some models add nothing after their tools; what they said before is the answer.
                if self._last_text:
                    return self._decide("done", self._last_text)
                status: TurnStatus = "done" if self._steps else "failed"
                return self._decide(status, closing.empty_text(self._model, self._steps))

    async def _overflowed(self, error: ContextOverflow) -> _Step:
        """The history is too long for the model: make room and ask once more."""
        self._answer = None
        if not self._has_overflowed:
            self._has_overflowed = True
            if await self._make_room():
                return self._ask
        return await self._model_failed(error)

    async def _model_failed(self, error: Exception) -> _Step:
        await self._emitter(*self._keep_partial(), self._failure("model", error))
        self._error = _as_ours(error)
        return self._decide("failed", closing.failure_text(error, self._model))

    def _keep_partial(self) -> list[Event]:
        """The event that keeps the text of an incomplete answer, since it was shown."""
        answer, self._answer = self._answer, None
        if answer is None or not answer.size:
            return []
        self._rounds += 1
        blocks = answer.blocks
        usage = Usage(
            input_tokens=self._estimator.tokens(self._request_size),
            output_tokens=self._estimator.tokens(answer.size),
            estimated=True,
        )
        self._last_text = text_of(blocks) or self._last_text
        partial = Completion(
            blocks=blocks,
            stop_reason="other",
            # The answer may have been complete just before it was stopped; then its usage is known.
            usage=answer.completion.usage if answer.completion is not None else price_by(self._model, usage),
            provider=self._model.provider,
            model=self._model.model,
        )
        return [self._record(partial)]

    # Calling

    async def _call(self) -> _Step:
        round = self._round
        assert round is not None
        await round.run()
        streak, question, answer = round.streak, round.question, round.answer_of_turn
        self._keep_results(round)
        await self._sample_tokens(*(step.result for step in round.steps))
        if question is not None:
            self._question = question
            return self._decide("asking", closing.question_text(self._text_with_calls, question.question))
        if round.is_left_to_caller:
            return self._decide("calling", self._text_with_calls)
        if answer is not None:
            return self._decide("done", answer)
        repeats, why = self._repeats, ""
        if streak > self._limits.max_repeats:
            call = f"the same call ({self._steps[-1].tool})"
            why = f"I made {call} {streak} times in a row with the same result"
        elif repeats.stale >= self._limits.max_stale:
            why = (
                f"{repeats.stale} rounds in a row brought nothing new: the same calls, with the same results"
            )
        elif repeats.repeated >= self._limits.max_repeated:
            why = f"{repeats.repeated} rounds in a row only repeated calls that were made before"
        if why:
            return self._decide("limit", closing.stuck_text(why, self._steps))
        return self._prepare

    def _keep_results(self, round: Round) -> None:
        self._last_steps = round.steps
        self._steps += round.steps
        self._round = None

    def _close_round(self, *, running: str, waiting: str) -> list[Event]:
        round = self._round
        if round is None:
            return []
        events = round.close(running=running, waiting=waiting)
        self._keep_results(round)
        return events

    # Ending

    def _decide(self, status: TurnStatus, text: str) -> _Step:
        self._final = Final(
            turn=self._inputs.turn, text=text, status=status, untrusted=self._conversation.untrusted
        )
        return self._end

    async def _end(self) -> None:
        final = self._final
        assert final is not None
        if self._hooks.hears_final:
            await self._emitter(*self._last_events(with_end=False))
            await self._hooks.final(final)
        await self._emitter(*self._last_events())
        self._has_ended = True

    def _last_events(self, *, with_end: bool = True) -> list[Event]:
        """The closing events that were not emitted yet."""
        final = self._final
        assert final is not None
        events: list[Event] = []
        if not self._final_is_out:
            self._final_is_out = True
            # In a resumed turn, the question may be in the log already.
            if self._question is not None and self._conversation.question is None:
                events.append(self._question)
            events.append(final)
        if with_end and not self._end_is_out:
            self._end_is_out = True
            duration_ms = (self._inputs.clock.monotonic_s() - self._started_s) * 1000
            events.append(
                TurnEnd(
                    turn=self._inputs.turn,
                    status=final.status,
                    rounds=self._rounds,
                    usage=self._usage,
                    duration_ms=duration_ms,
                )
            )
        return events

    async def _close_cancelled(self) -> None:
        """End a turn that was cancelled: keep what there is, and log how it ended."""
        try:
            if self._final is None:
                events = self._keep_partial()
                events += self._close_round(
                    running=closing.CANCELLED_RUNNING, waiting=closing.CANCELLED_WAITING
                )
                self._decide("cancelled", self._last_text)
            else:
                events = []
            events += self._last_events()
            await self._emitter(*events, limit_s=self._limits.closing_timeout_s)
            self._has_ended = True
        # A boundary: the turn stops even if the journal can't record how.
        except Exception as error:  # noqa: BLE001
            await self._close_failed(error)

    async def _close_failed(self, error: Exception) -> None:
        """End a turn after the journal or the loop failed: answer what is open, and try once to log what happened."""
        self._error = self._error or _as_ours(error)
        events = self._keep_partial()
        events += self._close_round(running=closing.FAILED_RUNNING, waiting=closing.FAILED_WAITING)
        answered = {event.call_id for event in events if isinstance(event, Observation)}
        events += [
            self._without_result(
                call,
                closing.FAILED_RUNNING if self._conversation.was_started(call.id) else closing.FAILED_WAITING,
            )
            for call in self._conversation.open_calls
            if call.id not in answered
        ]
        # What the journal refused must not count: neither an answer nor an open question.
        said = f"{self._final.text}\n\n" if self._final is not None else ""
        self._question = None
        self._decide("failed", said + closing.failure_text(error, self._model))
        events = [self._failure("turn", error), *events, *self._last_events()]
        try:
            await self._emitter(*events, limit_s=self._limits.closing_timeout_s)
        # A boundary: the journal failed before, and the outcome says so.
        except Exception as again:  # noqa: BLE001
            self._error.add_note(f"Logging the end of the turn failed as well: {again}")
        self._has_ended = True

    def _failure(self, part: str, error: Exception) -> Failure:
        expected = isinstance(error, SatchelError)
        written = "" if expected else "".join(traceback.format_exception(error))
        return Failure(part=part, message=str(error), error=type(error).__name__, traceback=written[-20_000:])

    def _outcome(self) -> TurnOutcome:
        final = self._final
        assert final is not None
        return TurnOutcome(
            status=final.status,
            text=final.text,
            usage=self._usage,
            rounds=self._rounds,
            steps=tuple(self._steps),
            question=self._question,
            error=self._error,
        )


class _JournalFailed(Exception):
    """Carries an error of `Emit` past the handlers of the model's errors."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def _as_ours(error: Exception) -> SatchelError:
    if isinstance(error, SatchelError):
        return error
    ours = SatchelError(f"{type(error).__name__}: {error}")
    ours.__cause__ = error
    return ours


def _checked(message: Message | None, conversation: Conversation) -> Message | None:
    """The message with clean texts.

    Raises:
        UsageError: See `TurnRunner`.
    """
    if message is None:
        if not conversation.is_unfinished:
            raise UsageError("There is no unfinished turn to go on with.")
        return None
    is_open = {call.id for call in conversation.calls_for_caller}
    blocks: list[Block] = []
    for block in message.blocks:
        match block:
            case TextBlock(text=text) if text.strip():
                blocks.append(replace(block, text=clean_text(text)))
            case ToolResultBlock(tool_use_id=id, content=content):
                if id not in is_open:
                    raise UsageError(f"No open call has the id {id!r}, or its result is given twice.")
                is_open.remove(id)
                blocks.append(replace(block, content=clean_text(content)))
            case FileBlock():
                blocks.append(block)
            case TextBlock():
                raise UsageError("The message is empty.")
            case _:
                raise UsageError(f"A message of the user can't hold a {type(block).__name__}.")
    if message.role != "user" or not blocks:
        raise UsageError("The message is empty.")
    return Message(role="user", blocks=tuple(blocks))


async def run_turn(inputs: TurnInput) -> TurnOutcome:
    """Run one turn; see `TurnRunner` for the outcome and the errors. Make a `TurnRunner` to be able to stop it."""
    return await TurnRunner(inputs).run()
