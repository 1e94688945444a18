"""Turns a text into words and stems for the lexical index."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from satchel.memory.text.languages import language_of, number_of
from satchel.memory.text.stems import (
    CAMEL,
    RARE,
    commonness,
    hash_stem,
    identifier_parts,
    stem_of,
    stems_of,
    words_of,
)

__all__ = [
    "ASKED",
    "LANGUAGE_SHIFT",
    "QUESTION",
    "RARE",
    "VERSION",
    "WordList",
    "commonness",
    "hash_stem",
    "question_spans",
    "read_text",
    "stem_of",
    "stems_of",
    "words_of",
]

VERSION = 3
"""The version of the stored data; memories with an older one are indexed again."""

QUESTION = 2
"""The bit for a text that ends in a question."""

LANGUAGE_SHIFT = 8
"""Above this bit, features are the number of a language; see `languages.CODES`. The index has bits of its own below."""

ASKED = 0x8000
"""The bit of `WordList.counts` for a stem that occurs in a question."""

# A question mark at the end, before closing quotes and the description of a picture: "How so? [photo: a dog]".
_QUESTION_END = re.compile(r"\?[\"'”’)\s]*(?:\[[^\[\]]{0,400}\]\s*)?$")

_QUESTION_MARKS = ("?", "？", "؟")
_ANY_QUESTION = re.compile("[?？؟]")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？؟])\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class WordList:
    """The entry of a text in the lexical index.

    Attributes:
        words: The number of words, including function words.
        features: The bit `QUESTION`, and from the bit `LANGUAGE_SHIFT` on the number of the text's language. Earlier
            versions also stored 1, which has no meaning now.
        stems: The hashes of its distinct stems, shape (n,), uint32, ascending.
        counts: How often each stem occurs, shape (n,), uint16, at most 32,767, with the bit `ASKED`.
    """

    words: int
    features: int
    stems: np.ndarray[tuple[int], np.dtype[np.uint32]]
    counts: np.ndarray[tuple[int], np.dtype[np.uint16]]

    def to_bytes(self) -> bytes:
        """Both arrays, concatenated, little-endian."""
        return self.stems.astype("<u4").tobytes() + self.counts.astype("<u2").tobytes()


def question_spans(text: str) -> list[tuple[int, int]]:
    """The start and end, in characters, of each sentence that ends in a question mark."""
    if not _ANY_QUESTION.search(text):
        return []
    spans: list[tuple[int, int]] = []
    start = 0
    for end, after in [*(match.span() for match in _SENTENCE_END.finditer(text)), (len(text), len(text))]:
        if text[start:end].rstrip("\"' )”’").endswith(_QUESTION_MARKS):
            spans.append((start, end))
        start = after
    return spans


def read_text(text: str, extra: Iterable[str] = ()) -> WordList:
    """Index a text.

    Args:
        text: The content of a memory.
        extra: Additional texts by which it can be found: its tags.
    """
    words = words_of(text)
    more = [word for part in extra for word in words_of(part)]
    if CAMEL.search(text):
        more.extend(identifier_parts(text))
    counted = Counter(map(hash_stem, words))
    counted.update(map(hash_stem, more))
    counted.pop(0, None)
    stems = np.fromiter(counted.keys(), dtype=np.uint32, count=len(counted))
    counts = np.fromiter(
        (min(count, ASKED - 1) for count in counted.values()), dtype=np.uint16, count=len(counted)
    )
    asked = {hash_stem(word) for start, end in question_spans(text) for word in words_of(text[start:end])}
    if asked:
        counts |= np.where(np.isin(stems, np.fromiter(asked, np.uint32, len(asked))), ASKED, 0).astype(
            np.uint16
        )
    order = np.argsort(stems)
    features = QUESTION if _QUESTION_END.search(text[-500:]) else 0
    features |= number_of(language_of(text)) << LANGUAGE_SHIFT
    return WordList(words=len(words), features=features, stems=stems[order], counts=counts[order])
