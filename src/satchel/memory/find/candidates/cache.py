"""How much memory the arrays of many spaces may take together: those that were not used for longest are let go."""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakKeyDictionary

from satchel.storage import Database

__all__ = ["ArrayCache", "cache_of"]

MOST_BYTES = 1 << 30
"""Of all spaces of a database in one process: five of 100,000 memories, or some thousand of a few hundred."""


class ArrayCache:
    """Which spaces have arrays in memory, those used last at the end. It is used by one event loop."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self.most_bytes = most_bytes
        self._sizes: dict[Callable[[], None], int] = {}

    def note_use(self, let_go: Callable[[], None], size_bytes: int) -> None:
        """A space was used; others let go of their arrays where there is too much. The one in use keeps its own.

        `let_go` drops its arrays; the next use loads them again.
        """
        self.remove(let_go)
        self._sizes[let_go] = size_bytes
        total = sum(self._sizes.values())
        for other in list(self._sizes):
            if total <= self.most_bytes or other == let_go:
                break
            total -= self._sizes.pop(other)
            other()

    def remove(self, let_go: Callable[[], None]) -> None:
        """A space was closed."""
        self._sizes.pop(let_go, None)


_caches: WeakKeyDictionary[Database, ArrayCache] = WeakKeyDictionary()


def cache_of(backend: Database) -> ArrayCache:
    """The cache that all spaces of a database share in this process."""
    return _caches.setdefault(backend, ArrayCache())
