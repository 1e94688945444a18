"""What the user should know about parts that are missing: collected in one place, heard by every session."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import overload

from satchel.events import Notice

__all__ = ["NoticeBoard"]

_MOST_KEPT = 200
"""A server that fails every minute must not fill the memory; the session logs have the rest."""


class NoticeBoard(Sequence[Notice]):
    """The notices so far, oldest first, and the listeners that hear each new one."""

    def __init__(self) -> None:
        """Start empty."""
        self._notices: list[Notice] = []
        self._listeners: list[Callable[[Notice], None]] = []

    def post(self, notice: Notice) -> None:
        """Keep a notice and tell every listener."""
        self._notices.append(notice)
        del self._notices[:-_MOST_KEPT]
        for listener in tuple(self._listeners):
            listener(notice)

    def post_once(self, notice: Notice) -> None:
        """The same, unless the notice is there already."""
        if notice not in self._notices:
            self.post(notice)

    def listen(self, listener: Callable[[Notice], None]) -> Callable[[], None]:
        """Call `listener` with each new notice.

        Returns:
            A function that ends this.
        """
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def __len__(self) -> int:
        """The number of notices that are kept."""
        return len(self._notices)

    @overload
    def __getitem__(self, index: int) -> Notice: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Notice]: ...
    def __getitem__(self, index: int | slice) -> Notice | Sequence[Notice]:
        """As of a list."""
        return self._notices[index]

    def __iter__(self) -> Iterator[Notice]:
        """Oldest first."""
        return iter(tuple(self._notices))
