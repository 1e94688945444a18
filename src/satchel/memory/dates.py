"""What a spoken date means: relative dates resolved against the day they were said on, by fixed conventions.

The conventions are those of `docs/concepts/dates.md`. What can't be known (two readings, or none) is found and left
unknown; nothing is guessed. English only: a date in another language is not found, digits and ISO dates aside.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from calendar import monthrange
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final, Literal, TypeAlias

from dateutil.easter import easter
from dateutil.relativedelta import relativedelta

from satchel.errors import UsageError

__all__ = ["ResolvedDate", "resolve_dates"]

Range: TypeAlias = tuple[date, date]
Tense: TypeAlias = Literal["past", "future", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedDate:
    """A date that was spoken of.

    Attributes:
        text: The words, as they stand.
        offset: Where they begin, in characters.
        start: The first day meant, or None where it can't be known.
        end: The last day meant, included; None exactly where `start` is.
    """

    text: str
    offset: int
    start: date | None
    end: date | None


@dataclass(frozen=True, slots=True)
class _Said:
    """The circumstances of one mention: the day and hour it was said, and the tense of its clause."""

    today: date
    hour: int | None
    tense: Tense

    @property
    def is_small_hours(self) -> bool:
        return self.hour is not None and self.hour < 5


_WEEKDAYS: Final = {
    name: number
    for number, names in enumerate(
        (
            ("monday", "mon"),
            ("tuesday", "tues", "tue"),
            ("wednesday", "wed"),
            ("thursday", "thurs", "thur", "thu"),
            ("friday", "fri"),
            ("saturday", "sat"),
            ("sunday", "sun"),
        )
    )
    for name in names
}
_MONTHS: Final = {
    name: number
    for number, names in enumerate(
        (
            ("january", "jan"),
            ("february", "feb"),
            ("march", "mar"),
            ("april", "apr"),
            ("may",),
            ("june", "jun"),
            ("july", "jul"),
            ("august", "aug"),
            ("september", "sept", "sep"),
            ("october", "oct"),
            ("november", "nov"),
            ("december", "dec"),
        ),
        start=1,
    )
    for name in names
}
_NUMBERS = {
    "a": 1,
    "an": 1,
    "one": 1,
    "two": 2,
    "three": 3,
    "four": 4,
    "five": 5,
    "six": 6,
    "seven": 7,
    "eight": 8,
    "nine": 9,
    "ten": 10,
    "eleven": 11,
    "twelve": 12,
    "thirteen": 13,
    "fourteen": 14,
    "fifteen": 15,
    "sixteen": 16,
    "seventeen": 17,
    "eighteen": 18,
    "nineteen": 19,
    "twenty": 20,
    "thirty": 30,
    "forty": 40,
    "fifty": 50,
    "sixty": 60,
    "seventy": 70,
    "eighty": 80,
    "ninety": 90,
    "hundred": 100,
}
_TENS: Final = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_UNITS: Final = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_NUMBERS |= {
    f"{tens}-{unit}": 10 * decade + number
    for decade, tens in enumerate(_TENS, start=2)
    for number, unit in enumerate(_UNITS, start=1)
}
_ORDINALS: Final = {
    **{"first": 1, "second": 2, "third": 3, "fourth": 4, "fifth": 5, "last": -1},
    **{"1st": 1, "2nd": 2, "3rd": 3, "4th": 4, "5th": 5},
}
_DAY_WORDS: Final = {
    name: number
    for number, name in enumerate(
        (
            *("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"),
            *("eleventh", "twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth", "seventeenth"),
            *("eighteenth", "nineteenth", "twentieth", "twenty-first", "twenty-second", "twenty-third"),
            *("twenty-fourth", "twenty-fifth", "twenty-sixth", "twenty-seventh", "twenty-eighth"),
            *("twenty-ninth", "thirtieth", "thirty-first"),
        ),
        start=1,
    )
}
_DECADES: Final = {"fifties": 1950, "sixties": 1960, "seventies": 1970, "eighties": 1980, "nineties": 1990}
_STEP: Final = {"last": -1, "past": -1, "previous": -1, "this": 0, "current": 0, "next": 1, "coming": 1}


def _after_easter(days: int) -> Callable[[int], Range]:
    def of(year: int) -> Range:
        day = easter(year) + timedelta(days=days)
        return day, day

    return of


def _fixed(month: int, first: int, last: int | None = None) -> Callable[[int], Range]:
    return lambda year: (date(year, month, first), date(year, month, last or first))


def _nth_weekday(year: int, month: int, weekday: int, nth: int) -> Range | None:
    if nth > 0:
        day = 1 + (weekday - date(year, month, 1).weekday()) % 7 + 7 * (nth - 1)
    else:
        last = monthrange(year, month)[1]
        day = last - (date(year, month, last).weekday() - weekday) % 7
    if day > monthrange(year, month)[1]:
        return None
    return date(year, month, day), date(year, month, day)


def _thanksgiving(year: int) -> date:
    """The fourth Thursday of November."""
    return date(year, 11, 1) + timedelta(days=(3 - date(year, 11, 1).weekday()) % 7 + 21)


_HOLIDAYS: Final[Mapping[str, Callable[[int], Range | None]]] = {
    "christmas eve": _fixed(12, 24),
    "christmas day": _fixed(12, 25),
    "christmas": _fixed(12, 24, 26),
    "xmas": _fixed(12, 24, 26),
    "boxing day": _fixed(12, 26),
    "new year's eve": _fixed(12, 31),
    "new year's day": _fixed(1, 1),
    "new year's": _fixed(1, 1),
    "valentine's day": _fixed(2, 14),
    "valentine's": _fixed(2, 14),
    "st patrick's day": _fixed(3, 17),
    "halloween": _fixed(10, 31),
    "shrove tuesday": _after_easter(-47),
    "ash wednesday": _after_easter(-46),
    "palm sunday": _after_easter(-7),
    "maundy thursday": _after_easter(-3),
    "good friday": _after_easter(-2),
    "holy saturday": _after_easter(-1),
    "easter sunday": _after_easter(0),
    "easter monday": _after_easter(1),
    "easter": _after_easter(0),
    "pentecost": _after_easter(49),
    "whit monday": _after_easter(50),
    "memorial day": lambda year: _nth_weekday(year, 5, 0, -1),
    "labor day": lambda year: _nth_weekday(year, 9, 0, 1),
    "thanksgiving": lambda year: _one(_thanksgiving(year)),
    "black friday": lambda year: _one(_thanksgiving(year) + timedelta(days=1)),
    "cyber monday": lambda year: _one(_thanksgiving(year) + timedelta(days=4)),
}

_APOSTROPHE: Final = "['\N{RIGHT SINGLE QUOTATION MARK}]"
_WEEKDAY = (
    r"(?P<weekday>mon(?:day)?|tue(?:s(?:day)?)?|wed(?:nesday)?|thu(?:r(?:s(?:day)?)?)?|fri(?:day)?|sat(?:urday)?"
    r"|sun(?:day)?)"
)
_LONG_WEEKDAY = r"(?P<weekday>(?:mon|tues|wednes|thurs|fri|satur|sun)day)"
_ANY_WEEKDAY = _WEEKDAY.replace("?P<weekday>", "?P<prefix_day>")
_MONTH = (
    r"(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|"
    r"nov(?:ember)?|dec(?:ember)?)"
)
_YEAR = r"(?P<year>(?:1[5-9]|20|21)\d\d)"
_YEAR_STEP = r"(?P<year_step>last|this|next)\s+year"
_OF_YEAR = rf"(?:,?\s+(?:of\s+)?(?:{_YEAR}|{_YEAR_STEP}))?"
_DAY = r"(?P<day>[12]\d|3[01]|0?[1-9])(?:st|nd|rd|th)?"
_NUMBER = (
    r"(?P<number>\d{1,4}|"
    + "|".join(name.replace("-", r"[-\s]") for name in sorted(_NUMBERS, key=len, reverse=True))
    + ")"
)
_UNIT = r"(?P<unit>day|week|fortnight|month|year)s?"
_PART = r"(?:\s+(?:morning|afternoon|evening|night|noon|lunchtime))?"
_THE = r"(?:the\s+)?"


def _week(day: date, step: int = 0) -> Range:
    monday = day - timedelta(days=day.weekday()) + timedelta(weeks=step)
    return monday, monday + timedelta(days=6)


def _one(day: date) -> Range:
    return day, day


def _month(year: int, month: int) -> Range:
    return date(year, month, 1), date(year, month, monthrange(year, month)[1])


def _after(today: date, weekday: int) -> date:
    """The first such weekday strictly after the day."""
    return today + timedelta(days=(weekday - today.weekday() - 1) % 7 + 1)


def _before(today: date, weekday: int) -> date:
    """The most recent such weekday strictly before the day."""
    return today - timedelta(days=(today.weekday() - weekday - 1) % 7 + 1)


def _by_tense(said: _Said, of_year: Callable[[int], Range | None]) -> Range | None:
    """What comes once a year: the next one for the future, the most recent for the past; never the one that is now."""
    if said.tense == "unknown":
        return None
    candidates = []
    for year in range(said.today.year - 8, said.today.year + 9):
        try:
            found = of_year(year)
        except ValueError:
            continue  # 29 February in most years
        if found is not None:
            candidates.append(found)
    if any(first <= said.today <= last for first, last in candidates) and said.tense == "future":
        return None
    if said.tense == "future":
        return next((span for span in candidates if span[0] > said.today), None)
    return next((span for span in reversed(candidates) if span[1] < said.today), None)


def _in_year(said: _Said, step: str, of_year: Callable[[int], Range | None]) -> Range | None:
    """What comes once a year after "last", "this" or "next": read as before a weekday."""
    year = said.today.year
    match step:
        case "this":
            return of_year(year)
        case "last" | "past":
            spans = [span for span in (of_year(year), of_year(year - 1)) if span is not None]
            return next((span for span in spans if span[1] < said.today), None)
        case _:
            now = of_year(year)
            return None if now is None or now[1] >= said.today else of_year(year + 1)


def _calendar(said: _Said, unit: str, step: int) -> Range:
    today = said.today
    match unit:
        case "week":
            return _week(today, step)
        case "month":
            first = today.replace(day=1) + relativedelta(months=step)
            return _month(first.year, first.month)
        case "quarter":
            first = date(today.year, 3 * ((today.month - 1) // 3) + 1, 1) + relativedelta(months=3 * step)
            return _quarter(first.year, (first.month - 1) // 3 + 1)
        case _:
            return date(today.year + step, 1, 1), date(today.year + step, 12, 31)


def _quarter(year: int, quarter: int) -> Range:
    return date(year, 3 * quarter - 2, 1), _month(year, 3 * quarter)[1]


def _shift(day: date, number: int, unit: str) -> date:
    match unit:
        case "day":
            return day + timedelta(days=number)
        case "week":
            return day + timedelta(weeks=number)
        case "fortnight":
            return day + timedelta(weeks=2 * number)
        case "month":
            return day + relativedelta(months=number)
        case _:
            return day + relativedelta(years=number)


def _year_of(match: re.Match[str], said: _Said) -> int | None:
    """The year that stands beside a date, in digits or as "last year"; None where there is none."""
    if match["year"]:
        return int(match["year"])
    return said.today.year + _STEP[match["year_step"]] if match["year_step"] else None


def _number(word: str) -> int:
    return int(word) if word.isdigit() else _NUMBERS["-".join(word.split())]


# -- one function a form: the match and the circumstances in, the days out, None where they can't be known -----------


def _day_word(match: re.Match[str], said: _Said) -> Range | None:
    word = re.sub(r"\s+", " ", match["word"])
    steps = {"today": 0, "tomorrow": 1, "yesterday": -1, "day after tomorrow": 2, "day before yesterday": -2}
    return _one(said.today + timedelta(days=steps[word]))


def _this_part(_: re.Match[str], said: _Said) -> Range | None:
    return _one(said.today)


def _tonight(_: re.Match[str], said: _Said) -> Range | None:
    return None if said.is_small_hours else _one(said.today)


def _last_night(match: re.Match[str], said: _Said) -> Range | None:
    evening = said.today - timedelta(days=2 if match["before"] else 1)
    return None if said.is_small_hours else (evening, evening + timedelta(days=1))


def _calendar_unit(match: re.Match[str], said: _Said) -> Range | None:
    return _calendar(said, match["unit"], _STEP[match["step"]])


def _week_beyond(match: re.Match[str], said: _Said) -> Range | None:
    return _calendar(said, match["unit"], -2 if match["side"] == "before" else 2)


def _weekday_of_week(match: re.Match[str], said: _Said) -> Range | None:
    monday = _week(said.today, _STEP[match["step"]])[0]
    return _one(monday + timedelta(days=_WEEKDAYS[match["weekday"]]))


def _weekday_step(match: re.Match[str], said: _Said) -> Range | None:
    weekday, today = _WEEKDAYS[match["weekday"]], said.today
    match " ".join(match["step"].split()):
        case "last" | "past" | "this past" | "previous":
            return _one(_before(today, weekday))
        case "coming" | "this coming":
            return _one(_after(today, weekday))
        case "this":
            return _one(_week(today)[0] + timedelta(days=weekday))
        case _:
            # Two readings while it is still to come this week.
            return None if weekday > today.weekday() else _one(_after(today, weekday))


def _weekday_alone(match: re.Match[str], said: _Said) -> Range | None:
    weekday, today = _WEEKDAYS[match["weekday"]], said.today
    if said.tense == "past":
        return _one(_before(today, weekday))
    if said.tense == "future" and weekday != today.weekday():
        return _one(_after(today, weekday))
    return None


def _weeks_on(match: re.Match[str], said: _Said) -> Range | None:
    weeks = _number(match["number"] or "one")
    if match["unit"].startswith("fortnight"):
        weeks *= 2
    anchor = match["anchor"]
    if anchor in ("today", "tomorrow"):
        day = said.today + timedelta(days=anchor == "tomorrow")
    else:
        day = _after(said.today, _WEEKDAYS[anchor])
    return _one(day + timedelta(weeks=weeks))


def _before_last(match: re.Match[str], said: _Said) -> Range | None:
    if match["weekend"]:
        saturday = _week(said.today, -2)[0] + timedelta(days=5)
        return saturday, saturday + timedelta(days=1)
    return _one(_before(said.today, _WEEKDAYS[match["weekday"]]) - timedelta(weeks=1))


def _weekend(match: re.Match[str], said: _Said) -> Range | None:
    saturday = _week(said.today)[0] + timedelta(days=5)
    is_weekend = said.today >= saturday
    match match["step"]:
        case "this" | "this coming" | "coming":
            step = 0
        case "last" | "past" | "this past" | "previous":
            step = -1
        case "next":
            if not is_weekend:
                return None
            step = 1
        case _:
            if is_weekend or said.tense == "unknown":
                return None
            step = 0 if said.tense == "future" else -1
    saturday += timedelta(weeks=step)
    return saturday, saturday + timedelta(days=1)


def _ago(match: re.Match[str], said: _Said) -> Range | None:
    return _one(_shift(said.today, -_number(match["number"]), match["unit"]))


def _ahead(match: re.Match[str], said: _Said) -> Range | None:
    return _one(_shift(said.today, _number(match["number"]), match["unit"]))


def _third(span: Range, part: str | None) -> Range:
    if part is None:
        return span
    first, last = span
    match part:
        case "early":
            return first, first.replace(day=10)
        case "mid":
            return first.replace(day=11), first.replace(day=20)
        case _:
            return first.replace(day=21), last


def _month_form(match: re.Match[str], said: _Said) -> Range | None:
    month = _MONTHS[match["month"]]
    part = match["part"].rstrip("- ") if match["part"] else None
    year = _year_of(match, said)
    if year is not None:
        return _third(_month(year, month), part)
    if match["step"]:
        found = _in_year(said, match["step"], lambda year: _month(year, month))
        return _third(found, part) if found else None
    return _by_tense(said, lambda year: _third(_month(year, month), part))


def _part_of_month(match: re.Match[str], said: _Said) -> Range | None:
    return _third(_calendar(said, "month", _STEP[match["step"]]), match["part"].rstrip("- "))


def _checked(match: re.Match[str], span: Range | None) -> Range | None:
    """Nothing where a weekday that was named beside the date contradicts it."""
    named = match["prefix_day"]
    if span is not None and named and span[0].weekday() != _WEEKDAYS[named]:
        return None
    return span


def _full_date(match: re.Match[str], said: _Said) -> Range | None:
    month = _MONTHS[match["month"]]
    first = int(match["day"]) if match["day"] else _DAY_WORDS["-".join(match["day_word"].split())]
    last = int(match["until"]) if match["until"] else first
    if last < first:
        return None
    named = match["prefix_day"]

    def of(year: int) -> Range | None:
        day = date(year, month, first)
        if named and day.weekday() != _WEEKDAYS[named]:
            return None
        return day, date(year, month, last)

    written = _year_of(match, said)
    return _by_tense(said, of) if written is None else of(written)


def _iso_date(match: re.Match[str], _: _Said) -> Range | None:
    return _checked(match, _one(date(int(match["year"]), int(match["m"]), int(match["d"]))))


def _digit_date(match: re.Match[str], said: _Said) -> Range | None:
    a, b = int(match["a"]), int(match["b"])
    if a > 12 and b > 12:
        return None
    if a <= 12 and b <= 12 and a != b:
        return None
    day, month = (a, b) if a > 12 or a == b else (b, a)
    written = match["year"]
    if not written:
        return _checked(match, _by_tense(said, lambda year: _one(date(year, month, day))))
    year = int(written)
    if len(written) == 2:
        # The century that puts it nearest: within 50 years of the day it was said.
        year += said.today.year // 100 * 100
        year += 100 * ((year < said.today.year - 50) - (year > said.today.year + 50))
    return _checked(match, _one(date(year, month, day)))


def _day_of_month(match: re.Match[str], said: _Said) -> Range | None:
    day = int(match["day"])
    if match["step"]:
        first = _calendar(said, "month", _STEP[match["step"]])[0]
        return _one(first.replace(day=day))
    if said.tense == "unknown":
        return None
    if said.tense == "future" and said.today.day == day:
        return None
    for months in range(3):
        first = said.today.replace(day=1) + relativedelta(
            months=months if said.tense == "future" else -months
        )
        if day <= monthrange(first.year, first.month)[1]:
            found = first.replace(day=day)
            if (found > said.today) if said.tense == "future" else (found < said.today):
                return _one(found)
    return None


def _nth_of_month(match: re.Match[str], said: _Said) -> Range | None:
    nth, weekday = _ORDINALS[match["nth"]], _WEEKDAYS[match["weekday"]]
    if match["step"] or not match["month"]:
        first = _calendar(said, "month", _STEP[match["step"] or "this"])[0]
        return _nth_weekday(first.year, first.month, weekday, nth)
    month = _MONTHS[match["month"]]
    year = _year_of(match, said)
    if year is not None:
        return _nth_weekday(year, month, weekday, nth)
    return _by_tense(said, lambda year: _nth_weekday(year, month, weekday, nth))


def _holiday(match: re.Match[str], said: _Said) -> Range | None:
    name = (
        re.sub(r"\s+", " ", match["holiday"])
        .replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
        .replace("st. ", "st ")
    )
    of = _HOLIDAYS[name]
    year = _year_of(match, said)
    if year is not None:
        return of(year)
    if match["step"]:
        return _in_year(said, match["step"], of)
    return _by_tense(said, of)


def _quarter_form(match: re.Match[str], said: _Said) -> Range | None:
    quarter = int(match["quarter"]) if match["quarter"] else _ORDINALS[match["nth"]]
    year = _year_of(match, said)
    if year is not None:
        return _quarter(year, quarter)
    return _by_tense(said, lambda year: _quarter(year, quarter))


def _year_form(match: re.Match[str], _: _Said) -> Range | None:
    first = int(match["year"])
    last = int(match["until"] or first)
    return None if last < first else (date(first, 1, 1), date(last, 12, 31))


def _decade(match: re.Match[str], _: _Said) -> Range | None:
    if match["word"]:
        first = _DECADES[match["word"]]
    elif len(match["digits"]) == 4:
        first = int(match["digits"])
    else:
        short = int(match["digits"])
        if short < 50:
            return None  # the twenties of two centuries
        first = 1900 + short
    return date(first, 1, 1), date(first + 9, 12, 31)


def _vague(_: re.Match[str], __: _Said) -> Range | None:
    return None


_HOLIDAY_NAMES = "|".join(
    re.escape(name).replace("'", _APOSTROPHE).replace(r"\ ", r"\s+").replace("st\\s", r"st\.?\s")
    for name in sorted(_HOLIDAYS, key=len, reverse=True)
)
_FORMS: Final[tuple[tuple[re.Pattern[str], Callable[[re.Match[str], _Said], Range | None]], ...]] = tuple(
    (re.compile(rf"(?<![\w/.-]){pattern}(?![\w])", re.IGNORECASE), resolve)
    for pattern, resolve in (
        # Vague words first: of two forms of the same length the first one counts.
        (r"(?:every|each|most|some)\s+(?:other\s+|second\s+)?" + _WEEKDAY + _PART, _vague),
        (_LONG_WEEKDAY + "s", _vague),
        (
            r"(?:very\s+)?soon|some\s?day|one\s+day|the\s+other\s+(?:day|week|night)|recently|lately|a\s+while\s+(?:ago|back)",
            _vague,
        ),
        (
            r"(?:in\s+)?(?:an?\s+|the\s+(?:next|last|past)\s+)?(?:few|couple(?:\s+of)?|several|some)\s+"
            + _UNIT
            + r"(?:\s+(?:ago|from\s+now|back|time))?",
            _vague,
        ),
        (
            rf"(?:on|for|before|after)\s+(?:my|your|his|her|our|their|\w+{_APOSTROPHE}s)\s+birthday",
            _vague,
        ),
        (r"when\s+(?:i|you|he|she|we|they)\s+retires?", _vague),
        (
            r"(?:in\s+)?(?:about|around|roughly|approximately|almost|nearly|just\s+(?:over|under)|over|under|(?:more|less)\s+than"
            r"|at\s+(?:least|most)|some|maybe|perhaps)\s+"
            + _NUMBER
            + r"\s+"
            + _UNIT
            + r"(?:\s+(?:ago|back|from\s+(?:now|today)|hence))?",
            _vague,
        ),
        (
            r"(?:the\s+)?(?:first|second|third|fourth|last|final)\s+(?:few\s+)?(?:weeks?|weekend|days?)\s+(?:of|in)\s+(?:the\s+"
            r"(?:month|year)|(?:this|last|next)\s+(?:month|year)|" + _MONTH + _OF_YEAR + ")",
            _vague,
        ),
        (
            r"(?:at|by|towards?|near)?\s*the\s+(?:end|beginning|start)\s+of\s+(?:the|this|next|last)\s+(?:month|year|week)",
            _vague,
        ),
        (
            _THE
            + r"(?P<word>day\s+after\s+tomorrow|day\s+before\s+yesterday|today|tomorrow|yesterday)"
            + _PART,
            _day_word,
        ),
        (r"this\s+(?:morning|afternoon|evening|noon)", _this_part),
        (r"tonight", _tonight),
        (r"last\s+night|the\s+night\s+(?P<before>before)\s+last", _last_night),
        (
            r"(?P<step>this|last|next|past|previous|coming|current)\s+(?P<unit>week|month|quarter|year)",
            _calendar_unit,
        ),
        (r"the\s+(?P<unit>week|month|year)\s+(?P<side>before|after)\s+(?:last|next)", _week_beyond),
        (r"the\s+(?P<weekend>weekend)\s+before\s+last", _before_last),
        (r"the\s+" + _WEEKDAY + r"\s+before\s+last(?P<weekend>)", _before_last),
        (
            r"(?P<anchor>today|tomorrow|(?:mon|tues|wednes|thurs|fri|satur|sun)day)\s+week(?!\s+\d)(?P<unit>)(?P<number>)",
            _weeks_on,
        ),
        (_WEEKDAY + _PART + r"\s*,?\s+(?:of\s+)?(?P<step>last|this|next)\s+week", _weekday_of_week),
        (r"(?P<step>last|this|next)\s+week\s*,?\s+(?:on\s+)?" + _WEEKDAY + _PART, _weekday_of_week),
        (
            r"(?P<step>last|this\s+past|past|previous|this\s+coming|coming|this|next)\s+" + _WEEKDAY + _PART,
            _weekday_step,
        ),
        (
            _NUMBER
            + r"\s+(?P<unit>weeks?|fortnights?)\s+(?:on|from|after)?\s*(?P<anchor>today|tomorrow|"
            + "|".join(sorted(_WEEKDAYS, key=len, reverse=True))
            + ")",
            _weeks_on,
        ),
        (_LONG_WEEKDAY + _PART, _weekday_alone),
        (r"(?<=\bon\s)" + _WEEKDAY + _PART, _weekday_alone),
        (
            r"(?P<step>this\s+coming|this\s+past|this|last|next|past|previous|coming|at\s+the|on\s+the|over\s+the|the)\s+weekend",
            _weekend,
        ),
        (_NUMBER + r"\s+" + _UNIT + r"\s+(?:ago|back|earlier\s+today)", _ago),
        (
            r"in\s+" + _NUMBER + r"\s+" + _UNIT + rf"(?:{_APOSTROPHE}?s?{_APOSTROPHE}?\s+time)?",
            _ahead,
        ),
        (_NUMBER + r"\s+" + _UNIT + r"\s+(?:from\s+(?:now|today)|hence)", _ahead),
        (
            r"(?:(?P<step>last|this|next)\s+)?(?P<part>(?:early|mid|late)[\s-]+)?" + _MONTH + _OF_YEAR,
            _month_form,
        ),
        (
            _YEAR_STEP
            + r",?\s+(?:in\s+)?(?P<part>(?:early|mid|late)[\s-]+)?"
            + _MONTH
            + r"(?P<year>)(?P<step>)(?!\.?\s+(?:the\s+)?\d)",
            _month_form,
        ),
        (r"(?P<part>(?:early|mid|late)[\s-]+)(?P<step>last|this|next)\s+month", _part_of_month),
        (
            r"(?:"
            + _ANY_WEEKDAY
            + r",?\s+)?(?:the\s+)?"
            + _DAY
            + r"(?:\s*(?:-|\N{EN DASH}|to|until|and)\s*(?P<until>\d{1,2})(?:st|nd|rd|th)?)?"
            r"\s+(?:of\s+)?" + _MONTH + r"(?P<day_word>)" + _OF_YEAR,
            _full_date,
        ),
        (
            r"(?:"
            + _ANY_WEEKDAY
            + r",?\s+)?the\s+(?P<day_word>"
            + "|".join(name.replace("-", r"[-\s]") for name in sorted(_DAY_WORDS, key=len, reverse=True))
            + r")\s+of\s+"
            + _MONTH
            + r"(?P<day>)(?P<until>)"
            + _OF_YEAR,
            _full_date,
        ),
        (
            r"(?:"
            + _ANY_WEEKDAY
            + r",?\s+)?"
            + _MONTH
            + r"\.?\s+(?:the\s+)?"
            + _DAY
            + r"(?:\s*(?:-|\N{EN DASH}|to|until)\s*(?P<until>\d{1,2})(?:st|nd|rd|th)?)?(?![:\d])(?P<day_word>)"
            + _OF_YEAR,
            _full_date,
        ),
        (
            r"(?:" + _ANY_WEEKDAY + r",?\s+)?(?P<year>\d{4})-(?P<m>\d\d)-(?P<d>\d\d)(?:T[\d:.+Z-]+)?",
            _iso_date,
        ),
        (r"(?P<prefix_day>)" + _YEAR + r"/(?P<m>\d\d?)/(?P<d>\d\d?)(?![/.]?\d)", _iso_date),
        (
            r"(?:"
            + _ANY_WEEKDAY
            + r",?\s+)?(?P<a>\d{1,2})(?P<sign>[/.-])(?P<b>\d{1,2})(?P=sign)(?P<year>\d{4}|\d\d)(?![/.-]?\d)",
            _digit_date,
        ),
        (
            r"(?:" + _ANY_WEEKDAY + r",?\s+)?(?<=\bon\s)(?P<a>\d{1,2})/(?P<b>\d{1,2})(?P<year>)(?![/.\d])",
            _digit_date,
        ),
        (
            r"the\s+(?P<day>[12]?\d|3[01])(?:st|nd|rd|th)(?:\s+(?:of\s+)?(?P<step>last|this|next)\s+month)?",
            _day_of_month,
        ),
        (
            r"the\s+(?P<nth>first|second|third|fourth|fifth|last|1st|2nd|3rd|4th|5th)\s+"
            + _WEEKDAY
            + r"\s+(?:of|in)\s+(?:"
            + _MONTH
            + _OF_YEAR
            + r"|(?:the|(?P<step>this|next|last))\s+month)",
            _nth_of_month,
        ),
        (
            r"(?:(?P<step>last|this|next)\s+)?(?P<holiday>" + _HOLIDAY_NAMES + ")" + _OF_YEAR,
            _holiday,
        ),
        (
            r"(?:Q(?P<quarter>[1-4])|the\s+(?P<nth>first|second|third|fourth)\s+quarter)" + _OF_YEAR,
            _quarter_form,
        ),
        (
            r"(?:in|since|by|until|during|of|from|around|before|after|between)\s+(?:the\s+years?\s+)?"
            + _YEAR
            + r"(?:(?:\s*[-\N{EN DASH}]|(?<=from\s\d{4})\s*to|(?<=between\s\d{4})\s*and)\s*"
            + r"(?P<until>(?:1[5-9]|20|21)\d\d))?"
            + r"(?![-/.]\d)",
            _year_form,
        ),
        (
            r"the\s+(?:(?P<word>" + "|".join(_DECADES) + rf")|{_APOSTROPHE}?(?P<digits>(?:1[5-9]|20)?\d0)s)",
            _decade,
        ),
    )
)

_CLAUSE_END = re.compile(
    r"[.!?;:\n]+\s|\s[-\N{EN DASH}\N{EM DASH}]\s|,?\s+(?:but|while|whereas|although|though|because|so)\s+"
    r"|,\s+(?:and|then|which)\s+"
)
_FUTURE = re.compile(
    r"\b(?:will|won#t|shall|gonna|(?:i|we|you|he|she|it|they|that)#ll"
    r"|(?:am|is|are|#(?:m|re|s))\s+(?:not\s+|also\s+|all\s+|both\s+|really\s+)?(?:\w+ing|due|about|to)\b"
    r"|plan(?:s|ning)?\s+to|hop(?:e|es|ing)\s+to|want(?:s)?\s+to|need(?:s)?\s+to|ha(?:ve|s)\s+to|must|should|can|could|may"
    r"|might|would|let#s|see\s+you|due|remind|book|schedule|call|meet|come|bring|don#t|upcoming|is|are|am|#s|#re"
    r"|starts?(?!\s+of\b)|begins?|ends?(?!\s+of\b)|leaves?|arrives?|opens?|closes?|flies|fly|travels?|moves?|gets?|turns?"
    r"|has|have|takes?|got)\b".replace("#", _APOSTROPHE),
    re.IGNORECASE,
)
_PAST = re.compile(
    r"\b(?:was|were|wasn#t|weren#t|did|didn#t|had|been|went|met|saw|came|took|(?<!have\s)(?<!has\s)(?<!#ve\s)got|made|gave|bought|brought|thought|told|said"
    r"|found|left|lost|won|began|started|ran|ate|drank|drove|flew|fell|felt|grew|heard|held|kept|knew|led|paid|read|rode|sang"
    r"|sat|sent|shot|slept|spent|spoke|stood|swam|taught|threw|understood|woke|wore|wrote|broke|built|caught|chose|cut|drew"
    r"|(?:would|could|should|might|must)(?:n#t)?(?:\s+not)?(?:\s+have|#ve)|fought|forgot|hid|hit|hurt|laid|lay|lent|let|lit|meant|quit|rang|rose|sold|shook|stole|stuck|became|put|set"
    r"|(?!(?:need|indeed|feed|speed|seed|bleed|exceed|succeed|proceed|hundred|sacred|red|bed|wed|shed|embed)\b)[a-z]{2,}ed)\b".replace(
        "#", _APOSTROPHE
    ),
    re.IGNORECASE,
)


_AUXILIARY = re.compile(
    rf"(?:\b(?:will|shall|won{_APOSTROPHE}t|to|can|may|might|must|should|let{_APOSTROPHE}s)|{_APOSTROPHE}ll)"
    r"(?:\s+(?:not|never|also|probably|likely|soon|then|just))*\s+\Z",
    re.IGNORECASE,
)


_ARRANGED = re.compile(
    r"\b(?:booked|bought|reserved|(?:re)?scheduled|arranged|planned|moved|postponed|pushed|shifted|delayed|set|invited|got|agreed"
    r"|signed\s+up|tickets?|appointment|reservation|table)\b.*\b(?:for|to|until|till)\s+(?:the\s+)?\Z",
    re.IGNORECASE | re.DOTALL,
)
_PLANNED_ONCE = re.compile(
    r"\bhad\b|\b(?:was|were)\s+(?:\w+ly\s+)?(?:booked|reserved|scheduled|arranged|planned|set|invited)\b",
    re.IGNORECASE,
)
_SINCE = re.compile(r"\b(?:ever\s+)?since\s+(?:the\s+)?\Z", re.IGNORECASE)


def _tense(text: str, start: int, end: int, ends: list[int]) -> Tense:
    """The tense of the clause around a mention: that of its verb, the nearest one where there are several.

    "Since Friday" is past whatever the verb; what was booked for Friday, or moved to it, is still to come.
    """
    position = bisect_left(ends, start + 1)
    left = ends[position - 1] if position else 0
    right = ends[position] if position < len(ends) else len(text)
    # A long sentence says nothing about its far end, and searching it for each of its dates would be quadratic.
    left, right = max(left, start - 200), min(max(right, end), end + 200)
    before, after = text[left:start], text[end:right]
    if _SINCE.search(before):
        return "past"
    if _ARRANGED.search(before):
        # "It had been moved to Friday", "it was planned for Friday": what became of it is not said.
        return "unknown" if _PLANNED_ONCE.search(before) else "future"
    # "Will quit": some verbs look the same in the past, and are no past after an auxiliary.
    past = [m.end() for m in _PAST.finditer(before) if not _AUXILIARY.search(before[: m.start()])]
    future = [m.end() for m in _FUTURE.finditer(before)]
    if past or future:
        # "was going to meet" and "have been": the past one, though the other stands nearer.
        if past and future:
            return "past" if max(past) >= max(future) or _is_perfect(before) else "future"
        return "past" if past else "future"
    first_past, first_future = _PAST.search(after), _FUTURE.search(after)
    if first_past and first_future:
        return "past" if first_past.start() <= first_future.start() else "future"
    if first_past:
        return "past"
    return "future" if first_future else "unknown"


def _is_perfect(text: str) -> bool:
    return (
        re.search(
            rf"\b(?:have|has|{_APOSTROPHE}ve)\s+(?:\w+ed|been|gone|done|seen)\b",
            text,
            re.IGNORECASE,
        )
        is not None
    )


def resolve_dates(text: str, said_at: datetime | date | str) -> tuple[ResolvedDate, ...]:
    """Find the dates that a text speaks of and resolve each against the day it was said on.

    Args:
        text: What was said; any length.
        said_at: When: a local date or time, or either as ISO 8601. The calendar date in it counts, its offset is not
            converted; a bare date leaves the hour open, and nights are then read as said in the daytime.

    Returns:
        The mentions in the order of the text, none overlapping another; of several readings of one place the longest.

    Raises:
        UsageError: `said_at` is no date.
    """
    today, hour = _moment(said_at)
    found: list[tuple[int, int, int, re.Match[str], Callable[[re.Match[str], _Said], Range | None]]] = []
    for rank, (pattern, resolve) in enumerate(_FORMS):
        found.extend((m.start(), -m.end(), rank, m, resolve) for m in pattern.finditer(text))
    found.sort(key=lambda entry: entry[:3])
    ends = [m.end() for m in _CLAUSE_END.finditer(text)]
    resolved: list[ResolvedDate] = []
    reached = 0
    for start, negative_end, _, match, resolve in found:
        end = -negative_end
        if start < reached or _is_word(match, text):
            continue
        reached = end
        said = _Said(today, hour, _tense(text, start, end, ends))
        try:
            span = resolve(_Lower(match), said)  # type: ignore[arg-type]  # reads like a match
        except (ValueError, OverflowError):
            span = None  # 31 April, or before year 1
        first, last = span if span is not None else (None, None)
        resolved.append(ResolvedDate(text=match.group(), offset=start, start=first, end=last))
    return tuple(resolved)


class _Lower:
    """A match whose groups read in lower case, since the tables are."""

    def __init__(self, match: re.Match[str]) -> None:
        self._groups = match.groupdict()

    def __getitem__(self, name: str) -> str | None:
        value = self._groups.get(name)
        return value.lower() if value is not None else None


def _is_word(match: re.Match[str], text: str) -> bool:
    """Whether it is a plain word that happens to be a month's name: "may" and "march" are verbs too."""
    whole = match.group()
    if whole in ("may", "march", "mar", "dec", "sun", "sat", "wed", "jan", "second"):
        return True
    if whole in ("May", "March"):
        # Capital at the start of a sentence proves nothing; a word like "in" before it does.
        return (
            re.search(
                r"\b(?:in|of|by|since|until|till|during|before|after|from|to|this|last|next|early|mid|late)\s+$",
                text[: match.start()][-12:],
                re.IGNORECASE,
            )
            is None
        )
    return False


def _moment(said_at: datetime | date | str) -> tuple[date, int | None]:
    if isinstance(said_at, str):
        try:
            said_at = datetime.fromisoformat(said_at) if len(said_at) > 10 else date.fromisoformat(said_at)
        except ValueError as error:
            raise UsageError(
                f"{said_at!r} is no date: give it as 2026-11-21 or 2026-11-21T18:30:00+01:00."
            ) from error
    if isinstance(said_at, datetime):
        return said_at.date(), said_at.hour
    return said_at, None
