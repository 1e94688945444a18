"""Which memories are meant: the keywords that search, list, count and export have in common, and their checked form."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, TypedDict

from satchel.memory.records import Discretion, Kind, MemoryType, Tier

if TYPE_CHECKING:
    from sqlalchemy import Connection


class Filters(TypedDict, total=False):
    """Which memories; what is left out, None or empty does not filter, and all that is given has to fit.

    Attributes:
        memory_type: What they are about.
        tags: All of them must be there.
        since: Said then or later; without an offset it is read as local time, and so are the other times.
        until: Said before then.
        as_of: Only what had been said by then, and held then.
        faded: Only what has faded, so that search alone finds it (True), or only the rest (False).
        folded: Without the turns from which one of the facts that fit was drawn: they are its evidence
            (`Memory.evidence`), and in a list without what models said. A search still finds a turn whose fact it
            doesn't find.
        discretion: Only what is held back so, or not ("open").
        sphere: Only what belongs to this part of the user's life; see `spheres`.
        named: Only what has this name in it as a whole word, in this case, or belongs to a person of this name.
        not_by_models: Without what models said.
        unreviewed: Only facts from conversations that the user has neither kept (`Memory.keep`) nor changed.
    """

    kind: Kind | None
    tier: Tier | None
    memory_type: MemoryType | None
    tags: Iterable[str]
    speaker: str | None
    session: str | None
    since: datetime | None
    until: datetime | None
    as_of: datetime | None
    faded: bool | None
    folded: bool
    discretion: Discretion | None
    sphere: str | None
    named: str | None
    not_by_models: bool
    unreviewed: bool


class CheckedFilters(Filters, total=False):
    """The same after checking: only what filters, times with their offsets, tags without blanks.

    Attributes:
        now: The time at which memories must have faded or not, in microseconds since 1970.
        by_request: Decay counts chat requests instead of days.
    """

    now: int
    by_request: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Visible:
    """Which memories may be found, by rid.

    Attributes:
        allowed: Only these, or None for all.
        hidden: None of these.
    """

    allowed: frozenset[int] | None = None
    hidden: frozenset[int] = frozenset()

    def shows(self, rid: int) -> bool:
        """Whether it may be found."""
        return rid not in self.hidden and (self.allowed is None or rid in self.allowed)


VisibleOf = Callable[["Connection"], Visible]
"""Reads which memories may be found."""
