"""One door for a turn's events: in order, never two at a time, never cut in half by a cancellation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

import anyio

from satchel.errors import StorageUnwritable
from satchel.events import Event, TurnStart, is_transient

__all__ = ["Emit", "Emitter"]

Emit: TypeAlias = Callable[[Sequence[Event]], Awaitable[None]]
"""Given by the caller of a turn: shows events and journals them, and returns when what must be durable is.

It is never called again before it returned. An exception from it ends the turn: what can't be written down
must not go on (DESIGN 1, promise 2)."""


_CHARS_PER_S: Final = 100_000
"""A message of the user may be very long, and is looked through for secrets before it is written: ten megabytes take
twelve seconds of a quiet machine's time, and may take as long as this says on one with other work."""


class _Batch:
    """Events that go out together, because they were said while earlier ones were being written."""

    __slots__ = ("done", "error", "events")

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.done = False
        self.error: Exception | None = None


class Emitter:
    """Hands events to `Emit` for all tasks of a turn.

    Calls that end at the same time share one write: while one task waits for the journal, the others put
    their events into the next batch, and the first of them to get the turn writes it whole.
    """

    def __init__(
        self, emit: Emit, *, limit_s: float, apply: Callable[[Event], None] = lambda _: None
    ) -> None:
        """Make the door for one turn.

        Args:
            emit: Writes and shows the events.
            limit_s: The time that one write may take before the journal is taken for broken.
            apply: Gets every event that is not transient, before it is written and in the order of the log.
        """
        self._emit = emit
        self._limit_s = limit_s
        self._apply = apply
        self._lock = anyio.Lock(fast_acquire=True)
        self._batch = _Batch()

    async def __call__(self, *events: Event, limit_s: float | None = None) -> None:
        """Emit events in this order; they are durable, as far as they must be, when this returns.

        A write that began is finished even when the turn is cancelled meanwhile: the journal and the history
        in memory must tell the same story.

        Args:
            events: Any number.
            limit_s: Instead of the usual limit, in seconds.

        Raises:
            StorageUnwritable: The write took longer than the limit.
            Exception: Whatever `Emit` raised.
        """
        if len(events) == 1 and is_transient(events[0]):
            async with self._lock:
                await self._emit(events)
            return
        batch = self._batch
        # No `await` between the two: the conversation and the log get the events together, in the same order.
        for event in events:
            self._apply(event)
        batch.events.extend(events)
        with anyio.CancelScope(shield=True):
            async with self._lock:
                if not batch.done:
                    self._batch = _Batch()
                    await self._write(batch, self._limit_s if limit_s is None else limit_s)
        if batch.error is not None:
            raise batch.error

    async def _write(self, batch: _Batch, limit_s: float) -> None:
        limit_s += sum(len(event.message.text) for event in batch.events if isinstance(event, TurnStart)) / (
            _CHARS_PER_S
        )
        try:
            with anyio.fail_after(limit_s):
                await self._emit(tuple(batch.events))
        except TimeoutError as error:
            batch.error = StorageUnwritable(
                f"The session log did not take {len(batch.events)} events within {limit_s:g} s. "
                "Check the disk that holds it."
            )
            batch.error.__cause__ = error
        # Every task whose events are in the batch has to hear of it, not only the one that wrote.
        except Exception as error:  # noqa: BLE001
            batch.error = error
        finally:
            batch.done = True
