"""A turn as its callers see it: while it runs, and its result."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import aclosing
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

import anyio

from satchel.events import (
    AskUser,
    Event,
    MemorySurfaced,
    Notice,
    Record,
    SurfacedMemory,
    TurnStatus,
)
from satchel.messages import ToolUseBlock, Usage
from satchel.runtime.broadcast import Broadcast
from satchel.sessions.view import SessionTurn, ToolCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One tool call: the input that the model sent and the result that it got.

    Attributes:
        was_refused: A rule denied the call, or it needed permission and nobody could be asked. `result` names the rule
            that denied it, or the one that would allow it, which `wanted` has.
        data: The result as JSON data, for programs; None if the tool returned only text.
    """

    tool: str
    input: Mapping[str, Any]
    result: str
    is_error: bool
    was_refused: bool = False
    wanted: tuple[str, ...] = ()
    duration_ms: float = 0.0
    data: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnResult:
    """The result of a turn.

    Attributes:
        turn: The number of the turn in its session, from 1.
        text: The answer, the question, or a sentence about why there is no answer.
        pending_question: Set if `status` is "asking"; the next message answers it.
        calls: Set if `status` is "calling": the calls that the caller runs. The next message brings their results.
        build_id: The build that this turn requested, or None.
        memory: The memories that the model was shown, best first.
        notices: What the user should know besides the answer.
    """

    session_id: str
    turn: int
    status: TurnStatus
    text: str
    steps: tuple[Step, ...] = ()
    usage: Usage = field(default_factory=Usage)
    memory: tuple[SurfacedMemory, ...] = ()
    pending_question: str | None = None
    calls: tuple[ToolUseBlock, ...] = ()
    build_id: str | None = None
    notices: tuple[str, ...] = ()

    @property
    def was_refused(self) -> bool:
        """Whether a call was refused, by a rule or because nobody could be asked."""
        return any(step.was_refused for step in self.steps)


def result_of(session_id: str, turn: SessionTurn) -> TurnResult:
    """The result of a turn that has ended."""
    closing, end = turn.closing, turn.end
    status = closing.final.status if closing is not None else end.status if end is not None else "failed"
    steps = tuple(
        Step(
            tool=call.result.tool,
            input=call.input,
            result=call.result.text,
            is_error=call.result.is_error,
            was_refused=call.refusal is not None and call.refusal.by in ("nobody", "rule"),
            wanted=call.refusal.wanted if call.refusal is not None else (),
            duration_ms=call.result.duration_ms,
            data=call.result.data,
        )
        for call in turn.of(ToolCall)
        if call.result is not None
    )
    blocks = [block.memories for block in turn.of(MemorySurfaced) if not block.standing]
    question = next((asked.question for asked in turn.of(AskUser)), None)
    return TurnResult(
        session_id=session_id,
        turn=turn.number,
        status=status,
        text=closing.final.text if closing is not None else "",
        steps=steps,
        usage=end.usage if end is not None else Usage(),
        memory=tuple(memory for block in reversed(blocks) for memory in block),
        pending_question=question if status == "asking" else None,
        calls=turn.open_calls if status == "calling" else (),
        build_id=turn.build_id,
        notices=tuple(notice.text for notice in turn.of(Notice)),
    )


def memories_to_json(memories: Iterable[SurfacedMemory]) -> list[dict[str, Any]]:
    """What the model was shown of memory, as plain JSON data (DESIGN 3.3)."""
    return [
        {
            "id": memory.id,
            "content": memory.content,
            "score": memory.score,
            "source": {"session": memory.session, "turn": memory.source_turn},
        }
        for memory in memories
    ]


TURN: Final[ContextVar[tuple[str, int]]] = ContextVar("turn")
"""The session and the number of the turn for which a task works, so that the log can name them."""


class RunningTurn:
    """A turn while it runs. Any number of readers may follow it, each from its beginning; it continues without them.

    Attributes:
        number: The number of the turn in its session, from 1; 0 while its message waits.
        waited: The id of its message in the line (`MessageWaiting`); "" if it began at once.
        after_seq: The number of the record before its first one.
        result_or_none: Its result; None while it runs, and if an error ended it.
    """

    def __init__(self, number: int, broadcast: Broadcast, *, waited: str = "") -> None:
        """The events of the turn are those that `broadcast` publishes from now, or from `begin`, until `finish`."""
        self.number = number
        self.waited = waited
        self.result_or_none: TurnResult | None = None
        self._broadcast = broadcast
        self.after_seq = broadcast.last_seq
        self._last_seq: int | None = None
        self.error: Exception | None = None
        self._over = anyio.Event()
        self._begun = anyio.Event()
        if not waited:
            self._begun.set()
        self._is_cancelled = False
        self._has_said_all = False
        self._stop: Callable[[], None] = lambda: None

    @property
    def waits(self) -> bool:
        """Whether its message waits in line. Then `cancel` takes it back."""
        return not self._begun.is_set()

    async def begun(self) -> None:
        """Wait until it begins, or is over without having begun."""
        await self._begun.wait()

    def begin(self, number: int) -> None:
        """Note that its message is first in line."""
        self.number, self.after_seq = number, self._broadcast.last_seq
        self._begun.set()

    @property
    def is_over(self) -> bool:
        """Whether it has ended, with a result or an error."""
        return self._over.is_set()

    @property
    def is_ending(self) -> bool:
        """Whether it only has to be closed: it was cancelled, or its last words were said. A new message waits for its
        end instead of being refused.
        """
        return self._is_cancelled or self._has_said_all

    def said_all(self) -> None:
        """Note that its last words were said; what follows is its capture and its end."""
        self._has_said_all = True

    def stop_with(self, stop: Callable[[], None]) -> None:
        """Set what interrupts the turn in its current stage. If the turn was cancelled before, it is called at once."""
        self._stop = stop
        if self._is_cancelled:
            stop()

    def cancel(self) -> bool:
        """Interrupt the turn. It ends with the status "cancelled" and a valid history. May be called at any time.

        Returns:
            Whether this interrupts it: False if it is over, or was interrupted before and is still ending.
        """
        if self.is_over or self._is_cancelled:
            return False
        self._is_cancelled = True
        self._stop()
        return True

    def finish(self, outcome: TurnResult | Exception) -> None:
        """End the turn with its result, or with the error that ended it without one."""
        if isinstance(outcome, TurnResult):
            self.result_or_none = outcome
        else:
            self.error = outcome
        self._last_seq = self._broadcast.last_seq
        self._begun.set()
        self._over.set()
        self._broadcast.wake()

    async def events(self) -> AsyncIterator[Event]:
        """Yield all events of the turn, including those that have already happened; errors as in `records`."""
        async with aclosing(self.records()) as records:
            async for record in records:
                yield record.event

    async def records(self, after_seq: int | None = None) -> AsyncGenerator[Record, None]:
        """Yield all records of the turn, including those of what has already happened. With `after_seq`, begin after
        this record, such as at the beginning of a turn that was resumed.

        Raises:
            SatchelError: The error that ended the turn without a result, such as a full disk.
        """
        await self._begun.wait()
        subscription = self._broadcast.subscribe(
            self.after_seq if after_seq is None else after_seq,
            until=lambda seq: self._last_seq is not None and seq >= self._last_seq,
        )
        try:
            async for record in subscription:
                yield record
        finally:
            await subscription.aclose()
        if self.error is not None:
            raise self.error

    async def result(self) -> TurnResult:
        """Wait for the result.

        Raises:
            SatchelError: The error that ended the turn without a result.
        """
        await self._over.wait()
        if self.error is not None:
            raise self.error
        assert self.result_or_none is not None
        return self.result_or_none

    async def stop(self) -> None:
        """Interrupt the turn and wait until it has ended, whatever becomes of the caller meanwhile."""
        self.cancel()
        with anyio.CancelScope(shield=True):
            await self.ended()

    async def ended(self) -> None:
        """Wait for the end; an error is not raised."""
        await self._over.wait()


async def is_busy(running: RunningTurn | None) -> bool:
    """Whether the turn that runs in a session keeps it from taking a message. One that is ending is waited for."""
    if running is not None and running.is_ending:
        await running.ended()
        return False
    return running is not None
