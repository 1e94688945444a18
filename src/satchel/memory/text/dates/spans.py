"""Days, and what comes round every week, month or year."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Final, Literal, TypeAlias, cast

Period: TypeAlias = Literal["week", "month", "year"]
Tense: TypeAlias = Literal["past", "present", "future", "unknown"]

PERIODS: Final[tuple[Period, ...]] = ("week", "month", "year")
"""From the shortest to the longest."""
_AROUND: Final = 8
"""How many rounds are tried on either side: 29 February can be eight years away."""


@dataclass(frozen=True, slots=True)
class Span:
    """Days without a gap, both ends included. `lasting`: the words may as well say how long something took ("in three
    days"), so that only a clause that isn't in the past has a date here.
    """

    first: date
    last: date
    lasting: bool = False

    def __post_init__(self) -> None:
        if self.last < self.first:
            raise ValueError("a span ends before it begins")

    def __contains__(self, other: object) -> bool:
        return isinstance(other, Span) and self.first <= other.first and other.last <= self.last

    @property
    def days(self) -> int:
        """How many days it has; at least 1."""
        return (self.last - self.first).days + 1


@dataclass(frozen=True, slots=True)
class Cycle:
    """What comes round once in every period: a weekday, the 15th, May, Christmas.

    Attributes:
        occurrence: The days of one round, by its number (see `index_of`); None where it has none. May raise ValueError
            or OverflowError where there is no such day.
        weekday: The weekday named beside it, 0 for Monday: what falls on another day is unknown.
        weak: The word is a date only in certain company ("may", "sun").
        is_habit: In the present tense, the words say what always happens ("I work from Monday to Friday").
    """

    period: Period
    occurrence: Callable[[int], Span | None]
    weekday: int | None = None
    weak: bool = False
    is_habit: bool = False

    def at(self, index: int) -> Span | None:
        """One round; None where it has no such day."""
        try:
            return self.occurrence(index)
        except (ValueError, OverflowError):
            return None  # 29 February in most years, or before year 1

    def around(self, day: date) -> Iterator[Span]:
        """The rounds around a day, in order."""
        index = index_of(self.period, day)
        for round in range(index - _AROUND, index + _AROUND + 1):
            if (found := self.at(round)) is not None:
                yield found

    def after(self, day: date) -> Span | None:
        """The first round that begins after the day."""
        return next((span for span in self.around(day) if span.first > day), None)

    def before(self, day: date) -> Span | None:
        """The last round that is over on the day."""
        return max(
            (span for span in self.around(day) if span.last < day), key=lambda s: s.first, default=None
        )

    def inside(self, container: Span) -> Span | None:
        """The only round inside a container; None where there are none or several."""
        indexes = range(index_of(self.period, container.first), index_of(self.period, container.last) + 1)
        if len(indexes) > 2 * _AROUND:
            return None
        found = [span for index in indexes if (span := self.at(index)) is not None and span in container]
        return found[0] if len(found) == 1 else None

    def map(self, change: Callable[[Span], Span | None]) -> Cycle:
        """The same cycle with each round changed."""

        def changed(index: int) -> Span | None:
            span = self.occurrence(index)
            return None if span is None else change(span)

        return Cycle(self.period, changed)

    def pick(self, tense: Tense, today: date) -> Span | None:
        """The round that is meant: the next one for the future, the most recent for the past, never the current one."""
        if tense == "unknown" or (tense == "present" and self.is_habit):
            return None
        if tense != "past" and any(one(today) in span for span in self.around(today)):
            return None
        found = self.before(today) if tense == "past" else self.after(today)
        is_named = found is None or self.weekday is None or found.first.weekday() == self.weekday
        return found if is_named else None

    def known(self, is_past: bool, today: date) -> Span | None:
        """The round that is meant where it is known whether it was over: the one that goes on, unless it is a day that
        comes every week, of which nobody knows.
        """
        now = next((span for span in self.around(today) if one(today) in span), None)
        if now is None or is_past:
            return self.pick("past" if is_past else "future", today)
        return now if now.days > 1 or self.period != "week" else None

    def named(self, weekday: int) -> Cycle:
        """The same cycle, with the weekday that was named beside it."""
        return replace(self, weekday=weekday, weak=False)


Value: TypeAlias = Span | Cycle | None
"""What a phrase means; None where it can't be known."""
NO_PHRASE: Final = cast("Value", object())
"""What a meaning returns when its parts don't make a phrase together."""
NO_MENTION: Final = cast("Value", object())
"""The meaning of words that look like a date and are none ("guten Morgen")."""


def index_of(period: Period, day: date) -> int:
    """The number of the week (Monday to Sunday), month or year that has the day."""
    match period:
        case "week":
            return (day.toordinal() - 1) // 7
        case "month":
            return 12 * day.year + day.month - 1
        case "year":
            return day.year


def one(day: date) -> Span:
    """A single day."""
    return Span(day, day)


def week(index: int) -> Span:
    """A week by its number."""
    monday = date.fromordinal(7 * index + 1)
    return Span(monday, monday + timedelta(days=6))


def month(index: int) -> Span:
    """A month by its number."""
    year, month = divmod(index, 12)
    return Span(date(year, month + 1, 1), date(year, month + 1, monthrange(year, month + 1)[1]))


def year(index: int) -> Span:
    """A year by its number."""
    return Span(date(index, 1, 1), date(index, 12, 31))
