"""Notices that concern everybody, such as a server that is down: collected here, delivered to every session."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import overload

from satchel.events import Notice

_MOST_KEPT = 200
"""The maximum number of notices, because a server may fail every minute. Session logs have the older ones."""


class NoticeBoard(Sequence[Notice]):
    """The notices so far, oldest first, and the listeners that get each new one."""

    def __init__(self) -> None:
        self._notices: list[Notice] = []
        self._listeners: list[Callable[[Notice], None]] = []
        self._watchers: list[Callable[[Notice], None]] = []

    def post(self, notice: Notice) -> None:
        """Add a notice and pass it to every listener."""
        self._notices.append(notice)
        del self._notices[:-_MOST_KEPT]
        for listener in tuple(self._listeners):
            listener(notice)

    def post_once(self, notice: Notice) -> None:
        """Post a notice unless an equal one is already on the board."""
        if notice not in self._notices:
            self.post(notice)

    def show(self, notice: Notice) -> None:
        """Pass a notice to those who watch now, and keep it nowhere."""
        for watcher in tuple(self._watchers):
            watcher(notice)

    def watch(self, watcher: Callable[[Notice], None]) -> Callable[[], None]:
        """Call `watcher` with each notice that is only shown. Returns a function that removes it."""
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher)

    def listen(self, listener: Callable[[Notice], None]) -> Callable[[], None]:
        """Call `listener` with each new notice.

        Returns:
            A function that removes the listener.
        """
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def __len__(self) -> int:
        """The number of notices on the board."""
        return len(self._notices)

    @overload
    def __getitem__(self, index: int) -> Notice: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Notice]: ...
    def __getitem__(self, index: int | slice) -> Notice | Sequence[Notice]:
        """The notice, or the notices, at an index, as in a list."""
        return self._notices[index]

    def __iter__(self) -> Iterator[Notice]:
        """Iterate over a copy, oldest first."""
        return iter(tuple(self._notices))
