"""Reads a query: the names, dates and times in it, and the words that are left to compare."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, NamedTuple

from satchel.memory import lexicon

if TYPE_CHECKING:
    from satchel.memory.candidates.arrays import Floats
    from satchel.models.port import TokenVectors

__all__ = ["AskedWith", "NamedDate", "Question", "date_closeness", "read_question"]

MAX_QUERY_CHARS = 20_000
"""A longer query is a document; what it asks stands in its beginning."""

_MAX_NAMES = 5_000  # Speakers that are looked for in a query; a scope with more is not a circle of people.

# What the parties of a conversation are called by programs: no names, and words that topics are made of.
_ROLES = frozenset(
    {"user", "assistant", "system", "human", "ai", "agent", "bot", "tool", "model", "me", "you", "i"}
)

_MONTHS = (
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
)
_MONTH = "|".join(_MONTHS)
_DAY_MONTH = re.compile(rf"\b(\d{{1,2}})(?:st|nd|rd|th)?(?:\s+of)?\s+({_MONTH})\b,?\s*((?:19|20)\d\d)?", re.I)
_MONTH_DAY = re.compile(rf"\b({_MONTH})\s+(\d{{1,2}})(?:st|nd|rd|th)?\b(?!\d),?\s*((?:19|20)\d\d)?", re.I)
_ISO_DAY = re.compile(r"\b((?:19|20)\d\d)-(\d\d)-(\d\d)\b")
_MONTH_YEAR = re.compile(rf"\b({_MONTH})\b,?(?:\s+of)?\s*((?:19|20)\d\d)?", re.I)
_YEAR = re.compile(r"\b((?:19|20)\d\d)\b")
_NAME_LIKE = re.compile(r"[^\W_]+")
_COMMON_NAME = 0.004  # Of all English texts.
_CALENDAR = frozenset(
    {*_MONTHS, "monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"}
)
_WHEN = re.compile(
    r"^\s*(?:when|what (?:date|day|month|year|time)|how long|how many (?:days|weeks|months|years)|since when"
    r"|which (?:day|month|year|week))\b|\bwhat (?:date|day|month|year)\b",
    re.I,
)
_QUOTED = re.compile(r"\"([^\"]{2,200})\"|“([^”]{2,200})”|«([^»]{2,200})»")


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedDate:
    """A date as a question names it; what it leaves open is None."""

    year: int | None = None
    month: int | None = None
    day: int | None = None


class AskedWith(NamedTuple):
    """What an embedder made of a question: a vector, shape (d,), and its tokens where it gives any."""

    vector: Floats
    tokens: TokenVectors | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A query, read.

    Attributes:
        text: The query without the names of known speakers; what is embedded.
        stems: The different stems of `text`, in order.
        speaker: The number of the one known speaker whom the query names, or None where it names none or
        several.
        asks_when: Whether it asks for a time.
        dates: The dates that it names.
        names: The stems of what it calls by a name, known speakers left out: "Mara", "QX-4711".
        quoted: What it puts in quotation marks, as words.
    """

    text: str
    stems: tuple[int, ...]
    speaker: int | None
    asks_when: bool
    dates: tuple[NamedDate, ...]
    names: tuple[int, ...]
    quoted: tuple[str, ...]


def read_question(query: str, speakers: Iterable[tuple[str, int]]) -> Question:
    """Read a query.

    Args:
        query: As it was asked.
        speakers: The names of those who speak in the space that is searched, with their numbers.
    """
    query = query[:MAX_QUERY_CHARS]
    stripped, named = _strip_names(query, speakers)
    stems = tuple(dict.fromkeys(lexicon.stems_of(stripped)))
    if not stems:
        # Nothing but names and function words: then they are what is asked for.
        stripped = query
        stems = tuple(dict.fromkeys(lexicon.stems_of(query)))
    quoted = tuple(" ".join(lexicon.words_of("".join(groups))) for groups in _QUOTED.findall(query))
    return Question(
        text=stripped,
        stems=stems,
        speaker=next(iter(named)) if len(named) == 1 else None,
        asks_when=_WHEN.search(query) is not None,
        dates=tuple(_dates(query)),
        names=tuple(dict.fromkeys(_names(stripped))),
        quoted=tuple(words for words in quoted if words),
    )


def _strip_names(query: str, speakers: Iterable[tuple[str, int]]) -> tuple[str, set[int]]:
    """Take the known names, and an 's after them, out of a query; say whose they were.

    A name in a vector draws every text of that person near, whatever it is about: by meaning
    alone r@10 was .34 with names and .60 without (LoCoMo).
    """
    named: set[int] = set()
    owners: dict[str, set[int]] = {}
    for _, (name, number) in zip(range(_MAX_NAMES), speakers, strict=False):
        for part in name.split():
            if len(part) > 1 and part.lower() not in _ROLES and not part.isdigit():
                owners.setdefault(part.lower(), set()).add(number)
    if not owners:
        return query, named

    def replace(match: re.Match[str]) -> str:
        word = match.group(1)
        found = owners.get(word.lower())
        # "Will" is a name only where it is written as one.
        if found is None or (
            lexicon.hash_stem(word.lower()) == 0 and not (word[:1].isupper() and match.start())
        ):
            return match.group()
        named.update(found)
        return " "

    text = re.sub(r"\b([^\W\d_][\w.-]*\w|[^\W\d_])(?:'s|’s)?(?!\w)", replace, query)
    return (" ".join(text.split()) if named else query), named


def _names(query: str) -> Iterator[int]:
    """The stems of what is written as a name: with a capital letter, or with a digit in it.

    Words that every other text has are none, however they are written: "I asked Good Old Tom". At the beginning of a
    sentence, where every word has a capital letter, only a word is one that English hardly knows.
    """
    for match in _NAME_LIKE.finditer(query):
        word = match.group()
        if word.lower() in _CALENDAR:
            continue
        if any(char.isdigit() for char in word):
            bound = _COMMON_NAME
        elif word[0].isupper():
            begins = (
                query[: match.start()].rstrip(" \"'“‘(").endswith((".", "!", "?", "\n", ":"))
                or not match.start()
            )
            bound = lexicon.RARE * 1.01 if begins else _COMMON_NAME
        else:
            continue
        yield from (stem for stem in lexicon.stems_of(word) if lexicon.commonness(stem) < bound)


def _dates(query: str) -> list[NamedDate]:
    """The dates that a query names, the most exact reading of each."""
    found = [
        NamedDate(year=int(year), month=int(month), day=int(day))
        for year, month, day in _ISO_DAY.findall(query)
    ]
    found += [
        NamedDate(year=int(year) if year else None, month=_MONTHS.index(month.lower()) + 1, day=int(day))
        for day, month, year in _DAY_MONTH.findall(query)
    ]
    found += [
        NamedDate(year=int(year) if year else None, month=_MONTHS.index(month.lower()) + 1, day=int(day))
        for month, day, year in _MONTH_DAY.findall(query)
    ]
    if not found:
        found = [
            NamedDate(year=int(year) if year else None, month=_MONTHS.index(month.lower()) + 1)
            for month, year in _MONTH_YEAR.findall(query)
            # "May I…" and "march on" are no months; a capital letter or a year makes them one.
            if year or not (month.islower() and month in ("may", "march", "august"))
            if year or month.lower() != "may"
        ]
    if not found:
        found = [NamedDate(year=int(year)) for year in _YEAR.findall(query)]
    return found


def date_closeness(named: NamedDate, year: int, month: int, day: int, ordinal: int) -> float:
    """How well the day on which something was said fits a date that a question names: 0 to 1.

    What happened on a day is told on it or in the week after, now and then later in the month; what is
    announced for
    it, up to three days before.

    Args:
        named: From the question.
        year: Of the day on which it was said.
        month: Of the same day.
        day: Of the same day.
        ordinal: The same day, counted as `datetime.date.toordinal` does.
    """
    if named.month is None:
        return 1.0 if named.year == year else 0.0
    if named.day is not None:
        then = _ordinal(named.year or year, named.month, named.day)
        if then is None:
            return 0.0
        late = ordinal - then
        if -1 <= late <= 1:
            return 1.0
        if -1 <= late <= 8:
            return 0.8
        return 0.4 if -3 <= late <= 30 else 0.0
    if month == named.month and named.year in (None, year):
        return 1.0
    months_late = (year * 12 + month) - ((named.year or year) * 12 + named.month)
    return 0.5 if months_late == 1 and day <= 10 else 0.0


def _ordinal(year: int, month: int, day: int) -> int | None:
    """The day's number, or None where the calendar has no such day."""
    try:
        return date(year, month, day).toordinal()
    except ValueError:
        return None
