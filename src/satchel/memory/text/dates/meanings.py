"""What each phrase means on the day it was said. The rules of the languages name these methods."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from typing import Any, Final, Literal, TypeAlias

from dateutil.easter import easter
from dateutil.relativedelta import relativedelta

from satchel.memory.text.dates.spans import (
    NO_MENTION,
    NO_PHRASE,
    PERIODS,
    Cycle,
    Period,
    Span,
    Value,
    index_of,
    month,
    one,
    week,
    year,
)

Order: TypeAlias = Literal["dmy", "mdy"]

_WINTER: Final = 12
_SOUTHERN: Final = frozenset(
    {"AR", "AU", "BO", "BR", "CL", "LS", "MZ", "NA", "NZ", "PE", "PY", "SZ", "UY", "ZA", "ZW"}
)
"""Countries whose summer is not in June, so that a season is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """The circumstances in which something was said, and what phrases mean in them: the local time, midnight where only
    the day is known; the orders of day and month in digits; and the country in capitals, or "".
    """

    at: datetime
    has_hour: bool
    orders: frozenset[Order]
    country: str

    @property
    def today(self) -> date:
        """The day it was said."""
        return self.at.date()

    def same(self, **values: Any) -> Any:
        """What the only symbol means."""
        (value,) = values.values()
        return value

    # Days and nights

    def day(self, steps: int, **_: Any) -> Value:
        """Today, tomorrow, the day before yesterday."""
        return one(self.today + timedelta(days=steps))

    def tonight(self) -> Value:
        """The coming night; unknown in the small hours."""
        return None if self.has_hour and self.at.hour < 5 else one(self.today)

    def last_night(self, nights: int) -> Value:
        """The night that is over; unknown in the small hours."""
        if self.has_hour and self.at.hour < 5:
            return None
        evening = self.today - timedelta(days=nights)
        return Span(evening, evening + timedelta(days=1))

    # Weeks, months, years

    def calendar(self, period: str, step: int = 0, by: int | None = None) -> Value:
        """This week, last month, next quarter; `by` counts where no word does."""
        step = min(step, 1) if by is None else by
        if period == "quarter":
            index = index_of("month", self.today) // 3 + step
            return _months(3 * index, 3)
        if period == "weekend":
            return self._weekend(step)
        index = index_of(period, self.today) + step  # type: ignore[arg-type]
        return {"week": week, "month": month, "year": year}[period](index)

    def _weekend(self, step: int) -> Span:
        monday = week(index_of("week", self.today) + step).first
        return Span(monday + timedelta(days=5), monday + timedelta(days=6))

    def weekend_step(self, step: int) -> Value:
        """This, last or next weekend; the next one has two readings while this one is still to come."""
        return (
            None if step == 1 and self.today.weekday() < 5 else self._weekend(step % 2 if step > 0 else step)
        )

    def weekend(self) -> Value:
        """The weekend of a week."""
        if self.today.weekday() >= 5:
            return None
        return Cycle("week", lambda i: Span(week(i).first + timedelta(days=5), week(i).last))

    def year(self, year: int) -> Value:
        """A year in digits."""
        return Span(date(year, 1, 1), date(year, 12, 31))

    def decade(self, decade: int) -> Value:
        """Ten years; of "the twenties" there are several."""
        if decade < 100:
            if decade < 50 or decade % 10:
                return None
            decade += 1900
        return Span(date(decade, 1, 1), date(decade + 9, 12, 31)) if decade % 10 == 0 else None

    # Counting

    def sum(self, a: int, b: int) -> int:
        """A number in two words."""
        return a + b

    def times_ten(self, a: int, b: int = 0) -> int:
        """A Chinese number of tens."""
        return 10 * a + b

    def four_digits(self, a: int, b: int, c: int, d: int) -> int:
        """A Chinese year, digit by digit."""
        return 1000 * a + 100 * b + 10 * c + d

    def ago(self, n: int, unit: str, steps: int = 0) -> Value:
        """Counted back from now."""
        return self._counted(-n, unit, steps)

    def ahead(self, n: int, unit: str, steps: int = 0) -> Value:
        """Counted forward from now."""
        return self._counted(n, unit, steps)

    def lasting(self, n: int, unit: str) -> Value:
        """Counted forward from now, by words that may also mean how long something took."""
        found = self._counted(n, unit)
        return None if found is None else Span(found.first, found.last, lasting=True)

    def length(self, n: int, unit: str) -> Value:
        """So long from today on: days are counted from the first one, and a week goes to the same weekday."""
        if n < 1 or unit in ("hour", "minute"):
            return one(self.today) if n else None
        last = _shifted(self.today, n, unit) - timedelta(days=unit == "day")
        return Span(self.today, last)

    def _counted(self, n: int, unit: str, steps: int = 0) -> Span | None:
        if unit in ("hour", "minute"):
            if not self.has_hour:
                return None
            at = self.at + (timedelta(hours=n) if unit == "hour" else timedelta(minutes=n))
            return one(at.date())
        return one(_shifted(self.today + timedelta(days=steps), n, unit))

    def offset(self, n: int, unit: str, date: Value, sign: int) -> Value:
        """So long before or after a date."""
        return _changed(
            date, lambda span: one(_shifted(span.first if sign < 0 else span.last, sign * n, unit))
        )

    def weeks_on(self, weekday: int, n: int = 1, unit: str = "week") -> Value:
        """A number of weeks after the coming weekday."""
        coming = self._after(weekday)
        return one(_shifted(coming, n, unit)) if unit in ("week", "fortnight") else NO_PHRASE

    def _after(self, weekday: int) -> date:
        return self.today + timedelta(days=(weekday - self.today.weekday() - 1) % 7 + 1)

    # What comes round

    def weekday(self, weekday: int, weak: int = 0) -> Value:
        """A weekday."""
        return Cycle("week", lambda i: one(week(i).first + timedelta(days=weekday)), weak=bool(weak))

    def month(self, month: int, weak: int = 0) -> Value:
        """A month of the year."""
        return Cycle("year", lambda y: _months(12 * y + month - 1, 1), weak=bool(weak))

    def half(self, half: int) -> Value:
        """A half of the year."""
        return Cycle("year", lambda y: _months(12 * y + 6 * (half - 1), 6)) if half in (1, 2) else NO_PHRASE

    def month_day(self, month: int, day: int = 1, until: int | None = None) -> Value:
        """A day of a month, or several."""
        return Cycle("year", lambda y: Span(date(y, month, day), date(y, month, until or day)))

    def day_of_month(self, day: int = 1, until: int | None = None) -> Value:
        """The 15th."""
        return Cycle("month", lambda i: Span(_day(i, day), _day(i, until or day)))

    def quarter(self, quarter: int) -> Value:
        """A quarter of the year; -1 is the last."""
        if quarter > 4:
            return NO_PHRASE
        return Cycle("year", lambda y: _months(12 * y + 3 * ((quarter if quarter > 0 else 4) - 1), 3))

    def season(self, season: int) -> Value:
        """Three months from the given one on, north of the equator; weak: "in spring" is a date, "to spring" isn't."""
        return (
            Cycle("year", lambda y: _months(12 * y + season - 1, 3), weak=True)
            if self.country not in _SOUTHERN
            else None
        )

    def strong(self, date: Value, least_days: int = 1, most_days: int = 366) -> Value:
        """A date whose company shows that it is one: "in" before "may", "on" before "sat"."""
        if isinstance(date, Cycle) and date.weak:
            longest = max(span.days for span in date.around(self.today))
            if longest > most_days or longest < least_days:
                return NO_PHRASE
        return replace(date, weak=False) if isinstance(date, Cycle) else date

    def winter(self, year: int, until: int) -> Value:
        """A winter whose two years are named."""
        if self.country in _SOUTHERN or until % 100 != (year + 1) % 100 or until > 100 and until != year + 1:
            return None
        return _months(12 * year + _WINTER - 1, 3)

    def holiday(self, holiday: str) -> Value:
        """What is named in the files as days from Easter, as month and day, or as the nth weekday of a month."""
        kind, _, rest = holiday.partition(" ")
        numbers = [int(number) for number in rest.split()]
        match kind:
            case "easter":
                first, last = (numbers * 2)[:2]
                return Cycle(
                    "year",
                    lambda y: Span(easter(y) + timedelta(days=first), easter(y) + timedelta(days=last)),
                )
            case "fixed":
                month, first, last = (numbers + numbers[-1:])[:3]
                return Cycle("year", lambda y: Span(date(y, month, first), date(y, month, last)))
            case "nth":
                month, weekday, nth, days = numbers
                return Cycle(
                    "year",
                    lambda y: _moved(_nth(weekday, nth, _months(12 * y + month - 1, 1)), days),
                )
            case "thanksgiving" if self.country == "US":
                return self.holiday("nth 11 3 4 0")
            case "thanksgiving" if self.country == "CA":
                return self.holiday("nth 10 0 2 0")
            case _:
                return None

    def step(self, step: int, date: Value) -> Value:
        """Last, this or next before what comes round; "next" has two readings while this one is still to come."""
        if date is None:
            return None
        if not isinstance(date, Cycle) or date.weekday is not None:
            return NO_PHRASE
        now = date.at(index_of(date.period, self.today))
        if step == -1:
            return date.before(self.today)
        if step == 2:  # coming
            return date.after(self.today)
        if step == 0:
            return next((span for span in date.around(self.today) if one(self.today) in span), now)
        if now is None:
            return None
        is_open = now.first > self.today if date.period == "week" else now.last >= self.today
        return None if is_open else date.at(index_of(date.period, self.today) + 1)

    def before_last(self, date: Value) -> Value:
        """The one before the last."""
        last = self.step(-1, date)
        if not isinstance(last, Span) or not isinstance(date, Cycle):
            return last
        return date.before(last.first)

    def after_next(self, date: Value) -> Value:
        """The one after the next; unknown where the next one is."""
        following = self.step(1, date)
        if not isinstance(following, Span) or not isinstance(date, Cycle):
            return following
        return date.after(following.last)

    def weekend_after_next(self) -> Value:
        """The weekend after the next one; unknown where that has two readings."""
        return None if self.today.weekday() < 5 else self._weekend(2)

    # Parts and places

    def within(self, date: Value, container: Value) -> Value:
        """The one of what comes round that lies in a longer time: May of last year, Monday of next week."""
        if date is None or container is None:
            return None
        if not isinstance(date, Cycle):
            return NO_PHRASE
        if isinstance(container, Cycle):
            if PERIODS.index(date.period) >= PERIODS.index(container.period):
                return NO_PHRASE
            return self._named(date, container)
        if date.period == "week" and container.days == 1:
            return container if date.inside(container) else None
        # A month in a week or a quarter in a month is no phrase.
        sample = next(date.around(container.first), None)
        if sample is None or sample.days >= container.days or _ROUND_DAYS[date.period] > container.days:
            return NO_PHRASE
        return date.inside(container)

    def _named(self, date: Cycle, container: Cycle) -> Value:
        """What comes round in what comes round; a weekday in a single day is its name."""
        inner, outer = (next(cycle.around(self.today), None) for cycle in (date, container))
        if inner is None or outer is None or inner.days < outer.days:
            return container.map(date.inside)
        is_name = date.period == "week" and inner.days == 1
        return container.named(inner.first.weekday()) if is_name else NO_PHRASE

    def part(self, part: str, date: Value) -> Value:
        """Early, mid, late; a half."""
        return _changed(date, lambda span: _part(part, span))

    def nth_weekday(self, nth: int, weekday: int, date: Value) -> Value:
        """The first Monday of a month or a year."""
        return _changed(date, lambda span: _nth(weekday, nth, span), least_days=28)

    def nth_day(self, nth: int, date: Value) -> Value:
        """The first or the last day."""
        return _changed(
            date,
            lambda span: one(span.last if nth < 0 else span.first + timedelta(days=nth - 1)),
            least_days=7,
        )

    def near(self, weekday: int, date: Value, sign: int) -> Value:
        """The weekday before or after a day."""

        def beside(span: Span) -> Span:
            if sign < 0:
                return one(span.first - timedelta(days=(span.first.weekday() - weekday - 1) % 7 + 1))
            return one(span.last + timedelta(days=(weekday - span.last.weekday() - 1) % 7 + 1))

        return _changed(date, beside)

    def week_day(self, by: int, weekday: int) -> Value:
        """A weekday of this week, or so many weeks away."""
        return self.within(self.weekday(weekday), self.calendar("week", by=by))

    # Ranges

    def range(self, a: Value, b: Value) -> Value:
        """From one date to another, both resolved together."""
        match a, b:
            case Span(), Span():
                return Span(a.first, b.last) if a.first <= b.last else None
            case Cycle(), Span():
                first = _latest(a, b.first)
                return None if first is None or a.period == "week" else Span(first.first, b.last)
            case Span(), Cycle():
                last = b.after(a.first - timedelta(days=1))
                return None if last is None else Span(a.first, last.last)
            case Cycle(period="month"), Cycle(period="year"):
                # "From the 20th to the 29th of December": the month stands at the end.
                return b.map(lambda end: _joined(_latest(a, end.first), end))
            case Cycle(), Cycle() if PERIODS.index(a.period) >= PERIODS.index(b.period):
                both = a.map(lambda start: _joined(start, b.after(start.first - timedelta(days=1))))
                return replace(both, is_habit=a.period == "week")
            case _:
                return None

    def day_range(self, b: Value, day: int = 1) -> Value:
        """From the first to a date."""
        return self.range(self.day_of_month(day), b)

    def numeric_range(self, a: int, b: int, c: int, d: int) -> Value:
        """From one day and month in digits to another."""
        return self.range(self.numeric(a, b), self.numeric(c, d))

    def range_within(self, a: Value, b: Value, container: Value) -> Value:
        """From one date to another, where the month or year of both stands at the end: "May to June 2024"."""
        both = self.range(a, b)
        if isinstance(both, Cycle):
            found = self.within(both, container)
            if isinstance(found, (Span, Cycle)):
                return found
        end = self.within(b, container)
        return end if end is NO_PHRASE else self.range(a, end)

    # Digits

    def numeric(self, a: int, b: int, year: int | None = None, century: int = 1, order: str = "") -> Value:
        """A day and a month in digits: resolved where one order is possible, or the language or locale has one."""
        orders = self.orders | ({order} if order else set())
        if a == b or b > 12 or a > 12:
            day, month = (b, a) if b > 12 else (a, b)
        elif len(orders) == 1:
            day, month = (a, b) if "dmy" in orders else (b, a)
        else:
            return None
        if year is None:
            return self.month_day(month, day)
        if not century:
            # The century that puts it nearest: within 50 years of the day it was said.
            year += self.today.year // 100 * 100
            year += 100 * ((year < self.today.year - 50) - (year > self.today.year + 50))
        return one(date(year, month, day))

    def full(self, year: int, month: int, day: int) -> Value:
        """Year, month and day."""
        return one(date(year, month, day))

    # Words that are no dates

    def vague(self, **_: Any) -> Value:
        """What can't be known."""
        return None

    def nothing(self, **_: Any) -> Value:
        """Words that look like a date and are none."""
        return NO_MENTION


_ROUND_DAYS: Final[dict[Period, int]] = {"week": 7, "month": 28, "year": 365}
"""The least days of a period."""


def _months(index: int, number: int) -> Span:
    return Span(month(index).first, month(index + number - 1).last)


def _day(month_index: int, day: int) -> date:
    return month(month_index).first.replace(day=day)


def _moved(span: Span | None, days: int) -> Span | None:
    return None if span is None else one(span.first + timedelta(days=days))


def _joined(start: Span | None, end: Span | None) -> Span | None:
    return None if start is None or end is None else Span(start.first, end.last)


def _latest(cycle: Cycle, day: date) -> Span | None:
    return max((span for span in cycle.around(day) if span.first <= day), key=lambda s: s.first, default=None)


def _shifted(day: date, number: int, unit: str) -> date:
    match unit:
        case "day":
            return day + timedelta(days=number)
        case "week":
            return day + timedelta(weeks=number)
        case "fortnight":
            return day + timedelta(weeks=2 * number)
        case "month":
            return day + relativedelta(months=number)
        case "year":
            return day + relativedelta(years=number)
        case _:
            raise ValueError(unit)


def _changed(value: Value, change: Callable[[Span], Span | None], *, least_days: int = 1) -> Value:
    """A date, or what comes round, with its days changed; no phrase where it is too short for it."""
    if value is None:
        return None
    if isinstance(value, Span):
        return change(value) if value.days >= least_days else NO_PHRASE
    if least_days > _ROUND_DAYS[value.period]:
        return NO_PHRASE
    return value.map(lambda span: change(span) if span.days >= least_days else None)


def _nth(weekday: int, nth: int, span: Span) -> Span | None:
    """The nth weekday of some days, the last for -1; None where there are fewer."""
    if nth < 0:
        return one(span.last - timedelta(days=(span.last.weekday() - weekday) % 7))
    found = span.first + timedelta(days=(weekday - span.first.weekday()) % 7 + 7 * (nth - 1))
    return one(found) if found <= span.last else None


def _part(part: str, span: Span) -> Span | None:
    """A third of a month or a season, a half of a month, a year or a decade; None of anything else."""
    first, last = span.first, span.last
    months = 12 * (last.year - first.year) + last.month - first.month + 1
    is_whole = first.day == 1 and (last + timedelta(days=1)).day == 1
    number = int(part[-1]) if part[-1].isdigit() else {"early": 1, "mid": 2, "late": 3}[part]
    if not is_whole:
        return None
    index = index_of("month", first)
    if part.startswith("half"):
        if months == 1:
            return Span(first, first.replace(day=15)) if number == 1 else Span(first.replace(day=16), last)
        if months not in (12, 120):
            return None
        return _months(index + (number - 1) * months // 2, months // 2)
    if part.startswith("quarter"):
        return _months(index + 3 * (number - 1), 3) if months == 12 else None
    if months == 1:
        return [
            Span(first, first.replace(day=10)),
            Span(first.replace(day=11), first.replace(day=20)),
            Span(first.replace(day=21), last),
        ][number - 1]
    return _months(index + number - 1, 1) if months == 3 and first.month % 3 == 0 else None
