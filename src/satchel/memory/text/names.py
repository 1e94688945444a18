"""The names of people and places in texts, by their capitals and by what stands before them."""

from __future__ import annotations

import calendar
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from satchel.memory.text.languages import language_of

_SENTENCE: Final = re.compile(r"[.!?:;…\n\"“”«»()\[\]*]+\s*")
_WORD: Final = re.compile(r"[^\W_]+(?:-[^\W_]+)*")
_BEFORE_PLACES: Final = frozenset(("in", "near", "i", "nær", "en", "em"))
"""In English, Danish, Spanish and Portuguese."""
_GOING: Final = frozenset(
    ("flew", "flight", "fly", "go", "going", "moved", "moving", "train", "travel", "trip", "way", "went")
)
"""After these, "to" stands before a place; after others it stands before persons as well."""
_ALL_CAPITALS: Final = "de"
"""German writes every noun with a capital: there it says nothing."""
_NO_NAMES: Final = frozenset(
    (*calendar.month_name, *calendar.day_name, *calendar.month_abbr, *calendar.day_abbr, "User", "Assistant")
)
_SUBJECT: Final = re.compile(r"([^\W\d_][\w-]*(?: [^\W\d_][\w-]*)?)(?: \([^)]*\))?: ")
"""What a fact is about, as an extractor writes it: "Anna (sister of User): lives in Graz"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundName:
    """A name, how many of the counted texts have it, and whether a word such as "in" mostly stands before it."""

    name: str
    count: int
    is_place: bool


def names_in(texts: Iterable[tuple[str, bool]]) -> Sequence[FoundName]:
    """The names in some texts, each given with whether it counts.

    A name has a capital within a sentence at least once, or is what a fact is about: at the beginning of a sentence,
    every word has one.
    """
    given = list(texts)
    seen, at_places = Counter[str](), Counter[str]()
    for text, is_counted in given:
        subject = _SUBJECT.match(text) if is_counted else None
        if subject and all(map(_is_name, subject[1].split())):
            seen[subject[1]] += 1
        for before, name in _names(text):
            seen[name] += 1
            going, _, last = before.rpartition(" ")
            at_places[name] += last in _BEFORE_PLACES or (last == "to" and going in _GOING)
    if not seen:
        return ()
    counts = Counter(name for text, is_counted in given if is_counted for name in _known(text, seen))
    return [
        FoundName(name=name, count=count, is_place=2 * at_places[name] > seen[name])
        for name, count in counts.items()
    ]


def _known(text: str, names: Container[str]) -> set[str]:
    """Which of these names a text has. Two words come before one, so that Anna Lund isn't counted as Anna."""
    words, found, at = list(_WORD.finditer(text)), set[str](), 0
    while at < len(words):
        two = text[words[at].start() : words[at + 1].end()] if at + 1 < len(words) else ""
        name = two if two in names else words[at][0]
        if name in names:
            found.add(name)
        at += 2 if name == two else 1
    return found


def _names(text: str) -> Iterator[tuple[str, str]]:
    for sentence in _SENTENCE.split(text) if language_of(text) != _ALL_CAPITALS else ():
        words = list(_WORD.finditer(sentence))
        for at, word in enumerate(words[1:], 1):
            before = " ".join(one[0] for one in words[max(0, at - 2) : at]).lower()
            if not _is_name(word[0]) or (at > 1 and _follows(sentence, words[at - 1], word)):
                continue
            is_long = at + 1 < len(words) and _follows(sentence, word, words[at + 1])
            yield before, sentence[word.start() : words[at + 1].end()] if is_long else word[0]


def _follows(sentence: str, before: re.Match[str], word: re.Match[str]) -> bool:
    """Whether two words are parts of one name, as Anna Lund."""
    return _is_name(before[0]) and _is_name(word[0]) and sentence[before.end() : word.start()] == " "


def _is_name(word: str) -> bool:
    return (
        len(word) > 2
        and word[0].isupper()
        and not word.isupper()
        and not {word, word.removesuffix("s")} & _NO_NAMES
    )
