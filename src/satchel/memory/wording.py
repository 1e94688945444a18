"""Reads what a statement contains, for comparing it with others: numbers, days, names, people, negations, and whether
it is about a change, the past, or a possibility.

The word lists are English (data/wording.json). They match almost nothing in other languages, where digits,
words and embeddings have to do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from satchel.memory import lexicon
from satchel.memory.data_files import read_lines, read_text_file

__all__ = ["Number", "Statement", "are_opposites", "read_statement"]

_MOST_CHARS = 4_000
"""Only this much of a text is read; statements are shorter."""

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_TOKEN = re.compile(r"\d+(?:[.,:]\d+)*|[^\W\d_]+(?:['’][^\W_]+)*|[£$€]")
_NAME = re.compile(r"(?<![.!?]\s)(?<!^)\b[A-ZÄÖÜÀ-Ý][\w-]*")
_CLOCK = re.compile(r"\b(\d{1,2})(?:[:.](\d\d))?\s*([ap])\.?m\b\.?", re.IGNORECASE)
_PART_OF_HOUR = re.compile(r"\b(half|quarter) (past|to) (\w+)", re.IGNORECASE)
_NEGATION = re.compile(
    rf"\b(?:{'|'.join(read_lines('negations.txt'))}|hardly|barely|\w+n['’]t)\b", re.IGNORECASE
)
_PERFECT = re.compile(
    r"\b(?:(?:has|have|had|hasn['’]t|haven['’]t)|\w+['’](?:ve|s))\s+(?:(?:\w+ly|just|been|also|since)\s+)*"
    r"\w+(?:ed|en|wn|ne|ght|old|eft|ost)\b",
    re.IGNORECASE,
)
_PAST_FORM = re.compile(r"\b\w{2,}ed\b", re.IGNORECASE)
_YEAR = re.compile(r"\bin (?:19|20)\d\d\b", re.IGNORECASE)

_PART_END = re.compile(
    r"[;.!?\u2014\u3002\uff0c\uff1b\u3001]|,(?!\d)|\b(?:and|but|und|aber|y|pero|et|mais)\b|[\u548c\u4f46]",
    re.IGNORECASE,
)

_NO_COUNT = frozenset({"of", "day", "who", "that", "thing"})  # "One of", "one day".
_VERBS = frozenset({"is", "are", "was", "has", "have", "likes", "am"})
_SUBJECT_WORDS = 5


@dataclass(frozen=True, slots=True)
class Number:
    """A number in a statement.

    Attributes:
        value: Normalised: "4 pm" is 16:00, "12,000" and "twelve thousand" are 12000, "half past six" is 6:30.
        unit: The stem of what is counted, "clock", "money", or "".
    """

    value: str
    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """What a text contains.

    Attributes:
        words: In lower case without accents, in order; `stems` are their hashed stems, without function words.
        plain: In lower case with apostrophes, in order; `roots` are their stems, those of function words too.
        is_english: Whether it certainly is English.
        numbers: In order.
        days: Days of the week, months, seasons and times of day.
        names: The capitalised words except the first of each sentence and `days`, in lower case.
        people: Relatives, friends and others, each by one word ("mum" is "mother").
        subject: The one of `people` that its first words are about ("my wife had", "user's sister Ines"), or "".
        negations: The number of words that deny.
        ends: The number of phrases that say that something is over; `begins`, that something is new.
        is_perfect: Whether a verb is in the perfect; `is_past`, in the past.
        is_long_ago: Whether it is about former times: "as a child", "used to".
        is_hypothetical: Whether it is about a possibility: "if", "might", "would".
    """

    text: str
    words: tuple[str, ...]
    stems: tuple[int, ...]
    plain: tuple[str, ...]
    roots: frozenset[str]
    is_english: bool
    numbers: tuple[Number, ...]
    days: frozenset[str]
    names: frozenset[str]
    people: frozenset[str]
    subject: str
    negations: int
    ends: int
    begins: int
    is_perfect: bool
    is_past: bool
    is_long_ago: bool
    is_hypothetical: bool

    @property
    def values(self) -> frozenset[str]:
        """The values of its numbers; 16:00 is 16."""
        return frozenset(number.value.removesuffix(":00") for number in self.numbers)

    @property
    def frame(self) -> frozenset[str]:
        """The stems of its content words, without numbers and words of change: "My phone number is now 555 1234" and
        "My new phone number is 555 9876" have the same.
        """
        apart = _phrases("begins")[0] | _numeral_words()
        return frozenset(
            lexicon.stem_of(word)
            for word in self.words
            if lexicon.hash_stem(word) and word not in apart and not any(char.isdigit() for char in word)
        )

    def has_part_apart_from(self, other: Statement) -> bool:
        """Whether some of it stays true if the other replaces what both are about: of "I'm vegetarian and allergic to
        peanuts", the allergy stays after "I'm no longer vegetarian".
        """
        said = set(other.stems)
        parts = [set(lexicon.stems_of(part)) for part in _PART_END.split(self.text)]
        return any(said & part for part in parts) and any(part and not said & part for part in parts)


@lru_cache(maxsize=256)
def read_statement(text: str) -> Statement:
    """Read a statement. Takes about 0.3 ms; the last 256 are cached."""
    text = text[:_MOST_CHARS].strip()
    plain = tuple(match.lower().replace("’", "'") for match in _WORD.findall(text))
    joined = f" {' '.join(plain)} "
    days = frozenset(_day(word) for word in plain) & _words("days")
    return Statement(
        text=text,
        words=tuple(lexicon.words_of(text)),
        stems=tuple(lexicon.stems_of(text)),
        plain=plain,
        roots=frozenset(map(lexicon.stem_of, plain)),
        is_english=_is_english(plain),
        numbers=tuple(_numbers(text)),
        days=days,
        names=frozenset(word for name in _NAME.findall(text) for word in lexicon.words_of(name))
        - _words("days"),
        people=frozenset(_people()[word] for word in map(_without_genitive, plain) if word in _people()),
        subject=_subject(plain),
        negations=len(_NEGATION.findall(text)),
        ends=_count("ends", plain, joined),
        begins=_count("begins", plain, joined),
        is_perfect=_PERFECT.search(text) is not None,
        is_past=_PAST_FORM.search(text) is not None or _count("past", plain, joined) > 0,
        is_long_ago=_YEAR.search(text) is not None or _count("long_ago", plain, joined) > 0,
        is_hypothetical=_count("hypothetical", plain, joined) > 0,
    )


def are_opposites(one: Set[str], other: Set[str]) -> bool:
    """Whether a word in only one of two sets of stems is the opposite of a word in only the other."""
    opposites = _opposites()
    only_other = other - one
    return any(not opposites.get(word, frozenset()).isdisjoint(only_other) for word in one - other)


@cache
def _lists() -> Mapping[str, Any]:
    lists: Mapping[str, Any] = json.loads(read_text_file("wording.json"))
    return lists


@cache
def _phrases(name: str) -> tuple[frozenset[str], tuple[str, ...]]:
    """The phrases in a list: single words, and longer ones with a blank on both sides."""
    phrases: list[str] = _lists()[name]
    return frozenset(one for one in phrases if " " not in one), tuple(
        f" {one} " for one in phrases if " " in one
    )


def _count(name: str, words: Sequence[str], joined: str) -> int:
    """The number of phrases of a list in a text, given its words and the same joined by blanks."""
    single, longer = _phrases(name)
    return sum(word in single for word in words) + sum(phrase in joined for phrase in longer)


@cache
def _people() -> Mapping[str, str]:
    people: Mapping[str, str] = _lists()["people"]
    return people


@cache
def _opposites() -> Mapping[str, Set[str]]:
    found: dict[str, set[str]] = {}
    for pair in _lists()["antonyms"]:
        one, other = map(lexicon.stem_of, pair)
        found.setdefault(one, set()).add(other)
        found.setdefault(other, set()).add(one)
    return found


@cache
def _numerals(name: str) -> Mapping[str, int]:
    numerals: Mapping[str, int] = _lists()[name]
    return numerals


@cache
def _numeral_words() -> frozenset[str]:
    return frozenset(word for name in ("units", "tens", "ordinals", "multiples") for word in _numerals(name))


@cache
def _words(name: str) -> frozenset[str]:
    return frozenset(_lists()[name])


def _is_english(words: Iterable[str]) -> bool:
    """Whether a text has function words of English and none of other languages."""
    found = {_without_genitive(word) for word in words}
    return bool(found & _words("english")) and not found & _words("other_languages")


def _day(word: str) -> str:
    return word.removesuffix("s") if word.endswith("days") else word


def _without_genitive(word: str) -> str:
    return word.removesuffix("'s")


def _subject(words: Sequence[str]) -> str:
    """The person mentioned in the first words, before a verb; else ""."""
    for word in words[:_SUBJECT_WORDS]:
        person = _people().get(_without_genitive(word))
        if person is not None:
            return person
        if word in _VERBS:
            break
    return ""


def _numbers(text: str) -> list[Number]:
    found: list[Number] = []

    def clock(match: re.Match[str]) -> str:
        hour = int(match[1]) % 12 + (12 if match[3].lower() == "p" else 0)
        found.append(Number(f"{hour}:{match[2] or '00'}", "clock"))
        return " "

    def part_of_hour(match: re.Match[str]) -> str:
        word = match[3].lower()
        hour = int(word) if word.isdigit() else _numerals("units").get(word)
        if hour is None:
            return match[0]
        minute = 30 if match[1].lower() == "half" else 15
        if match[2].lower() == "to":
            hour, minute = hour - 1, 60 - minute
        found.append(Number(f"{hour}:{minute}", "clock"))
        return " "

    tokens = [
        token.lower() for token in _TOKEN.findall(_PART_OF_HOUR.sub(part_of_hour, _CLOCK.sub(clock, text)))
    ]
    at = 0
    while at < len(tokens):
        value, after = _value(tokens, at)
        if value is not None:
            found.append(Number(value, _unit(tokens, at, after, value)))
        at = after
    return found


def _value(tokens: list[str], at: int) -> tuple[str | None, int]:
    """The number that begins at a token, or None, and the index of the token after it."""
    token, after = tokens[at], at + 1
    following = tokens[after] if after < len(tokens) else ""
    if token[0].isdigit():
        if ":" in token:
            return re.sub(r"^0(?=\d)", "", token), after
        plain = re.sub(r"[.,](?=\d{3}\b)", "", token).lstrip("0") or "0"
        if following in ("k", "thousand") and re.fullmatch(r"\d{1,6}", plain):
            return plain + "000", after + 1
        return plain, after + (following in ("st", "nd", "rd", "th"))
    if token == "one":
        return (None if not following or following in _NO_COUNT else "1"), after
    units, tens, ordinals = _numerals("units"), _numerals("tens"), _numerals("ordinals")
    if token in units or token in tens:
        number = units.get(token, 0) + tens.get(token, 0)
        if token in tens and 0 < units.get(following, ordinals.get(following, 0)) < 10:
            digit = units.get(following, ordinals.get(following, 0))
            number, after = number + digit, after + 1
            following = tokens[after] if after < len(tokens) else ""
        if following in ("hundred", "thousand"):
            number, after = number * (100 if following == "hundred" else 1000), after + 1
        return str(number), after
    known = ordinals.get(token, _numerals("multiples").get(token))
    return (None if known is None else str(known)), after


def _unit(tokens: list[str], at: int, after: int, value: str) -> str:
    if ":" in value:
        return "clock"
    following = tokens[after : after + 2]
    if (at and tokens[at - 1] in _words("money")) or any(token in _words("money") for token in following):
        return "money"
    return next(
        (str(stem) for token in following if not token[0].isdigit() and (stem := lexicon.hash_stem(token))),
        "",
    )
