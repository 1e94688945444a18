"""A cache of what was computed for each message, so that a round converts only new messages."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from satchel.messages import Message

T = TypeVar("T")


class MessageCache(Generic[T]):
    """Stores one value per message object.

    Messages are frozen, so the same object always has the same value. The cache keeps a reference to the message, so
    that its id can't be reused while the entry exists.
    """

    def __init__(self, *, limit: int, weigh: Callable[[T], int]) -> None:
        """Set the bound.

        Args:
            limit: The maximum sum of weights; the least recently used entries are dropped first.
            weigh: Returns the weight of a value, such as its length in bytes.
        """
        self._limit = limit
        self._weigh = weigh
        self._weight = 0
        self._entries: OrderedDict[int, tuple[Message, T]] = OrderedDict()

    def get(self, message: Message, make: Callable[[Message], T]) -> T:
        """The value of the message; `make` computes it if it isn't cached."""
        key = id(message)
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
            return entry[1]
        value = make(message)
        self._entries[key] = (message, value)
        self._weight += self._weigh(value)
        while self._weight > self._limit and len(self._entries) > 1:
            _, (_, dropped) = self._entries.popitem(last=False)
            self._weight -= self._weigh(dropped)
        return value
