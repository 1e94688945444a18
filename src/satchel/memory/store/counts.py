"""What a store holds, counted by day and by tag. Reads only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final

from sqlalchemy import BigInteger, Connection, case, cast, desc, func, select

from satchel.memory.records import Kind
from satchel.memory.spheres import PERSON
from satchel.memory.store.tables import memories, tags
from satchel.memory.text.names import names_in

_MINUTE_MICROS: Final = 60_000_000
_DAY_MICROS: Final = 24 * 60 * _MINUTE_MICROS
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_LAST_DAY: Final = date.max.toordinal()
_MOST_READ: Final = 1_000
"""Memories: reading the names in so many of 400 characters takes 0.16 s of CPU."""
_READ_CHARS: Final = 600
_MOST_WAYS: Final = 24


@dataclass(frozen=True, slots=True)
class DayCount:
    """How many memories of a kind were said on a day, where they were said."""

    day: date
    kind: Kind
    count: int


@dataclass(frozen=True, slots=True)
class TagCount:
    """How many memories have a tag."""

    tag: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """What leads to memories: each name or sphere with how many memories speak of it, the most first."""

    names: Sequence[tuple[str, int]]
    spheres: Sequence[tuple[str, int]]


def read_ways(connection: Connection, space: int, *, now: int) -> Ways:
    """The names and spheres in what holds now of the newest facts and the user's own words."""
    rows = connection.execute(
        select(func.substr(memories.c.content, 1, _READ_CHARS), memories.c.spheres, memories.c.kind)
        .where(
            memories.c.space_id == space,
            memories.c.kind.in_(("fact", "episode")),
            memories.c.trust == "user",
            func.coalesce(memories.c.valid_to, now + 1) > now,
        )
        .order_by(case((memories.c.kind == "fact", 0), else_=1), memories.c.said_at.desc())
        .limit(_MOST_READ)
    ).all()
    spheres = Counter(one for _, some, kind in rows if kind == "fact" for one in some.split())
    persons = {one.removeprefix(PERSON) for one in spheres if one.startswith(PERSON)}
    found = names_in((text, kind == "fact") for text, _, kind in rows)
    known = {"-".join(name.casefold().split()) for name in found}
    called = [(person.replace("-", " ").title(), spheres[PERSON + person]) for person in persons - known]

    def most(some: Iterable[tuple[str, int]]) -> Sequence[tuple[str, int]]:
        return sorted(some, key=lambda one: (-one[1], one[0]))[:_MOST_WAYS]

    return Ways(
        names=most([*called, *found.items()]),
        spheres=most((name, n) for name, n in spheres.items() if not name.startswith(PERSON)),
    )


def read_days(connection: Connection, space: int) -> tuple[DayCount, ...]:
    """The memories of a space by day and kind, the oldest day first."""
    # Counted from the first day of the calendar, so that integer division rounds down everywhere.
    offset = cast(memories.c.said_offset_min, BigInteger) * _MINUTE_MICROS
    since_first = memories.c.said_at + offset + _EPOCH_DAY * _DAY_MICROS
    number = (since_first // _DAY_MICROS).label("number")
    rows = connection.execute(
        select(number, memories.c.kind, func.count())
        .where(memories.c.space_id == space)
        .group_by(number, memories.c.kind)
        .order_by(number, memories.c.kind)
    )
    return tuple(
        DayCount(date.fromordinal(min(max(int(day), 1), _LAST_DAY)), kind, n) for day, kind, n in rows
    )


def read_tags(connection: Connection, space: int, limit: int) -> tuple[TagCount, ...]:
    """The tags of a space, those of most memories first."""
    count = func.count().label("count")
    rows = connection.execute(
        select(tags.c.tag, count)
        .join(memories, memories.c.rid == tags.c.rid)
        .where(memories.c.space_id == space)
        .group_by(tags.c.tag)
        .order_by(desc(count), tags.c.tag)
        .limit(limit)
    )
    return tuple(TagCount(tag, n) for tag, n in rows)
