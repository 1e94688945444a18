"""Delivers the events of one session to any number of readers, from the log or live."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeAlias
from weakref import WeakSet

import anyio

from satchel.errors import UsageError
from satchel.events import (
    Assistant,
    Event,
    Record,
    TextDelta,
    ThinkingDelta,
    ToolInputDelta,
    ToolProgress,
    TurnEnd,
    TurnStart,
)

ReadRecords: TypeAlias = Callable[[int, int], Awaitable[Sequence[Record]]]
"""Reads logged records. Arguments: the number of the record before the first one, and the maximum number of records."""

_RECENT_RECORDS = 1_000
"""The newest records stay in memory. A reader that is further behind reads from the log."""
_PAGE = 200
"""The maximum number of records in one read of the log."""
_MOST_BITS = 64
"""Larger numbers are not printed: Python refuses to convert very large ones."""
_PIECES = (TextDelta, ThinkingDelta, ToolInputDelta)


class Broadcast:
    """Keeps the newest records and wakes the readers.

    It has no queue for each reader, so a reader that stops reading costs nothing.

    Attributes:
        last_seq: The number of the newest record; 0 before the first.
    """

    def __init__(self, *, last_seq: int, read: ReadRecords) -> None:
        """`last_seq` is the number of the last record in the log, and `read` reads records from it."""
        self.last_seq = last_seq
        self._read = read
        self._recent: deque[Record] = deque(maxlen=_RECENT_RECORDS)
        self._partial = _Unlogged()
        # Weak references, so that an abandoned reader is dropped.
        self._subscriptions: WeakSet[Subscription] = WeakSet()
        self._changed: anyio.Event | None = None  # Only while somebody waits.
        self._is_closed = False

    def publish(self, record: Record) -> None:
        """Deliver a record that is in the log."""
        self.last_seq = record.seq
        self._recent.append(record)
        # The record contains the whole text, so later readers don't need the pieces.
        if isinstance(record.event, Assistant | TurnEnd):
            self._partial.clear()
        if isinstance(record.event, TurnStart):
            for subscription in tuple(self._subscriptions):
                subscription.drop_pending()
        self.wake()

    def publish_transient(self, event: Event, *, at: datetime, is_kept: bool = True) -> None:
        """Deliver an event that is not logged. It gets the number of the record before it. With `is_kept`, readers that
        come later get it, too, until the answer is logged.
        """
        record = Record(seq=self.last_seq, at=at, event=event)
        if is_kept:
            self._partial.push(record)
        for subscription in tuple(self._subscriptions):
            subscription.push_transient(record)
        self.wake()

    def forget(self) -> None:
        """Drop the records in memory, because words were removed from the log; readers get the others from there."""
        self._recent.clear()
        self._partial.clear()
        for subscription in tuple(self._subscriptions):
            subscription.drop_pending()

    def close(self) -> None:
        """End every subscription after the newest record."""
        self._is_closed = True
        self.wake()

    def subscribe(
        self, after_seq: int | None = None, *, until: Callable[[int], bool] | None = None
    ) -> Subscription:
        """Follow the events after a number.

        Args:
            after_seq: The number of the last record that the reader has: 0 starts with the first record of the log,
                None with the next event.
            until: Gets the number of the last record that was read, and returns True if the subscription ends there.
                Called again after each `wake`.

        Raises:
            UsageError: There is no record with this number.
        """
        if after_seq is None:
            after_seq = self.last_seq
        # A client may send anything, and Python counts True as a number.
        is_number = type(after_seq) is int
        if not is_number or not 0 <= after_seq <= self.last_seq:
            named = after_seq if is_number and after_seq.bit_length() <= _MOST_BITS else "with this number"
            raise UsageError(
                f"There is no event {named} in this session: its events are numbered from 1 to {self.last_seq}."
            )
        subscription = Subscription(self, after_seq, self._partial.copy(), until)
        self._subscriptions.add(subscription)
        return subscription

    def leave(self, subscription: Subscription) -> None:
        """Remove a subscription."""
        self._subscriptions.discard(subscription)

    async def after(self, seq: int) -> Sequence[Record]:
        """Some records directly after a number, oldest first; at least one if there is one."""
        if self._recent and self._recent[0].seq <= seq + 1:
            return [record for record in self._recent if record.seq > seq]
        return await self._read(seq, _PAGE)

    async def wait(self) -> bool:
        """Wait for the next event or `wake`; False if there will be none, because the session is closed."""
        if self._is_closed:
            return False
        if self._changed is None:
            self._changed = anyio.Event()
        await self._changed.wait()
        return True

    def wake(self) -> None:
        """Wake every reader that waits."""
        changed, self._changed = self._changed, None
        if changed is not None:
            changed.set()


class Subscription(AsyncIterator[Record]):
    """One reader's view of the events.

    A slow reader gets streamed text in larger pieces, and only the newest progress of each call. Reading slowly or
    leaving affects nobody else.
    """

    def __init__(
        self, broadcast: Broadcast, after_seq: int, partial: _Unlogged, until: Callable[[int], bool] | None
    ) -> None:
        """Use `Broadcast.subscribe`."""
        self._broadcast = broadcast
        self._seq = after_seq
        self._ready: deque[Record] = deque()
        self._pending = partial
        self._until = until
        self._has_left = False

    def push_transient(self, record: Record) -> None:
        """Add an event that is not logged."""
        self._pending.push(record)

    def drop_pending(self) -> None:
        """Drop streamed text that was not read; the log has the whole text."""
        self._pending.clear()
        self._ready.clear()

    async def __anext__(self) -> Record:
        """The next record. An event that is not logged has the number of the logged one before it.

        Raises:
            StopAsyncIteration: The session was closed, or this subscription was.
            StorageError: The log can't be read.
        """
        while not self._has_left:
            if self._until is not None and self._until(self._seq):
                break
            # Both sequences are in order. Events that are not logged come after the record whose number they have.
            if self._pending and self._pending.seq <= self._seq:
                return self._pending.pop()
            if not self._ready and self._seq < self._broadcast.last_seq:
                self._ready.extend(await self._broadcast.after(self._seq))
                if not self._ready:
                    # Unreadable lines of the log have numbers too; skip them.
                    self._seq = self._broadcast.last_seq
            if self._ready:
                record = self._ready.popleft()
                self._seq = record.seq
                return record
            if not self._pending and not await self._broadcast.wait():
                break
        await self.aclose()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Stop reading. May be called more than once."""
        self._has_left = True
        self._broadcast.leave(self)


class _Unlogged:
    """Events that are not logged, oldest first. The pieces of one text are joined when they are read."""

    def __init__(self, entries: Iterable[_Entry] = ()) -> None:
        self._entries = deque(entries)

    def __bool__(self) -> bool:
        return bool(self._entries)

    def copy(self) -> _Unlogged:
        return _Unlogged(_Entry(entry.record, entry.pieces[:]) for entry in self._entries)

    def clear(self) -> None:
        self._entries.clear()

    @property
    def seq(self) -> int:
        """The number of the oldest event."""
        return self._entries[0].record.seq

    def push(self, record: Record) -> None:
        event = record.event
        if isinstance(event, ToolProgress):
            # Newer progress of a call replaces older.
            for entry in self._entries:
                old = entry.record.event
                if isinstance(old, ToolProgress) and old.call_id == event.call_id:
                    self._entries.remove(entry)
                    break
        elif isinstance(event, _PIECES) and self._entries:
            last = self._entries[-1]
            if _continues(event, last.record.event) and last.record.seq == record.seq:
                last.pieces.append(event.text)
                return
        self._entries.append(_Entry(record, [event.text] if isinstance(event, _PIECES) else []))

    def pop(self) -> Record:
        entry = self._entries.popleft()
        if len(entry.pieces) > 1 and isinstance(entry.record.event, _PIECES):
            return replace(entry.record, event=replace(entry.record.event, text="".join(entry.pieces)))
        return entry.record


@dataclass(slots=True)
class _Entry:
    record: Record
    pieces: list[str]

    # Entries are removed by identity; two may have equal content.
    __eq__ = object.__eq__
    __hash__ = object.__hash__


def _continues(event: Event, last: Event) -> bool:
    if isinstance(event, ToolInputDelta):
        return isinstance(last, ToolInputDelta) and last.call_id == event.call_id
    return type(event) is type(last)
