"""Which memories are meant: the keywords that search, list, count and export have in common, and their checked form."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypedDict

from satchel.memory.records import Discretion, Kind, MemoryType, Tier
from satchel.memory.store.checking import CHECKS, clean_tags

if TYPE_CHECKING:
    from sqlalchemy import Connection

__all__ = ["Faded", "CheckedFilters", "Filters", "Visible", "VisibleOf", "filter_of"]


class Filters(TypedDict, total=False):
    """Which memories; what is left out, None or empty does not filter, and all that is given has to fit.

    Attributes:
        kind: What they are.
        tier: Their tier.
        memory_type: What they are about.
        tags: All of them must be there.
        speaker: Who said them.
        session: The conversation they come from.
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
    unreviewed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Faded:
    """Whether memories must have faded at a time.

    Attributes:
        is_wanted: They must, or they must not.
        at: The time, in microseconds since 1970.
        by_request: Decay counts chat requests instead of days.
    """

    is_wanted: bool
    at: int
    by_request: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedFilters:
    """`Filters` after checking: times with their offsets, tags without blanks."""

    kind: Kind | None = None
    tier: Tier | None = None
    memory_type: MemoryType | None = None
    tags: tuple[str, ...] = ()
    speaker: str | None = None
    session: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    as_of: datetime | None = None
    faded: Faded | None = None
    folded: bool = False
    discretion: Discretion | None = None
    sphere: str | None = None
    named: str | None = None
    unreviewed: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether it lets everything through."""
        return self == CheckedFilters()


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


def filter_of(
    given: Filters, aware: Callable[[datetime | None], datetime | None], faded: Callable[[bool], Faded]
) -> CheckedFilters:
    """Check filters as they are given.

    `aware` gives a time its offset; `faded` says whether memories must have faded by now.

    Raises:
        UsageError: There is no such kind, tier or type.
        TypeError: There is no such filter.
    """
    values: dict[str, Any] = {**given}
    for name in ("kind", "tier", "memory_type", "discretion"):
        if values.get(name) is not None:
            CHECKS[name](values[name])
    values["tags"] = clean_tags(values.get("tags") or ())
    for name in ("since", "until", "as_of"):
        values[name] = aware(values.get(name))
    if values.get("faded") is not None:
        values["faded"] = faded(bool(values["faded"]))
    values["folded"] = bool(values.get("folded"))
    return CheckedFilters(**values)
