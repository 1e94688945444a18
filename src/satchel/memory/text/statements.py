"""What is read out of a text ahead of time: statements that last, and days that something was said to happen on.

Both need more than a millisecond for a turn, and so they are read in the background (`Upkeep`), kept beside the memory
(`statement_rows`), and only looked up when a session begins (`profile`, `agenda`).

Whether a sentence says something lasting about who says it is judged by a logistic regression over features of its
words, for five languages; benchmarks/statements.py fits it. Sentence vectors were tried and add nothing that the
intervals can tell (docs/decisions/0032-profile-and-agenda.md).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from satchel.memory.data_files import read_lines, read_text_file

if TYPE_CHECKING:
    from satchel.memory.records import FactTime
    from satchel.memory.text.dates import ResolvedDate

VERSION: Final = 8
"""Of everything in here that decides what is stored; a memory that was read by another version is read again."""

SECTIONS: Final = ("name", "answers", "health", "home", "work", "people", "more")
"""The order of the profile."""

Change: TypeAlias = Literal["", "cancelled", "moved"]
"""What a statement does to an appointment that was named before."""

_READ_CHARS: Final = 4_000
"""Of one text: what somebody says about themselves is short, and the rest of a long message was pasted."""
_SHOWN_CHARS: Final = 240
"""Of a statement in the profile: 70 tokens, a quarter of it."""
_AROUND_CHARS: Final = 45
"""After a day in a line of the agenda, and `_BEFORE_CHARS` before it, where what happens is mostly said: a line of it
has some 30 tokens."""
_BEFORE_CHARS: Final = 80
_MOST_LASTING: Final = 3
_LEAST: Final = -1.5
"""The log-odds from which a sentence is kept as lasting, and `_LEAST_OF_TOPIC` for one with words of a section: the
lives that the judge was fitted to have few sentences as short as "I've moved to Berlin"."""
_LEAST_OF_TOPIC: Final = -3.0
_LEAST_OF_OWN: Final = -4.0
"""The same for one that says who says it, without a word of a request: "I'm vegetarian." is too short for its judge
(-3.1)."""
_LEAST_CHARS: Final = 8
_LEAST_UNSPACED_CHARS: Final = 4
_MOST_DAYS: Final = 16
"""A longer time is no appointment: "in December"."""
_LEAP_YEAR: Final = 2028
_EXPECTED: Final = (
    "It will be on {}",
    "It will be {}",
    "Es wird {} sein",
    "Será el {}",
    "Ce sera {}",
    "\u6211\u4f1a{}\u53bb",
)
"""Sentences about the future."""

_SENTENCE_END: Final = re.compile(
    r"(?<=[.!?\u2026])(?<!\d\.)[\"'\u201d\u2019)]*\s+|(?<=[\u3002\uff01\uff1f])|\n+"
)
_ABBREVIATED: Final = re.compile(
    r"\b(?:Dr|Mr|Mrs|Ms|Prof|St|Fr|Hr|Sr|Sra|Dra|Mme|M|No|Nr|ca|bzw|approx|e\.g|i\.e|z\.\s?B|d\.\s?h|vs)\.$"
)
"""A full stop that ends no sentence: "the dentist, Dr. Wulff"."""
_FOREIGN: Final = re.compile(
    r"```.*?(?:```|\Z)|^[ \t]*>[^\n]*$"
    r"|^[^\n]*(?<!\d)\d{1,2}:\d\d:\d\d(?!\d)[^\n]*$|\u201c[^\u201d]{80,}\u201d|\"[^\"]{80,}\"",
    re.DOTALL | re.MULTILINE,
)
"""Words of others in a message: code, quoted lines, lines of a log (nobody gives the seconds of an appointment), long
quotations."""
_UNSPACED: Final = re.compile("[\u3040-\u30ff\u3400-\u9fff]")
_NAME: Final = re.compile(r"(?<=[a-z,;] )[A-ZÀ-Þ]\w+")
_ASKS: Final = ("?", "\uff1f")


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence and its place in its text: `text[start:end]`, number `at` of `of`."""

    start: int
    end: int
    at: int
    of: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """What was read out of a text: a statement that may last, or a day that something happens on, or both never.

    Attributes:
        start: Where its words begin in the text, in characters; they end before `end`.
        lasting: How sure it says something lasting about who said it, in log-odds; None for a day.
        first: The first day meant, and `last` the last one; None where there is no single reading.
        yearly: Month and day as 100 * month + day of what comes every year, such as a birthday; 0 otherwise.
        every: The round of a week or a month that it comes in, as "week 0" for Mondays or "month 15"; "" otherwise.
        change: What it does to an appointment that was named before.
    """

    start: int
    end: int
    lasting: float | None = None
    first: date | None = None
    last: date | None = None
    yearly: int = 0
    every: str = ""
    change: Change = ""


def timed_statements(text: str, time: FactTime) -> tuple[Statement, ...]:
    """What is read out of a fact whose days are known: a statement for each of its rounds, or one for its days."""
    # What has to be cancelled by a day is not cancelled.
    change: Change = "" if time.kind in ("deadline", "recurrence") else _change(text)
    end = _clipped(text, 0, len(text), _BEFORE_CHARS + 2 * _AROUND_CHARS)
    period, *numbers = time.every.split() or [""]
    if period == "year":
        return (Statement(start=0, end=end, yearly=int(numbers[0]), change=change),)
    rounds = [Statement(start=0, end=end, every=f"{period} {number}", change=change) for number in numbers]
    if rounds:
        return tuple(rounds)
    has_days = time.ends and time.first is not None
    if not has_days and not change:
        return ()
    first, last = (time.first, time.last) if has_days else (None, None)
    return (Statement(start=0, end=end, first=first, last=last, change=change),)


def read_statements(text: str, said_at: datetime, *, is_own: bool, locale: str = "") -> tuple[Statement, ...]:
    """Read a text: the sentences that most likely last, the likeliest first, which only what the user said word for
    word (`is_own`) is judged for; then its days, in order.
    """
    text = text[:_READ_CHARS]
    found: list[Statement] = []
    sentences = sentences_of(text)
    if is_own and sentences:
        telling = [one for one in sentences if _tells(text[one.start : one.end])]
        judged = sorted(((lasting_strength(text, one), one) for one in telling), key=lambda pair: -pair[0])
        found += [
            Statement(
                start=one.start,
                end=_clipped(text, one.start, one.end, _SHOWN_CHARS),
                lasting=round(strength, 4),
            )
            for strength, one in judged[:_MOST_LASTING]
            if strength >= _least(text[one.start : one.end])
        ]
    found += _days(text, said_at, sentences, locale)
    return tuple(found)


def _least(words: str) -> float:
    patterns = _patterns()
    if patterns["own"].search(words) is not None and patterns["requests"].search(words) is None:
        return _LEAST_OF_OWN
    return _LEAST if section_of(words) == "more" else _LEAST_OF_TOPIC


def _tells(words: str) -> bool:
    """Whether a sentence says something of who says it, of what the profile has a section for, or how to answer, and
    asks nothing. Anything else, such as data and a task, is nobody's statement about themselves.
    """
    return (_is_of_user(words) or section_of(words) != "more") and not _asks(words)


def _is_of_user(words: str) -> bool:
    return any(_patterns()[name].search(words) is not None for name in ("own", "wishes"))


def _asks(words: str) -> bool:
    """Whether a sentence is a question, or asks for something to be done once. What says of the user who they are or
    what harms them tells that first: "My wife is allergic to nuts - what can I bake?".
    """
    patterns, is_of_user = _patterns(), _is_of_user(words)
    if patterns["own"].search(words) is not None and section_of(words) in ("name", "health"):
        return False
    if words.rstrip("\"' )").endswith(_ASKS):
        return True
    if _requests().match(words) is not None and (not is_of_user or patterns["requests"].search(words)):
        return True
    return not is_of_user and patterns["please"].search(words) is not None


def only_asks(text: str) -> bool:
    """Whether every sentence of a text asks."""
    text = text[:_READ_CHARS]
    sentences = sentences_of(text)
    return bool(sentences) and all(_asks(text[one.start : one.end]) for one in sentences)


def sentences_of(text: str) -> list[Sentence]:
    """The sentences of a text that whoever said it may have said themselves: no code, no quotation."""
    foreign = [match.span() for match in _FOREIGN.finditer(text)]
    spans: list[tuple[int, int]] = []
    at = 0
    ends = (match.span() for match in _SENTENCE_END.finditer(text))
    for start, after in [*ends, (len(text), len(text))]:
        if (
            start < after
            and "\n" not in text[start:after]
            and _ABBREVIATED.search(text, max(at, start - 8), start)
        ):
            continue
        left = at + len(text[at:start]) - len(text[at:start].lstrip(" \t-*\u2022"))
        right = start - (len(text[at:start]) - len(text[at:start].rstrip()))
        least = _LEAST_UNSPACED_CHARS if _UNSPACED.search(text, left, max(right, left)) else _LEAST_CHARS
        if right - left >= least and not any(begin < right and left < end for begin, end in foreign):
            spans.append((left, right))
        at = after
    return [Sentence(start, end, number, len(spans)) for number, (start, end) in enumerate(spans)]


def features_of(text: str, sentence: Sentence) -> dict[str, float]:
    """What the judge looks at, by name."""
    words = text[sentence.start : sentence.end]
    patterns = _patterns()
    unspaced = len(_UNSPACED.findall(words))
    length = len(words.split()) + 0.6 * unspaced
    core = max(_hits(name, words) for name in ("name", "answers", "health"))
    topic = max(_hits(name, words) for name in ("home", "work", "people"))
    first, lasting = len(patterns["first_person"].findall(words)), len(patterns["lasting"].findall(words))
    return {
        "asks": float(words.rstrip("\"' )").endswith(_ASKS)),
        "first_person": float(first > 0),
        "first_persons": float(first),
        "lasting": float(lasting > 0),
        "lastings": float(lasting),
        "requests": float(patterns["requests"].search(words) is not None),
        "length": min(length, 60) / 30,
        "length_squared": min(length, 60) ** 2 / 900,
        "log_length": math.log1p(length),
        "very_short": float(length < 5),
        "has_number": float(any(char.isdecimal() for char in words)),
        "names": float(len(_NAME.findall(words))),
        "opens": float(sentence.at == 0),
        "alone": float(sentence.of == 1),
        "sentences": min(sentence.of, 10) / 10,
        "turn_length": min(len(text), _READ_CHARS) / 700,
        "core": core,
        "core_of_mine": core * (first > 0),
        "core_and_short": core * (length < 12),
        "topic": topic,
        "density": min((lasting + 2 * core) / max(length, 3), 0.5),
    }


def _hits(section: str, words: str) -> float:
    return float(dict(_sections())[section].search(words) is not None)


def lasting_strength(text: str, sentence: Sentence) -> float:
    """How likely a sentence says something lasting about who says it, in log-odds."""
    weights = _weights()
    found = features_of(text, sentence)
    return weights.get("bias", 0.0) + sum(weights.get(name, 0.0) * value for name, value in found.items())


@lru_cache(maxsize=2_000)
def section_of(text: str) -> str:
    """The section of the profile that a statement belongs to: the first whose words it has."""
    return next((name for name, pattern in _sections() if pattern.search(text)), "more")


def without_days(text: str) -> str:
    """A text without figures and the names of days and months: what is left says what happens on them."""
    return _patterns()["days"].sub(" ", text)


def says_habit(text: str) -> bool:
    """Whether a text says what is done every week: "every Monday", "alternating weekends"."""
    return _patterns()["habit"].search(text) is not None


def without_times(text: str) -> str:
    """A text without times of day."""
    return _patterns()["clock"].sub(" ", text)


def shown_words(text: str) -> str:
    """The words of a memory that stand in a profile where no sentence of it was chosen."""
    return text[: _clipped(text, 0, len(text), _SHOWN_CHARS)]


def _days(text: str, said_at: datetime, sentences: Sequence[Sentence], locale: str) -> Iterator[Statement]:
    patterns = _patterns()
    dates = _without_given_up(_dates_of(text, said_at, locale=locale), sentences, text)
    changed: set[int] = set()
    for mention in dates:
        end = mention.offset + len(mention.text)
        sentence = next((one for one in sentences if one.start <= mention.offset < one.end), None)
        if sentence is None:
            continue
        words = text[sentence.start : sentence.end]
        if words.rstrip("\"' )").endswith(_ASKS):
            continue
        change = _change(words)
        yearly = 0
        first, last = mention.start, mention.end
        if patterns["yearly"].search(words):
            yearly = _yearly(mention.text, first, locale)
        if change == "moved" and first is not None and first < said_at.date():
            first = None  # "It was moved to Wednesday": only the moving is over.
        if first is None and not yearly:
            first = last = _expected(mention, dates, words, said_at, locale)
        if first is not None and last is not None:
            if last - first >= timedelta(days=_MOST_DAYS) or first < said_at.date():
                first = last = None
            elif first == said_at.date() == last and not patterns["clock"].search(words):
                first = last = None  # "today was awful"
        if first is None and not yearly and not change:
            continue
        changed.add(sentence.at)
        start = max(sentence.start, _word_start(text, mention.offset - _BEFORE_CHARS))
        yield Statement(
            start=start,
            end=_clipped(text, start, sentence.end, end - start + _AROUND_CHARS),
            first=first,
            last=last,
            yearly=yearly,
            change=change,
        )
    for sentence in sentences:
        change = _change(text[sentence.start : sentence.end])
        if change and sentence.at not in changed:
            end = _clipped(text, sentence.start, sentence.end, 2 * _AROUND_CHARS)
            yield Statement(start=sentence.start, end=end, change=change)


def _without_given_up(
    dates: Sequence[ResolvedDate], sentences: Sequence[Sentence], text: str
) -> list[ResolvedDate]:
    """Leave out the days in whose place a sentence names another: "I can't do Thursday; Friday works"."""
    kept = []
    for mention in dates:
        sentence = next((one for one in sentences if one.start <= mention.offset < one.end), None)
        before = text[max(sentence.start if sentence else 0, mention.offset - _AROUND_CHARS) : mention.offset]
        has_other = sentence is not None and any(
            other is not mention and sentence.start <= other.offset < sentence.end for other in dates
        )
        if not (has_other and _patterns()["given_up"].search(before)):
            kept.append(mention)
    return kept


def _expected(
    mention: ResolvedDate, dates: Sequence[ResolvedDate], words: str, said_at: datetime, locale: str
) -> date | None:
    """The day of an appointment that is named without a verb ("dentist, Thursday at ten"), whose tense is not known: it
    is still to come. A time or a date in figures tells it from a habit.
    """
    is_noted = (
        any(char.isdecimal() for char in mention.text) or _patterns()["clock"].search(words) is not None
    )
    is_near = any(
        other is not mention and other.start is None and abs(other.offset - mention.offset) < _AROUND_CHARS
        for other in dates
    )
    if not is_noted or is_near:
        return None
    # The full stop belongs to the day: "28.3."
    noted = f"{mention.text}." if f"{mention.text}." in words else mention.text
    for sentence in _EXPECTED:
        read = _dates_of(sentence.format(noted), said_at, locale=locale)
        if len(read) == 1 and read[0].start is not None and read[0].start == read[0].end:
            return read[0].start
    return None


def _change(words: str) -> Change:
    patterns = _patterns()
    if patterns["cancelled"].search(words):
        return "cancelled"
    return "moved" if patterns["moved"].search(words) else ""


def _yearly(words: str, known: date | None, locale: str) -> int:
    """Month and day of a birthday, whose year isn't said or doesn't matter."""
    if known is None:
        for whole in (f"{words} {_LEAP_YEAR}", f"{words} de {_LEAP_YEAR}", f"{_LEAP_YEAR}\u5e74{words}"):
            read = _dates_of(whole, date(_LEAP_YEAR, 1, 1), locale=locale)
            if len(read) == 1 and read[0].start is not None and read[0].start == read[0].end:
                known = read[0].start
                break
    return 0 if known is None else 100 * known.month + known.day


def _word_start(text: str, at: int) -> int:
    if at <= 0:
        return 0
    space = text.find(" ", at)
    return at if space < 0 or space - at > _AROUND_CHARS else space + 1


def _clipped(text: str, start: int, end: int, most: int) -> int:
    """The end of the words of a part, or of as many whole words of it as fit."""
    if end - start <= most:
        return end
    space = text.rfind(" ", start + most // 2, start + most + 1)
    return start + most if space < 0 else space


@cache
def _data() -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(read_text_file("statements.json"))
    return found


def _compiled(patterns: Sequence[str]) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


@cache
def _patterns() -> Mapping[str, re.Pattern[str]]:
    names = (
        "first_person", "lasting", "requests", "cancelled", "moved", "yearly", "clock", "days", "habit", "own",
        "wishes", "please",
    )  # fmt: skip
    given_up = re.compile(f"(?:{'|'.join(_data()['given_up'])})$", re.IGNORECASE)
    return {"given_up": given_up, **{name: _compiled(_data()[name]) for name in names}}


@cache
def _requests() -> re.Pattern[str]:
    return _compiled(read_lines("requests.txt"))


@cache
def _sections() -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple((name, _compiled(patterns)) for name, patterns in _data()["sections"])


def _weights() -> Mapping[str, float]:
    weights: Mapping[str, float] = _data()["weights"]
    return weights


def _dates_of(text: str, said_at: datetime | date, *, locale: str) -> tuple[ResolvedDate, ...]:
    # Loading it takes 0.1 s, and a search needs nothing of this module but `shown_words`.
    from satchel.memory.text.dates import resolve_dates  # noqa: PLC0415

    return resolve_dates(text, said_at, locale=locale)
