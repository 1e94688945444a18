"""Reads the query of a page. An invalid field is reported beside it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, tzinfo
from typing import Final, Generic, TypeVar
from urllib.parse import urlencode

from starlette.requests import Request

from satchel.errors import UsageError

T = TypeVar("T")

_MOST_CHARS: Final = 10_000
MOST_PAGES: Final = 1_000_000
_YEARS: Final = range(1601, 3001)
"""Arithmetic with other years overflows where time zones are added."""


@dataclass(slots=True)
class FieldReader:
    """Reads fields, and collects their problems.

    Attributes:
        values: The fields as they were sent.
        problems: By name, what is wrong.
    """

    values: Mapping[str, str]
    problems: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, request: Request) -> FieldReader:
        """The fields of a query. Of a repeated one, the last is used."""
        return cls({name: value[:_MOST_CHARS] for name, value in request.query_params.items()})

    @property
    def status(self) -> int:
        """Of the answer: 422 if something is wrong."""
        return 422 if self.problems else 200

    def text(self, name: str) -> str:
        """A text, without blanks around it; "" where there is none."""
        return self.values.get(name, "").strip()

    def one_of(self, name: str, allowed: Collection[str]) -> str:
        """One of the values, or "" where none is given."""
        value = self.text(name)
        if value and value not in allowed:
            self.problems[name] = f"There is no {value[:60]!r} here."
            return ""
        return value

    def number(self, name: str, default: int, *, low: int, high: int) -> int:
        """A whole number."""
        value = self.text(name)
        if not value:
            return default
        if not (value.isascii() and value.isdigit() and len(value) <= 15) or not low <= int(value) <= high:
            self.problems[name] = f"{value[:40]!r} is not a number from {low:,} to {high:,}."
            return default
        return int(value)

    def day(self, name: str) -> date | None:
        """A day, as "2026-11-23"."""
        value = self.text(name)
        if not value:
            return None
        try:
            found = date.fromisoformat(value)
        except ValueError:
            found = date.min
        if found.year not in _YEARS:
            self.problems[name] = f"{value[:40]!r} is not a day. Write it as 2026-11-23."
            return None
        return found


def day_start(day: date, zone: tzinfo | None) -> datetime:
    """The first moment of a day."""
    return datetime.combine(day, time.min, tzinfo=zone)


def path_with(path: str, values: Mapping[str, object]) -> str:
    """A path with a query of the values that are there."""
    query = urlencode({name: value for name, value in values.items() if value not in (None, "", 0, False)})
    return f"{path}?{query}" if query else path


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPart(Generic[T]):
    """A part of a list: its first number, from 1, and the paths of the parts before and after it, or ""."""

    shown: Sequence[T]
    first: int
    total: int
    before: str
    after: str


def part_of(
    asked: FieldReader, path: str, size: int, found: Sequence[T], total: int | None = None
) -> ListPart[T]:
    """The part of a list that the field `page` asks for.

    Args:
        asked: The other fields stay in the paths of the other parts.
        path: Of the page.
        size: How many entries a part has.
        found: The whole list; with `total`, only the part.
        total: How many entries there are.

    Raises:
        UsageError: The field is no number. With `total`, the page reports that itself.
    """
    number = asked.number("page", 1, low=1, high=MOST_PAGES)
    if total is None:
        if "page" in asked.problems:
            raise UsageError(asked.problems["page"])
        number = min(number, max(1, -(-len(found) // size)))  # the list has become shorter: its last part
    start = (number - 1) * size
    shown, total = (found[start : start + size], len(found)) if total is None else (found, total)

    def at(page: int) -> str:
        return path_with(path, {**asked.values, "page": page if page > 1 else ""})

    return ListPart(
        shown=shown,
        first=start + 1,
        total=total,
        before=at(number - 1) if start else "",
        after=at(number + 1) if start + size < total else "",
    )
