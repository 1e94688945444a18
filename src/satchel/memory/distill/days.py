"""The days that a model reads in words, held to the words: a day that they contradict is not taken.

A grammar computes what "tomorrow", "next Friday" or "in three weeks" means. It doesn't know what "the 15th", "Monday
26" or "since February" is about; a model that reads the conversation does. So the model says the days too, and code
compares them with the weekdays, months and numbers that were said.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from difflib import get_close_matches
from functools import cache
from typing import Final, NamedTuple

from satchel.memory.text.dates.grammar import LANGUAGES, language, tokens_of

_LONGEST: Final = timedelta(days=5 * 366)
"""From the day on which something was said: further away lies a slip of the model rather than a plan."""
_NEAR: Final = timedelta(days=62)
"""The same of a day that is named without its month: "Monday 26" is of this month or one beside it."""
_YEAR: Final = timedelta(days=366)
"""The same of a month that is named without its year."""
_CLOCK: Final = frozenset({":", "h", "uhr", "am", "pm", "点", "點", "时"})
"""After a number, they say that it is an hour."""
_LIKE: Final = 0.85
"""How much alike a word and its misspelling are, by `difflib`; "tuesday" and "thursday" are 0.8."""
_SHORT: Final = 3
"""Letters of a shortened name, such as "feb."."""


class DayWords(NamedTuple):
    """What words say of a day.

    Attributes:
        names: For each name of a weekday or a month, its readings: ("weekday", 0) is Monday, ("month", 1) January.
        numbers: What may be a day, a month or a year.
    """

    names: tuple[frozenset[tuple[str, int]], ...]
    numbers: tuple[int, ...]

    @property
    def has_month(self) -> bool:
        """Whether a month is named, or may be: by its name, or by a second number."""
        return len(self.numbers) > 1 or any(kind == "month" for meant in self.names for kind, _ in meant)

    @property
    def has_year(self) -> bool:
        """Whether a year is named in four digits."""
        return any(number > 31 for number in self.numbers)

    @property
    def is_dated(self) -> bool:
        """Whether more is said than a distance from today, so that a day is read, not computed."""
        return bool(self.numbers or self.names)


@cache
def _names() -> Mapping[str, frozenset[tuple[str, int]]]:
    """Weekdays, months and units of all languages that are served; names also shortened."""
    found: dict[str, set[tuple[str, int]]] = {}
    for name in LANGUAGES:
        for kind, value, word in language(name).names():
            found.setdefault(word, set()).add((kind, value))
            if kind != "unit":
                found.setdefault(word[:_SHORT], set()).add((kind, value))
    return {word: frozenset(meant) for word, meant in found.items()}


@cache
def _vocabulary() -> frozenset[str]:
    return frozenset[str]().union(*(language(name).vocabulary for name in LANGUAGES))


def is_misspelt_in(words: str, text: str) -> bool:
    """Whether a text has words for a day misspelt, as no language has them: "tomorow" for "tomorrow". A model may write
    them as they are spelt. "Thusday" is more like "thursday" than like "tuesday".
    """
    known = _vocabulary()
    there = {token.word for token in tokens_of(text)}
    missing = [token.word for token in tokens_of(words) if token.word not in there]
    return bool(missing) and all(
        word in known
        and any(
            get_close_matches(near, known, n=1) == [word]
            for near in get_close_matches(word, there - known, cutoff=_LIKE)
        )
        for word in missing
    )


def said_in(words: str) -> DayWords:
    """What words say of a day. Hours and lengths ("four weeks") are left out."""
    tokens = [token.word for token in tokens_of(words)]
    known = _names()
    names: list[tuple[str, frozenset[tuple[str, int]]]] = []
    numbers: list[int] = []
    for before, word, after in zip(["", *tokens], tokens, [*tokens[1:], ""], strict=False):
        if word.isdecimal():
            is_other = after in _CLOCK or before == ":" or ("unit", 0) in known.get(after, ())
            if not is_other and len(word) in (1, 2, 4):
                numbers.append(int(word))
        # Of two letters, a word means something in some language: "do" is Thursday, and Polish for until.
        elif len(word) >= _SHORT and (
            meant := frozenset(one for one in known.get(word, ()) if one[0] != "unit")
        ):
            names.append((word, meant))
    # "do", "mar" or "sun" is a word of many things: what is short counts beside a number or another name.
    is_dated = bool(numbers) or len(names) > 1
    return DayWords(
        names=tuple(meant for word, meant in names if is_dated or len(word) > _SHORT), numbers=tuple(numbers)
    )


def fits(said: DayWords, first: date, last: date, said_on: date) -> bool:
    """Whether the first and the last day of something agree with what was said.

    Each number is a day, a month or a year of one of the two, and the day of one of them is among the numbers. Each
    month is of one of the two; each weekday of one of them, or of three and more, of a day between them. A day that is
    named without its month, or a month without its year, is near.
    """
    days = (first, last)
    is_free = said.has_month or not (said.names or said.numbers)
    near = _LONGEST if said.has_year else _YEAR if is_free else _NEAR
    parts = {n for day in days for n in (day.day, day.month, day.year, day.year % 100)}
    names = {("month", day.month) for day in days}
    names |= {
        ("weekday", (first + timedelta(days=n)).weekday()) for n in range(min((last - first).days, 6) + 1)
    }
    small = [number for number in said.numbers if number <= 31]
    return (
        all(number in parts for number in said.numbers)
        and (not small or any(day.day in small for day in days))
        and all(meant & names for meant in said.names)
        and min(abs(first - said_on), abs(last - said_on)) <= near
    )


def day_of(text: str, said_on: date) -> date | None:
    """A day as a model wrote it, "2026-03-28"; None for what is none, or lies too far away."""
    try:
        day = date.fromisoformat(text.strip()[:10])
    except ValueError:
        return None
    return day if abs(day - said_on) <= _LONGEST else None
