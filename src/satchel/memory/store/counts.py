"""What a store holds, counted by day and by tag. Reads only."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Final

from sqlalchemy import BigInteger, Connection, cast, desc, func, select

from satchel.memory.records import Kind
from satchel.memory.store.tables import memories, tags

__all__ = ["DayCount", "TagCount", "read_days", "read_tags"]

_MINUTE_MICROS: Final = 60_000_000
_DAY_MICROS: Final = 24 * 60 * _MINUTE_MICROS
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_LAST_DAY: Final = date.max.toordinal()


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
