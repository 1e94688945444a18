"""What the services of memory share: one user's memories in one scope of a database."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from satchel.clock import in_zone_of
from satchel.memory.store import checking
from satchel.memory.store.filters import Filters
from satchel.memory.store.micros import to_micros
from satchel.memory.store.redaction import redact

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from satchel.clock import Clock
    from satchel.memory.find.candidates.engine import Candidates
    from satchel.memory.find.embedding import DenseArm
    from satchel.memory.records import Moment
    from satchel.memory.store.claims import Claims
    from satchel.memory.store.filters import CheckedFilters
    from satchel.memory.store.thread import OneThread
    from satchel.memory.text.hashing import WordHasher
    from satchel.storage import Database

P = ParamSpec("P")
T = TypeVar("T")

INLINE_CHARS = 20_000
"""Longer texts are processed on memory's own thread; this many take 5 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """One user's memories in one scope, and what it takes to read and change them.

    Attributes:
        id: Its number in the database.
        claims: Divides work between processes.
        by_request: Whether decay counts chat requests instead of days.
        candidates: Finds memories by words and by meaning.
        dense: The embedder and its vectors in the database; None to go by words alone.
        thread: For work that would block the event loop.
    """

    id: int
    user: str
    scope: str
    backend: Database
    candidates: Candidates
    claims: Claims
    dense: DenseArm | None
    clock: Clock
    hasher: WordHasher
    thread: OneThread
    redacts: bool
    by_request: bool
    locale: str

    async def read(
        self, statement: Callable[Concatenate[Connection, int, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `statement(connection, space, …)` in one snapshot of the database."""
        return await self.backend.read(lambda connection: statement(connection, self.id, *args, **kwargs))

    async def write(
        self, statement: Callable[Concatenate[Connection, int, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `statement(connection, space, …)` in a transaction that holds the space's lock."""
        return await self.backend.write(lambda connection: statement(connection, self.id, *args, **kwargs))

    async def write_durably(
        self, statement: Callable[Concatenate[Connection, int, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """The same, and return only when it is on the disk."""
        return await self.backend.write(
            lambda connection: statement(connection, self.id, *args, **kwargs), durable=True
        )

    def now_micros(self) -> int:
        """The time in microseconds since 1970."""
        return to_micros(self.clock.now())

    def filter_of(self, given: Filters) -> CheckedFilters:
        """Check filters as they are given; raises `UsageError` for an unknown kind, tier or type."""
        checking.refuse_unknown(given, Filters, "filter")
        found: Any = {**given, "tags": checking.clean_tags(given.get("tags") or ())}
        for name in ("since", "until", "as_of"):
            found[name] = self.aware(found.get(name))
        # Not to want what has faded filters; not to fold doesn't.
        for name, value in list(found.items()):
            if value is None or (not value and name in ("tags", "folded", "not_by_models", "unreviewed")):
                del found[name]
            elif name in ("kind", "tier", "memory_type", "discretion"):
                checking.CHECKS[name](value)
        if "faded" in found:
            found |= {"now": self.now_micros(), "by_request": self.by_request}
        return found  # type: ignore[no-any-return]

    def aware(self, moment: Moment | None) -> datetime | None:
        """A time with its offset. A time without one is in the clock's zone, with the offset of its own day."""
        if moment is None:
            return None
        at = checking.moment_of(moment)
        return at if at.utcoffset() is not None else in_zone_of(self.clock.now(), at)

    def micros(self, moment: Moment | None) -> int | None:
        """The same in microseconds since 1970."""
        aware = self.aware(moment)
        return None if aware is None else to_micros(aware)

    async def redacted(self, text: str) -> str:
        """The text without secrets."""
        if not self.redacts:
            return text
        return redact(text) if len(text) <= INLINE_CHARS else await self.thread.run(redact, text)
