"""What was made of a message once, so that a round maps only what is new in the history."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from satchel.messages import Message

__all__ = ["MessageCache"]

T = TypeVar("T")


class MessageCache(Generic[T]):
    """Remembers one value per message object.

    Messages are frozen, so a message that is the same object has the same value. The cache holds the message
    beside its value: an id cannot come to mean another message while it is here.
    """

    def __init__(self, *, limit: int, weigh: Callable[[T], int]) -> None:
        """Take the bound.

        Args:
            limit: Sum of the weights that are kept; what was not used for longest goes first.
            weigh: The weight of a value, such as its length in bytes.
        """
        self._limit = limit
        self._weigh = weigh
        self._weight = 0
        self._entries: OrderedDict[int, tuple[Message, T]] = OrderedDict()

    def get(self, message: Message, make: Callable[[Message], T]) -> T:
        """The message's value; `make` is called where it is not there."""
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
