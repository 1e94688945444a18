"""Parses a query: its names, dates and quotations, and the words to search for."""

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
"""The rest of a longer query is ignored."""

_MAX_NAMES = 5_000  # Speakers that are looked for in a query.

# What programs call the parties of a conversation. These are not names, and occur in ordinary questions.
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
_COMMON_NAME = 0.004  # A share of English texts; a capitalised word in more of them is not a name.
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
    """A date in a question. Parts that it doesn't specify are None."""

    year: int | None = None
    month: int | None = None
    day: int | None = None


class AskedWith(NamedTuple):
    """An embedded question: its vector, shape (d,), and its tokens if the embedder has token vectors."""

    vector: Floats
    tokens: TokenVectors | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A parsed query.

    Attributes:
        text: The query without the names of known speakers. This text is embedded.
        stems: The distinct stems of `text`, in order.
        speaker: The number of the known speaker whom the query names; None if it names none or several.
        asks_when: Whether it asks for a time.
        dates: The dates in it.
        names: The stems of other names in it, such as "Mara" or "QX-4711".
        quoted: The words of each quotation in it, separated by spaces.
    """

    text: str
    stems: tuple[int, ...]
    speaker: int | None
    asks_when: bool
    dates: tuple[NamedDate, ...]
    names: tuple[int, ...]
    quoted: tuple[str, ...]


def read_question(query: str, speakers: Iterable[tuple[str, int]]) -> Question:
    """Parse a query; `speakers` are the names of the space's speakers with their numbers."""
    query = query[:MAX_QUERY_CHARS]
    stripped, named = _strip_names(query, speakers)
    stems = tuple(dict.fromkeys(lexicon.stems_of(stripped)))
    if not stems:
        # Only names and function words: search for the names.
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
    """Remove known names, with a following 's, from a query.

    A name moves the vector towards every text of that person, whatever its topic: r@10 of the dense arm alone was .34
    with names and .60 without (LoCoMo).

    Returns:
        The text and the numbers of the speakers whose names were removed.
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
        # "Will" is a name only if it is capitalised and doesn't begin the query.
        if found is None or (
            lexicon.hash_stem(word.lower()) == 0 and not (word[:1].isupper() and match.start())
        ):
            return match.group()
        named.update(found)
        return " "

    text = re.sub(r"\b([^\W\d_][\w.-]*\w|[^\W\d_])(?:'s|’s)?(?!\w)", replace, query)
    return (" ".join(text.split()) if named else query), named


def _names(query: str) -> Iterator[int]:
    """The stems of words that are written as names: capitalised, or with a digit.

    Common words are not names even if they are capitalised ("I asked Good Old Tom"). At the beginning of a sentence,
    where every word is capitalised, only rare words are names.
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
    """The dates in a query: days if there are any, otherwise months, otherwise years."""
    found = [
        NamedDate(year=int(year), month=int(month), day=int(day))
        for year, month, day in _ISO_DAY.findall(query)
    ]
    found += [_named_date(year, month, day) for day, month, year in _DAY_MONTH.findall(query)]
    found += [_named_date(year, month, day) for month, day, year in _MONTH_DAY.findall(query)]
    if not found:
        found = [
            _named_date(year, month, "")
            for month, year in _MONTH_YEAR.findall(query)
            # Without a year, "May I…" and "march on" are not months.
            if year or month.lower() != "may" and month not in ("march", "august")
        ]
    return found or [NamedDate(year=int(year)) for year in _YEAR.findall(query)]


def _named_date(year: str, month: str, day: str) -> NamedDate:
    return NamedDate(
        year=int(year) if year else None,
        month=_MONTHS.index(month.lower()) + 1,
        day=int(day) if day else None,
    )


def date_closeness(named: NamedDate, said: date) -> float:
    """How well the day on which something was said fits a date in a question, 0 to 1.

    People report an event on the same day or in the week after it, sometimes later in the month, and announce it up to
    three days before.
    """
    if named.month is None:
        return 1.0 if named.year == said.year else 0.0
    if named.day is not None:
        try:
            days_late = (said - date(named.year or said.year, named.month, named.day)).days
        except ValueError:
            return 0.0  # The calendar has no such day.
        if -1 <= days_late <= 1:
            return 1.0
        if 1 < days_late <= 8:
            return 0.8
        return 0.4 if -3 <= days_late <= 30 else 0.0
    if said.month == named.month and named.year in (None, said.year):
        return 1.0
    months_late = (said.year * 12 + said.month) - ((named.year or said.year) * 12 + named.month)
    return 0.5 if months_late == 1 and said.day <= 10 else 0.0
