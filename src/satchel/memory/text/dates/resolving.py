"""Finds the dates of a text, and resolves each against the day it was said on."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, time
from functools import lru_cache
from itertools import pairwise
from typing import Final

from satchel.errors import UsageError
from satchel.memory.text.dates.grammar import LANGUAGES, Language, Phrase, Token, language, tokens_of
from satchel.memory.text.dates.meanings import Circumstances, Order
from satchel.memory.text.dates.spans import NO_MENTION, PERIODS, Cycle, Span, Value
from satchel.memory.text.dates.tenses import Clauses

_MONTH_FIRST: Final = frozenset({"US", "PH", "CN", "TW", "JP", "KR", "HU"})
"""Countries that write the month before the day; Canada does both."""
_LOCALE: Final = re.compile(r"[a-z]{2,3}(?:[-_][a-z]{4})?[-_]([a-z]{2})(?![a-z])", re.IGNORECASE)
_LEAD: Final = 6
"""Tokens of a mention before the first one of its own words: "between the first and the last"."""
_NEAR: Final = 6
"""Tokens between a time and what happens in it."""
_LIST: Final = 3
"""Tokens between two dates of a list: ", and the"."""
_JOIN: Final = 2
"""Tokens that join two dates."""
_LEAST_AROUND: Final = 7
"""Days of a time that others can lie in."""
_MOST: Final = 2_000
"""Dates of a text whose days are looked for: no talk has more, and each costs 0.1 to 0.3 ms. Later ones are unknown."""
_BEFORE: Final = 60
_AFTER: Final = 40
"""Characters before and after a phrase that its guards see."""
_ENDED: Final = re.compile(r"(?:(?<=\w{4})\.|(?<=\d\w)\.|[!?])\s+|[\u3002\uff01\uff1f]")
"""The end of a sentence; a dot after a short word may be that of an abbreviation."""
_CUT: Final = "\N{OBJECT REPLACEMENT CHARACTER}"
"""Stands for the text before what they see."""
_QUOTED: Final = re.compile(
    r"""["\uff02][^"\uff02\n]{1,200}["\uff02]|\u201c[^\u201c\u201d]{1,200}\u201d|\u201e[^\u201c\u201d]{1,200}[\u201c\u201d]"""
    r"|\u00ab[^\u00ab\u00bb]{1,200}\u00bb|\u00bb[^\u00ab\u00bb]{1,200}\u00ab"
    r"|\u300c[^\u300d]{1,200}\u300d|\u300e[^\u300f]{1,200}\u300f|\u300a[^\u300b]{1,200}\u300b"
)
"""Words in quotation marks: those of somebody else, said at another time, or a title."""
_SENTENCE_ENDS: Final = frozenset(".!?;\u3002")


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


def resolve_dates(text: str, said_at: datetime | date | str, *, locale: str = "") -> tuple[ResolvedDate, ...]:
    """Find the dates that a text speaks of and resolve each against the day it was said on.

    Args:
        text: What was said; any length.
        said_at: When: a local date or time, or either as ISO 8601. The calendar date in it counts, its offset is not
            converted; a bare date leaves the hour open, and nights are then read as said in the daytime.
        locale: The user's, as "en_GB" or "en-GB.UTF-8"; of it only the country counts. It decides the order of day and
            month in digits where the language doesn't, and holidays and seasons that differ between countries.

    Returns:
        The mentions in the order of the text, none overlapping another; of several readings of one place the longest.

    Raises:
        UsageError: `said_at` is no date.
    """
    return tuple(found for found, _ in _resolved(text, said_at, locale))


def named_days(
    text: str, asked_at: datetime | date | str, *, locale: str = ""
) -> tuple[tuple[date, date, bool], ...]:
    """Find the days that a question asks for, first and last, and whether those of any year are meant. It need not be
    as clear as for `resolve_dates`: "on 3 May" is that day of any year, and "on Tuesday" the last one where no tense
    says more.
    """
    asked: list[tuple[date, date, bool]] = []
    for found, value in _resolved(text, asked_at, locale):
        if isinstance(value, Cycle) and value.period == "year":
            spans = list(value.around(_moment(asked_at)[0].date()))
            if len({(span.first.month, span.first.day) for span in spans}) == 1:
                asked.append((spans[0].first, spans[0].last, True))
            elif (last := value.before(_moment(asked_at)[0].date())) is not None:  # Easter
                asked.append((last.first, last.last, False))
        elif found.start is not None and found.end is not None:
            asked.append((found.start, found.end, False))
        elif isinstance(value, Cycle) and (last := value.before(_moment(asked_at)[0].date())) is not None:
            asked.append((last.first, last.last, False))
    return tuple(asked)


def days_meant(
    words: str, said_at: datetime | date, *, is_past: bool, context: str = "", locale: str = ""
) -> tuple[date, date] | None:
    """The first and the last day of some words of which it is known that they are a time, and whether it was over; None
    without a single reading. No tense is read and no company is asked for. `context`, what was said, tells the
    language.
    """
    at, has_hour = _moment(said_at)
    tokens = tokens_of(words)
    spans: list[Span] = []
    for _, phrase in _mentions(words, tokens, at, has_hour, _country(locale), context, weak=True):
        value = phrase.value
        span = value.known(is_past, at.date()) if isinstance(value, Cycle) else value
        if span is None:
            return None
        spans.append(span)
    if not spans or spans[-1].last < spans[0].first:
        return None
    return spans[0].first, spans[-1].last


def end_of_length(words: str, first: date, *, context: str = "") -> date | None:
    """The last day of a time of which its length is said: "for four weeks" from 13 March is until 10 April, and three
    days from Monday are until Wednesday. None where no length, or no exact one, is said.
    """
    return next(ends_of_lengths(words, first, context=context), None)


def ends_of_lengths(words: str, first: date, *, context: str = "") -> Iterator[date]:
    """Yield the same for each length in some words."""
    tokens = tokens_of(words)
    said = Circumstances(at=datetime.combine(first, time()), has_hour=False, country="", orders=frozenset())
    for index, spoken in enumerate(_languages(tokens, context)):
        phrase = spoken.find(tokens, index, said, symbol="length")
        if phrase is not None and isinstance(phrase.value, Span):
            yield phrase.value.last


_WIDE: Final = re.compile(r"(?<!\s)(?!\s*\n[^\S\n]*\n)\s{2,}")
"""White space of several characters; a blank line stays, which ends a clause."""


def _resolved(said: str, said_at: datetime | date | str, locale: str) -> list[tuple[ResolvedDate, Value]]:
    """The mentions in a text, and what each means before a round of a cycle is picked; None if it is part of more."""
    at, has_hour = _moment(said_at)
    # The signs of a language that look back at a word have room for one character of white space.
    text = _WIDE.sub(lambda match: "\n" if "\n" in match[0] else " ", said)
    tokens, tokens_said = tokens_of(text), tokens_of(said)
    mentions = _sure(text, tokens, list(_mentions(text, tokens, at, has_hour, _country(locale))))
    unclear = _unclear(tokens, mentions)
    places = [_place(phrase, text, tokens) for _, phrase in mentions]
    clauses = {
        spoken: Clauses(text, [_with_dot(text, *place) for place in places], spoken.signs)
        for spoken in {spoken for spoken, phrase in mentions if _needs_tense(phrase.value)}
    }
    resolved: list[tuple[ResolvedDate, Value]] = []
    before: Phrase | None = None
    for (spoken, phrase), place in zip(mentions, places, strict=True):
        start, end = _place(phrase, said, tokens_said)
        value: Value = phrase.value
        span = _inside(phrase, before, tokens, spoken) if before is not None else None
        if span is not None:
            start, value = resolved.pop()[0].offset, None
        elif phrase not in unclear:
            span = _picked(phrase.value, clauses.get(spoken), place, at.date())
        first, last = (span.first, span.last) if span is not None else (None, None)
        resolved.append((ResolvedDate(text=said[start:end], offset=start, start=first, end=last), value))
        before = phrase
    return resolved


def _mentions(
    text: str,
    tokens: list[Token],
    at: datetime,
    has_hour: bool,
    country: str,
    context: str = "",
    *,
    weak: bool = False,
) -> Iterator[tuple[Language, Phrase]]:
    """The phrases of a text; `weak` ones are words that are a date only in certain company."""
    reached, dated = 0, _dated()
    for index, spoken in enumerate(_languages(tokens, context)):
        if index < reached or not spoken.can_begin(tokens[index]):
            continue
        # A date has words of its own: those that others have too, such as "the" and "of", are none alone.
        own = (one.word in dated or one.word.isdecimal() for one in tokens[index : index + _LEAD + 1])
        if not any(own):
            continue
        said = Circumstances(at=at, has_hour=has_hour, country=country, orders=_orders(spoken, country))
        phrase = spoken.find(tokens, index, said)
        if phrase is None or not _stands_alone(text, tokens[phrase.start].start, tokens[phrase.end - 1].end):
            continue
        if isinstance(phrase.value, Cycle) and phrase.value.weak and not weak:
            continue
        reached = phrase.end
        if phrase.value is not NO_MENTION:
            yield spoken, phrase


def _inside(phrase: Phrase, before: Phrase, tokens: list[Token], spoken: Language) -> Span | None:
    """The days of a phrase inside the longer time named shortly before: "next week I'm away from Monday to Friday"."""
    container, between = before.value, tokens[before.end : phrase.start]
    if (
        not isinstance(phrase.value, Cycle)
        or not isinstance(container, Span)
        or container.days < _LEAST_AROUND
    ):
        return None
    if not 0 < len(between) <= _NEAR or any(token.word in spoken.breaks for token in between):
        return None
    return phrase.value.inside(container)


def _place(phrase: Phrase, text: str, tokens: list[Token]) -> tuple[int, int]:
    end = tokens[phrase.end - 1].end
    return tokens[phrase.start].start, end - (text[end - 1] == ".")


def _with_dot(text: str, start: int, end: int) -> tuple[int, int]:
    """A place with its dot where the sentence goes on: "am 31.12. feiern wir"."""
    rest = text[end : end + 3].split()
    return start, end + (len(rest) > 1 and rest[0] == "." and rest[1].islower())


def _needs_tense(value: Value) -> bool:
    return isinstance(value, Cycle) or (isinstance(value, Span) and value.lasting)


def _picked(value: Value, clauses: Clauses | None, place: tuple[int, int], today: date) -> Span | None:
    if clauses is None or not _needs_tense(value):
        return value if isinstance(value, Span) else None
    tense = clauses.tense(*place)
    if isinstance(value, Span):
        return None if tense == "past" else value
    if not isinstance(value, Cycle) or (value.period == "year" and clauses.comes_yearly(*place)):
        return None
    return value.pick(tense, today)


def _sure(
    text: str, tokens: list[Token], mentions: list[tuple[Language, Phrase]]
) -> list[tuple[Language, Phrase]]:
    """The mentions, those unknown that stand in unsure company or in somebody's words or a title."""
    if not mentions:
        return mentions
    patterns = [_QUOTED, *(spoken.sayings for spoken in {spoken for spoken, _ in mentions})]
    quotes = sorted(match.span() for pattern in patterns for match in pattern.finditer(text))
    found: list[tuple[Language, Phrase]] = []
    for number, (spoken, phrase) in enumerate(mentions):
        start, end = tokens[phrase.start].start, tokens[phrase.end - 1].end
        at = bisect_left(quotes, (end, end)) - 1
        is_quoted = at >= 0 and quotes[at][1] >= end and not _is_full(phrase)
        is_sure = number < _MOST and not is_quoted
        if phrase.value is not None:
            is_sure = is_sure and spoken.is_sure(phrase.kind, _around(text, start, end))
        found.append((spoken, phrase if is_sure else phrase._replace(value=None)))
    return found


def _is_full(phrase: Phrase) -> bool:
    """Whether it is a day, month and year in digits, which mean the same whoever says them and whenever."""
    return phrase.kind in ("full", "numeric") and isinstance(phrase.value, Span)


def _around(text: str, start: int, end: int) -> str:
    """A phrase in its company: what stands before it in its sentence, and what follows."""
    before = text[max(start - _BEFORE, 0) : start]
    ended = max((match.end() for match in _ENDED.finditer(before)), default=0)
    cut = _CUT * (start > _BEFORE and not ended)
    return f"{cut}{before[ended:]}‹{text[start:end]}›{text[end : end + _AFTER]}"


def _unclear(tokens: list[Token], mentions: list[tuple[Language, Phrase]]) -> set[Phrase]:
    """The phrases next to another one that together say what no rule knows ("Friday in January")."""
    found: set[Phrase] = set()
    for spoken, phrase in mentions:
        before = {token.word for token in tokens[max(phrase.start - _NEAR, 0) : phrase.start]}
        if tokens[phrase.start].word in spoken.ranges and before & spoken.moving:
            found.add(phrase)  # moved from Friday to Monday
    for (spoken, left), (_, right) in pairwise(mentions):
        between = [token.word for token in tokens[left.end : right.start]]
        is_list = 1 <= len(between) <= _LIST and between[0] in spoken.breaks
        if len(between) <= _JOIN and spoken.joins.issuperset(between):
            found |= {left, right}
        elif is_list and isinstance(left.value, Cycle) and _is_longer(right.value, left.value):
            found.add(left)  # the 5th and the 6th of May
        elif (
            len(between) == 1 and is_list and isinstance(left.value, Span) and isinstance(right.value, Cycle)
        ):
            found.add(right)  # May 2023 and June
    return found


def _is_longer(value: Value, cycle: Cycle) -> bool:
    """Whether a date is fixed by more than a cycle."""
    return isinstance(value, Span) or (
        isinstance(value, Cycle) and PERIODS.index(value.period) > PERIODS.index(cycle.period)
    )


def _stands_alone(text: str, start: int, end: int) -> bool:
    """Whether a phrase is no part of a longer word, number, path or version."""
    before, after = text[max(start - 2, 0) : start], text[end : end + 2]
    first, last = (before[0], before[-1]) if before else ("", "")
    # The "200" of "1,200" is no number.
    is_rest = last == "," and first.isdecimal() and text[start].isdecimal()
    joins = bool(before) and (_is_latin(last) or (last in "/.-" and _is_latin(first)))
    if _is_latin(text[start]) and (joins or is_rest):
        return False
    if _is_latin(text[end - 1]) and after:
        return not (
            _is_latin(after[0])
            or (after[0] in "-/.:," and text[end - 1].isdecimal() and after[1:].isdecimal())
        )
    return True


def _is_latin(char: str) -> bool:
    """Whether it is part of a word in a script that puts spaces between words."""
    return (char.isalnum() or char == "_") and not _is_chinese(char)


def _is_chinese(char: str) -> bool:
    return "\u3400" <= char <= "\u9fff" or char == "\u3007"


@lru_cache(maxsize=1)
def _speakers() -> dict[str, tuple[Language, ...]]:
    found: dict[str, tuple[Language, ...]] = {}
    for name in LANGUAGES:
        for word in language(name).vocabulary:
            found[word] = (*found.get(word, ()), language(name))
    return found


@lru_cache(maxsize=1)
def _dated() -> frozenset[str]:
    return frozenset().union(*(language(name).dated for name in LANGUAGES))


def _languages(tokens: list[Token], context: str = "") -> Iterator[Language]:
    """The language of each token: that which most words of its sentence speak for, and of the text where they tie; of a
    phrase, that of the text around it.
    """
    speakers = _speakers()
    english, chinese = language("en"), language("zh")
    sentences: list[tuple[int, dict[Language, float]]] = []
    total: dict[Language, float] = {english: 0.0}
    size, votes = 0, dict[Language, float]()
    for token in tokens:
        size += 1
        speaking = speakers.get(token.word, ())
        for speaker in speaking:
            votes[speaker] = votes.get(speaker, 0.0) + 1 / len(speaking)
        if token.word in _SENTENCE_ENDS:
            sentences.append((size, votes))
            size, votes = 0, dict[Language, float]()
    sentences.append((size, votes))
    for _, votes in sentences:
        for speaker, vote in votes.items():
            if speaker is not chinese:
                total[speaker] = total.get(speaker, 0.0) + vote
    if context:
        around = next(_languages(tokens_of(context)), english)
        sentences = [(len(tokens), {around: 1.0})]
    index = 0
    for size, votes in sentences:
        spoken = max(total, key=lambda speaker: (votes.get(speaker, 0.0), total[speaker]))
        for token in tokens[index : index + size]:
            index += 1
            after = tokens[index].word if token.word.isdecimal() and index < len(tokens) else token.word
            yield chinese if _is_chinese(after[:1]) else spoken


def _orders(spoken: Language, country: str) -> frozenset[Order]:
    """The orders of day and month in digits that the language and the country have."""
    found: set[Order] = {spoken.order} if spoken.order is not None else set()
    if country and country != "CA":
        found.add("mdy" if country in _MONTH_FIRST else "dmy")
    return frozenset(found)


def _country(locale: str) -> str:
    match = _LOCALE.match(locale)
    return match[1].upper() if match else ""


def _moment(said_at: datetime | date | str) -> tuple[datetime, bool]:
    """The local time, and whether more than the day is known."""
    if isinstance(said_at, str):
        try:
            said_at = datetime.fromisoformat(said_at) if len(said_at) > 10 else date.fromisoformat(said_at)
        except ValueError as error:
            raise UsageError(
                f"{said_at!r} is no date: give it as 2026-11-21 or 2026-11-21T18:30:00+01:00."
            ) from error
    if isinstance(said_at, datetime):
        return said_at.replace(tzinfo=None), True
    return datetime.combine(said_at, time()), False
