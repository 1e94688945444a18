"""How a turn emits its events: in order, one write at a time, never cut in half by a cancellation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

import anyio

from satchel.errors import StorageUnwritable
from satchel.events import Event, TurnStart, is_transient

Emit: TypeAlias = Callable[[Sequence[Event]], Awaitable[object]]
"""The caller's function that logs events and shows them. It returns once those that must be durable are.

It is never called again before it has returned. An exception from it ends the turn, because nothing may continue that
can't be logged (DESIGN 1, promise 2)."""


_CHARS_PER_S: Final = 100_000
"""Extra time for long messages, which are scanned for secrets before they are written: ten megabytes take twelve
seconds on an idle machine, and up to a hundred on a busy one."""


class _Batch:
    """Events that are written together, because they came while an earlier batch was being written."""

    __slots__ = ("done", "error", "events")

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.done = False
        self.error: Exception | None = None


class Emitter:
    """Passes the events of all tasks of a turn to `Emit`.

    Calls that end at the same time share one write: while one task waits for the journal, the others add their events
    to the next batch, and the first of them to get the lock writes the whole batch.
    """

    def __init__(
        self, emit: Emit, *, limit_s: float, apply: Callable[[Event], None] = lambda _: None
    ) -> None:
        """Create the emitter of one turn.

        Args:
            emit: Logs and shows the events.
            limit_s: Seconds that one write may take before the journal counts as broken.
            apply: Receives every event that is logged, before it is written and in the order of the log.
        """
        self._emit = emit
        self._limit_s = limit_s
        self._apply = apply
        self._lock = anyio.Lock(fast_acquire=True)
        self._batch = _Batch()

    async def __call__(self, *events: Event, limit_s: float | None = None) -> None:
        """Emit events in this order. When this returns, those that must be durable are.

        A write that has begun is finished even if the turn is cancelled meanwhile, so that the log and the conversation
        in memory agree. `limit_s` is for the write; None uses the usual limit.

        Raises:
            StorageUnwritable: The write took longer than the limit.
            Exception: What `Emit` raised.
        """
        if len(events) == 1 and is_transient(events[0]):
            # What streams is shown and never logged: it does not wait for writes.
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
        # Every task whose events are in the batch must raise this, not only the one that wrote it.
        except Exception as error:  # noqa: BLE001
            batch.error = error
        finally:
            batch.done = True
