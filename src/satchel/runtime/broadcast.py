"""The events of one session for any number of readers, each from a number on, live or replayed."""

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

__all__ = ["Broadcast", "ReadRecords", "Subscription"]

ReadRecords: TypeAlias = Callable[[int, int], Awaitable[Sequence[Record]]]
"""Reads logged records: those after a number, and at most how many."""

_RECENT_RECORDS = 1_000
"""Records kept in memory for readers that follow live; a reader that is further behind gets them from the log."""
_PAGE = 200
"""Records that one read of the log gives."""
_PIECES = (TextDelta, ThinkingDelta, ToolInputDelta)


class Broadcast:
    """Holds the newest records, and wakes whoever follows.

    Attributes:
        last_seq: The number of the newest record, 0 before the first.
    """

    def __init__(self, *, last_seq: int, read: ReadRecords) -> None:
        """Take the number of the log's last record, and what reads older ones."""
        self.last_seq = last_seq
        self._read = read
        self._recent: deque[Record] = deque(maxlen=_RECENT_RECORDS)
        self._partial = _Unlogged()
        # Weak: a reader that is gone without saying so must not be fed for ever.
        self._subscriptions: WeakSet[Subscription] = WeakSet()
        self._changed = anyio.Event()
        self._is_closed = False

    def publish(self, record: Record) -> None:
        """Hand a logged record to every reader."""
        self.last_seq = record.seq
        self._recent.append(record)
        # What was shown piece by piece is now in a record, in full.
        if isinstance(record.event, Assistant | TurnEnd):
            self._partial.clear()
        if isinstance(record.event, TurnStart):
            for subscription in tuple(self._subscriptions):
                subscription.drop_pending()
        self.wake()

    def publish_transient(self, event: Event, *, at: datetime) -> None:
        """Hand on an event that is not logged. It has the number of the record before it."""
        record = Record(seq=self.last_seq, at=at, event=event)
        self._partial.push(record)
        for subscription in tuple(self._subscriptions):
            subscription.push_transient(record)
        self.wake()

    def forget(self) -> None:
        """Drop what is held in memory: words in the log were removed, and readers must get them from there."""
        self._recent.clear()
        self._partial.clear()
        for subscription in tuple(self._subscriptions):
            subscription.drop_pending()

    def close(self) -> None:
        """End every reader after the newest record."""
        self._is_closed = True
        self.wake()

    def subscribe(
        self, after_seq: int | None = None, *, until: Callable[[int], bool] | None = None
    ) -> Subscription:
        """Follow from a number on.

        Args:
            after_seq: The number of the last record that the reader has: 0 gives everything from the log's beginning,
                None only what comes from now on.
            until: Given the number of the last record that was read, says whether that was the end; looked at again
                whenever `wake` is called.

        Raises:
            UsageError: The log has no such number.
        """
        if after_seq is None:
            after_seq = self.last_seq
        if not 0 <= after_seq <= self.last_seq:
            raise UsageError(
                f"There is no event {after_seq} in this session: its events are numbered from 1 to {self.last_seq}."
            )
        subscription = Subscription(self, after_seq, self._partial.copy(), until)
        self._subscriptions.add(subscription)
        return subscription

    def leave(self, subscription: Subscription) -> None:
        """A reader stopped reading."""
        self._subscriptions.discard(subscription)

    async def after(self, seq: int) -> Sequence[Record]:
        """The records that come right after a number, oldest first; at least one where there is one."""
        if self._recent and self._recent[0].seq <= seq + 1:
            return [record for record in self._recent if record.seq > seq]
        return await self._read(seq, _PAGE)

    async def wait(self) -> bool:
        """Wait until something changes; False where nothing will any more."""
        if self._is_closed:
            return False
        await self._changed.wait()
        return True

    def wake(self) -> None:
        """Let every reader look again."""
        self._changed.set()
        self._changed = anyio.Event()


class Subscription(AsyncIterator[Record]):
    """One reader. A slow one gets streamed text in larger pieces, and only the newest progress of a call; it holds up
    nobody, and leaving ends nothing.
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

    @property
    def seq(self) -> int:
        """The number of the last logged record that was read."""
        return self._seq

    def push_transient(self, record: Record) -> None:
        """Take an event that is not logged."""
        self._pending.push(record)

    def drop_pending(self) -> None:
        """Leave out what was streamed and not read: it is in the log, in full."""
        self._pending.clear()
        self._ready.clear()

    async def __anext__(self) -> Record:
        """The next record; its number is that of the last logged one where it is not logged itself.

        Raises:
            StopAsyncIteration: The session was closed, or this reader has left.
            StorageError: The log can't be read.
        """
        while not self._has_left:
            if self._until is not None and self._until(self._seq):
                break
            # Both lists are in order; what is not logged comes right after the record whose number it has.
            if self._pending and self._pending.seq <= self._seq:
                return self._pending.pop()
            if not self._ready and self._seq < self._broadcast.last_seq:
                self._ready.extend(await self._broadcast.after(self._seq))
                if not self._ready:
                    # Lines of the log that can't be read have numbers too.
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
        """Stop reading. It may be called twice."""
        self._has_left = True
        self._broadcast.leave(self)


class _Unlogged:
    """Events that are not logged, oldest first, with the pieces of one text kept together until they are read."""

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
        """The number of the first."""
        return self._entries[0].record.seq

    def push(self, record: Record) -> None:
        event = record.event
        if isinstance(event, ToolProgress):
            # Only the newest progress of a call says how far it is.
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

    # Two entries with equal content are still two.
    __eq__ = object.__eq__
    __hash__ = object.__hash__


def _continues(event: Event, last: Event) -> bool:
    if isinstance(event, ToolInputDelta):
        return isinstance(last, ToolInputDelta) and last.call_id == event.call_id
    return type(event) is type(last)
