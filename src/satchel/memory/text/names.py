"""The names of people and places in texts, by their capitals."""

from __future__ import annotations

import calendar
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from typing import Final

from satchel.memory.text.languages import language_of

_SENTENCE: Final = re.compile(r"[.!?:;…\n\"“”«»()\[\]*]+\s*")
_WORD: Final = re.compile(r"[^\W_]+(?:-[^\W_]+)*")
_ALL_CAPITALS: Final = "de"
"""German writes every noun with a capital: there it says nothing."""
_NO_NAMES: Final = frozenset(
    (*calendar.month_name, *calendar.day_name, *calendar.month_abbr, *calendar.day_abbr, "User", "Assistant")
)
_SUBJECT: Final = re.compile(r"([^\W\d_][\w-]*(?: [^\W\d_][\w-]*)?)(?: \([^)]*\))?: ")
"""What a fact is about, as an extractor writes it: "Anna (sister of User): lives in Graz"."""


def names_in(texts: Iterable[tuple[str, bool]]) -> Counter[str]:
    """The names in some texts, each given with whether it counts, and how many of those have it.

    A name has a capital within a sentence at least once, or is what a fact is about: at the beginning of a sentence,
    every word has one.
    """
    given = list(texts)
    seen: set[str] = set()
    for text, is_counted in given:
        subject = _SUBJECT.match(text) if is_counted else None
        if subject and all(map(_is_name, subject[1].split())):
            seen.add(subject[1])
        seen.update(_names(text))
    return Counter(name for text, is_counted in given if is_counted for name in _known(text, seen))


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


def _names(text: str) -> Iterator[str]:
    for sentence in _SENTENCE.split(text) if language_of(text) != _ALL_CAPITALS else ():
        words = list(_WORD.finditer(sentence))
        for at, word in enumerate(words[1:], 1):
            if not _is_name(word[0]) or (at > 1 and _follows(sentence, words[at - 1], word)):
                continue
            is_long = at + 1 < len(words) and _follows(sentence, word, words[at + 1])
            yield sentence[word.start() : words[at + 1].end()] if is_long else word[0]


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
