"""A turn as its callers see it: while it runs, and how it ended."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import ReferenceType

import anyio

from satchel.events import Event, SurfacedMemory, TurnStatus
from satchel.messages import Usage

__all__ = ["RunningTurn", "Step", "Turn"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One call of a tool: its input as the model gave it, and its result as the model got it.

    Attributes:
        was_refused: Nobody was there to permit it, and `result` names the rule that would; or a rule denies it, and
            `result` names that one.
    """

    tool: str
    input: Mapping[str, Any]
    result: str
    is_error: bool
    was_refused: bool = False
    duration_ms: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """How a turn ended.

    Attributes:
        turn: Its number in the session, from 1.
        text: The answer, the question, or an honest sentence about why there is none.
        pending_question: Set when `status` is "asking"; the next message answers it.
        memory: What was shown to the model, best first.
        notices: What the user should know beside the answer.
    """

    session_id: str
    turn: int
    status: TurnStatus
    text: str
    steps: tuple[Step, ...] = ()
    usage: Usage = field(default_factory=Usage)
    memory: tuple[SurfacedMemory, ...] = ()
    pending_question: str | None = None
    notices: tuple[str, ...] = ()

    @property
    def was_refused(self) -> bool:
        """Whether a call was refused because nobody could be asked, or by a rule."""
        return any(step.was_refused for step in self.steps)


class RunningTurn:
    """A turn while it runs. Any number of readers may follow it, each from its beginning; none keeps it alive.

    Attributes:
        reader: The stream that it belongs to, where it ends with it; None for a turn that goes on by itself.
    """

    def __init__(self, cancel: Callable[[], None]) -> None:
        """Take what stops it; nothing has happened yet."""
        self._cancel = cancel
        self._events: list[Event] = []
        self._changed = anyio.Event()
        self._turn: Turn | None = None
        self._error: Exception | None = None
        self._is_over = False
        self._is_cancelled = False
        self.reader: ReferenceType[AsyncIterator[Event]] | None = None

    @property
    def is_ending(self) -> bool:
        """Whether it was told to stop; or nobody reads its stream any more, which the event loop closes in a moment."""
        return self._is_cancelled or (self.reader is not None and self.reader() is None)

    @property
    def is_over(self) -> bool:
        """Whether it ended, in whatever way."""
        return self._is_over

    @property
    def turn(self) -> Turn | None:
        """How it ended, or None: it still runs, or has no result."""
        return self._turn

    def tell(self, events: Sequence[Event]) -> None:
        """Let the readers know."""
        self._events.extend(events)
        self._wake()

    def finish(self, outcome: Turn | Exception) -> None:
        """It ended: with a result, or with what kept it from having one."""
        if isinstance(outcome, Turn):
            self._turn = outcome
        else:
            self._error = outcome
        self._is_over = True
        self._wake()

    def cancel(self) -> None:
        """Interrupt it; it ends with the status "cancelled" and a valid history. It may be called at any time."""
        if not self._is_over:
            self._is_cancelled = True
            self._cancel()

    async def events(self) -> AsyncIterator[Event]:
        """All events, those that happened already first.

        Raises:
            SatchelError: What ended the turn without a result, such as a full disk.
        """
        seen = 0
        while True:
            while seen < len(self._events):
                yield self._events[seen]
                seen += 1
            if self._is_over:
                break
            await self._changed.wait()
        if self._error is not None:
            raise self._error

    async def result(self) -> Turn:
        """Wait for the end.

        Raises:
            SatchelError: What ended the turn without a result.
        """
        while not self._is_over:
            await self._changed.wait()
        if self._error is not None:
            raise self._error
        assert self._turn is not None
        return self._turn

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
