"""Times as the database has them: microseconds since 1970."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - local wall time is computed with it, year 1 included
_FIRST, _LAST = datetime.min - _EPOCH, datetime.max - _EPOCH  # noqa: DTZ901 - wall time too
_EPOCH_UTC = datetime(1970, 1, 1, tzinfo=UTC)


def to_micros(moment: datetime) -> int:
    """Convert an aware time to microseconds since 1970; exact from year 1 to 9999."""
    return (moment - _EPOCH_UTC) // timedelta(microseconds=1)


def from_micros(micros: int, offset_min: int = 0) -> datetime:
    """Convert microseconds since 1970 to a time with this offset."""
    offset = timedelta(minutes=offset_min)
    # Computed in local time, because 0001-01-01 00:00+05:00 has no date in UTC. A time that is outside of the calendar
    # becomes its first or last moment.
    local = min(max(timedelta(microseconds=micros) + offset, _FIRST), _LAST)
    return (_EPOCH + local).replace(tzinfo=timezone(offset))
