"""Parses a query: its names and dates, and the words to search for."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from satchel.memory.data_files import read_lines
from satchel.memory.text import lexicon

if TYPE_CHECKING:
    from satchel.memory.find.candidates.arrays import Floats
    from satchel.models.port import TokenVectors

MAX_QUERY_CHARS = 20_000
"""The rest of a longer query is ignored."""

_MAX_NAMES = 5_000  # Speakers that are looked for in a query.

# What programs call the parties of a conversation. These are not names, and occur in ordinary questions.
_ROLES = frozenset(
    {"user", "assistant", "system", "human", "ai", "agent", "bot", "tool", "model", "me", "you", "i"}
)

_NAME_LIKE = re.compile(r"[^\W_]+")
_NAME_IN_TEXT = re.compile(r"\b([^\W\d_][\w.-]*\w|[^\W\d_])(?:'s|’s)?(?!\w)")
_ROLE = re.compile(r"\b(?:the\s+)?(?:user|assistant)['’]s\b|\bthe\s+(?:user|assistant)\b", re.IGNORECASE)
_TO_ASSISTANT = re.compile("|".join(read_lines("to_assistant.txt")), re.IGNORECASE)
"""Whether a question asks what the assistant said or did."""
_CALENDAR = frozenset(read_lines("calendar_names.txt"))
_MAY_NAME_DAYS = re.compile(
    rf"\d|[今昨前去上][天日年周月夜晚]|[周月]|\b(?:{'|'.join(read_lines('calendar_names.txt'))}"
    rf"|{'|'.join(read_lines('day_words.txt'))})",
    re.IGNORECASE,
)
"""Whether a query is worth asking the calendar about: almost all that don't match name no day."""

_EPOCH = date(1970, 1, 1).toordinal()
_CALENDAR_DAYS = (date.min.toordinal() - _EPOCH, date.max.toordinal() - _EPOCH)
_MOST_YEARS = 100
_DAYS_CHARS = 2_000
"""A longer query is a text, in which days and questions are not what it asks."""
_COMMON_NAME = 0.004  # A share of English texts; a capitalised word in more of them is not a name.
_LEAST_MEMORIES = 20
_WIDESPREAD = 0.08
"""The share of memories, of at least so many, from which on a name tells nothing apart. The names of people who talk to
each other are in 14 to 31 % of what they say, other names in less than 6 % (LoCoMo)."""

_NEXT_DAY = 0.5
_NEXT_WEEK = 0.4
_NEXT_MONTH = 0.2
"""What the days after a day that a question names count, and the three days before it: people report an event when
they next talk, and announce it before."""
_AFTERWARDS = 0.5
"""What the ten days after a longer time count."""
_MOST_AFTERWARDS_DAYS = 31


@dataclass(frozen=True, slots=True)
class NamedDays:
    """Days that a question names, both ends included; `yearly` where it names no year."""

    first: date
    last: date
    yearly: bool = False

    @property
    def count(self) -> int:
        """How many days, at least 1."""
        return (self.last - self.first).days + 1

    def contain(self, days: Any) -> Any:
        """Which days, counted from 1970-01-01, are among them; shape of `days`, bool."""
        found = np.zeros(len(days), dtype=np.bool_)
        for first in self._beginnings(days):
            found |= (days >= first) & (days < first + self.count)
        return found

    def closeness(self, days: Any) -> Any:
        """How well each day fits, 0 to 1; shape of `days`."""
        found = np.zeros(len(days), dtype=np.float32)
        for first in self._beginnings(days):
            late = days - (first + self.count - 1)
            if self.count == 1:
                steps = [late == 0, np.abs(late) == 1, (late > 0) & (late <= 8), (late >= -3) & (late <= 30)]
                fit = np.select(steps, [1.0, _NEXT_DAY, _NEXT_WEEK, _NEXT_MONTH], 0.0)
            else:
                after = _AFTERWARDS if self.count <= _MOST_AFTERWARDS_DAYS else 0.0
                fit = np.select([(late <= 0) & (days >= first), (late > 0) & (late <= 10)], [1.0, after], 0.0)
            found = np.maximum(found, fit.astype(np.float32))
        return found

    def _beginnings(self, days: Any) -> Iterator[int]:
        """The first day, counted from 1970-01-01, in each year that matters for `days`."""
        if not self.yearly:
            yield self.first.toordinal() - _EPOCH
        elif len(days):
            years = (
                date.fromordinal(int(np.clip(day, *_CALENDAR_DAYS)) + _EPOCH).year
                for day in (days.min(), days.max())
            )
            first, last = years
            for year in range(max(first - 1, last - _MOST_YEARS, 1), last + 1):
                with suppress(ValueError):  # 29 February
                    yield self.first.replace(year=year).toordinal() - _EPOCH


def closeness(named: Sequence[NamedDays], days: Any) -> Any:
    """How well each day, counted from 1970-01-01, fits the days that a question names, 0 to 1; shape of `days`."""
    return np.maximum.reduce([one.closeness(days) for one in named])


Side: TypeAlias = Literal["user", "assistant", "anybody"]
"""A side of a conversation; "anybody" where the question names somebody, and it isn't known which side that is."""


class AskedWith(NamedTuple):
    """An embedded question: its vector, shape (d,), and its tokens if the embedder has token vectors."""

    vector: Floats
    tokens: TokenVectors | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedQuestion:
    """A parsed query.

    Attributes:
        text: The query without the names of known speakers and names that are everywhere. This text is embedded.
        stems: The distinct stems of the query without the names of known speakers, in order.
        speaker: The number of the known speaker whom the query names; None if it names none or several.
        side: Whose words it asks for where `speaker` doesn't say: "user" if it names nobody.
        days: The days that it names.
        names: The stems of other names in it, such as "Mara" or "QX-4711".
    """

    text: str
    stems: tuple[int, ...]
    speaker: int | None
    side: Side
    days: tuple[NamedDays, ...]
    names: tuple[int, ...]


def read_question(
    query: str,
    speakers: Iterable[tuple[str, int]],
    *,
    asked_at: datetime | None = None,
    locale: str = "",
    widespread: Collection[int] = (),
) -> ParsedQuestion:
    """Parse a query. `speakers` are the names of the space's speakers with their numbers; `asked_at` is the local time,
    None finds no dates. `widespread` are the stems of those of its `possible_names` that are everywhere in the space.
    """
    query = query[:MAX_QUERY_CHARS]
    speakers = list(islice(speakers, _MAX_NAMES))
    text, named = _strip_names(query, speakers)
    stems = tuple(dict.fromkeys(lexicon.stems_of(text)))
    if not stems:
        # Only names and function words: search for the names.
        text = query
        stems = tuple(dict.fromkeys(lexicon.stems_of(query)))
    asked, sides = _strip_roles(text, speakers)
    plain = _without(asked, widespread) if widespread else asked
    if (
        named
        or plain != asked
        or len(sides) > 1
        or (not sides and _TO_ASSISTANT.search(query, 0, _DAYS_CHARS))
    ):
        sides = {"anybody"}
    return ParsedQuestion(
        text=plain,
        stems=stems,
        speaker=next(iter(named)) if len(named) == 1 else None,
        side=next(iter(sides), "user"),
        days=() if asked_at is None else _days(query, asked_at, locale),
        names=tuple(dict.fromkeys(_names(text))),
    )


def _strip_roles(text: str, speakers: Iterable[tuple[str, int]]) -> tuple[str, set[Side]]:
    """Remove "the user's" and "the assistant" from a query about a conversation with an assistant, as names are;
    returns also which sides were named.
    """
    if not any(name.casefold() == "assistant" for name, _ in speakers):
        return text, set()
    sides: set[Side] = {"user" if "user" in role.lower() else "assistant" for role in _ROLE.findall(text)}
    left = _left(_ROLE, text, lambda _: True)
    return left, sides if left != text else set()


def possible_names(query: str) -> frozenset[int]:
    """The stems of the words of a query that are written as names, with no digit in them, common ones included."""
    return frozenset(
        stem
        for word, begins in _capitalised(query[:MAX_QUERY_CHARS])
        for stem in lexicon.stems_of(word)
        if not begins or lexicon.commonness(stem) < lexicon.RARE * 1.01
    )


def may_name_days(query: str) -> bool:
    """Whether a query is worth asking the calendar about, which takes 0.2 s for the first time."""
    return _MAY_NAME_DAYS.search(query, 0, _DAYS_CHARS) is not None


def is_widespread(having: int, memories: int) -> bool:
    """Whether a name that `having` of so many memories contain is everywhere in the space."""
    return memories >= _LEAST_MEMORIES and having >= _WIDESPREAD * memories


def _without(text: str, names: Collection[int]) -> str:
    """A text without some names; the text itself where nothing else is in it.

    The names of people who don't speak in the store under them, such as the user's own: they move the vector as those
    of speakers do (`_strip_names`), and tell no memory from another.
    """

    def is_one(match: re.Match[str]) -> bool:
        return match[1][:1].isupper() and any(stem in names for stem in lexicon.stems_of(match[1]))

    return _left(_NAME_IN_TEXT, text, is_one)


def _left(pattern: re.Pattern[str], text: str, drops: Callable[[re.Match[str]], bool]) -> str:
    """What is left of a text without the matches that are dropped; the text itself where that is nothing."""
    left = " ".join(pattern.sub(lambda match: " " if drops(match) else match[0], text).split())
    return left if lexicon.stems_of(left) else text


def _strip_names(query: str, speakers: Iterable[tuple[str, int]]) -> tuple[str, set[int]]:
    """Remove known names, with a following 's, from a query; returns also the numbers of their speakers. A name moves
    the vector towards every text of that person, whatever its topic: r@10 of the dense arm alone was .34 with names and
    .60 without (LoCoMo).
    """
    named: set[int] = set()
    owners: dict[str, set[int]] = {}
    for name, number in speakers:
        for part in name.split():
            if len(part) > 1 and part.lower() not in _ROLES and not part.isdigit():
                owners.setdefault(part.lower(), set()).add(number)
    if not owners:
        return query, named

    def is_one(match: re.Match[str]) -> bool:
        found = owners.get(match[1].lower())
        # "Will" is a name only if it is capitalised and doesn't begin the query.
        is_common = lexicon.hash_stem(match[1].lower()) == 0
        if found is None or (is_common and not (match[1][:1].isupper() and match.start())):
            return False
        named.update(found)
        return True

    text = _left(_NAME_IN_TEXT, query, is_one)
    return (text if named else query), named


def _names(query: str) -> Iterator[int]:
    """The stems of words that are written as names: capitalised, or with a digit.

    Common words are not names even if they are capitalised ("I asked Good Old Tom"). At the beginning of a sentence,
    where every word is capitalised, only rare words are names.
    """
    for match in _NAME_LIKE.finditer(query):
        word = match.group()
        if any(char.isdigit() for char in word):
            yield from (stem for stem in lexicon.stems_of(word) if lexicon.commonness(stem) < _COMMON_NAME)
    for word, begins in _capitalised(query):
        bound = lexicon.RARE * 1.01 if begins else _COMMON_NAME
        yield from (stem for stem in lexicon.stems_of(word) if lexicon.commonness(stem) < bound)


def _capitalised(query: str) -> Iterator[tuple[str, bool]]:
    """The capitalised words without digits, months and weekdays left out, and whether each begins a sentence."""
    for match in _NAME_LIKE.finditer(query):
        word = match.group()
        if word[0].isupper() and word.lower() not in _CALENDAR and not any(char.isdigit() for char in word):
            before = query[: match.start()].rstrip(" \"'“‘(")
            yield word, not before or before.endswith((".", "!", "?", "\n", ":"))


def _days(query: str, asked_at: datetime, locale: str) -> tuple[NamedDays, ...]:
    """The days that a query names and that are not all to come."""
    if not may_name_days(query):
        return ()
    query = query[:_DAYS_CHARS]
    # Loading it and the grammars of five languages takes 0.2 s, and few queries name a day.
    from satchel.memory.text.dates import named_days  # noqa: PLC0415

    today = asked_at.date()
    found = (NamedDays(*days) for days in named_days(query, asked_at, locale=locale))
    return tuple(dict.fromkeys(days for days in found if days.yearly or days.first <= today))
