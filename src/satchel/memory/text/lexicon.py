"""Turns a text into words and stems for the lexical index, and says how common they are."""

from __future__ import annotations

import json
import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING

import Stemmer

from satchel.memory.data_files import read_lines, read_text_file
from satchel.memory.text.languages import ENGLISH, function_words, language_of, number_of

if TYPE_CHECKING:
    # Imported when used: a hook of another agent, which reads stems alone, has no time to load it.
    import numpy as np

VERSION = 4
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


_STOP = frozenset(read_lines("stop_words.txt"))

_WORD = re.compile(r"[^\W_]+")
_CAMEL = re.compile(r"[a-z][A-Z]")
_CAMEL_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
# Scripts without spaces between words: Han, Hiragana, Katakana, Thai, Lao, Khmer, Burmese. They are indexed by pairs of
# characters.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+"
)

RARE = 0.002
"""The share of English texts that is assumed to contain a word that isn't in the list of common words."""

_LEAST_PART = 5
_LEAST_REST = 3
_MOST_LETTERS = 40
"""A compound is a word of at most so many letters; at least so many are a part of it, and at least so many the rest.
docs/decisions/0124-parts-of-compounds.md has the figures."""

_stemmer = Stemmer.Stemmer("porter")


def plain(text: str) -> str:
    """A text in lower case, without accents."""
    if text.isascii():
        return text.lower()
    folded = unicodedata.normalize("NFKD", text.lower())
    return "".join(char for char in folded if not unicodedata.combining(char))


def _identifier_parts(text: str) -> Iterator[str]:
    for word in _WORD.findall(text):
        if _CAMEL.search(word):
            yield from (part.lower() for part in _CAMEL_PARTS.findall(word))


def words_of(text: str) -> list[str]:
    """The words of a text in lower case, without accents; pairs of characters in scripts without spaces."""
    text = plain(text)
    if text.isascii() or not _UNSPACED.search(text):
        return _WORD.findall(text)
    words: list[str] = []
    for word in _WORD.findall(text):
        at = 0
        for run in _UNSPACED.finditer(word):
            if run.start() > at:
                words.append(word[at : run.start()])
            chars = run.group()
            words.extend([chars] if len(chars) == 1 else (chars[i : i + 2] for i in range(len(chars) - 1)))
            at = run.end()
        if at < len(word):
            words.append(word[at:])
    return words


# About 20 MB. A vocabulary is far smaller; random words must not make the cache grow.
@lru_cache(maxsize=200_000)
def hash_stem(word: str) -> int:
    """The 32-bit hash of a word's stem; 0 for a function word.

    Two stems have the same hash once in four billion pairs; a search then matches a wrong word.
    """
    # A "word" of 100 letters is encoded data, which has no stem.
    stem = word if len(word) > 100 else _stemmer.stemWord(word)
    return 0 if word in _STOP else (zlib.crc32(stem.encode("utf-8", "surrogatepass")) or 1)


@cache
def _common() -> dict[int, float]:
    text = read_text_file("common_words.json")
    return {zlib.crc32(stem.encode()) or 1: share for stem, share in json.loads(text).items()}


def commonness(number: int) -> float:
    """The share of English texts that contain a stem, by its hash.

    The list of the 6,000 most common words was made from the vocabulary of bert-base-uncased (Apache-2.0), which is
    sorted by frequency, and Zipf's law.
    """
    return _common().get(number, RARE)


def stems_of(text: str) -> list[int]:
    """The hashed stems of a text in order, without function words."""
    words = words_of(text)
    if _CAMEL.search(text):
        words = [*words, *_identifier_parts(text)]
    return [number for number in map(hash_stem, words) if number]


def _parts_of(word: str) -> Iterator[str]:
    """Each beginning and each end of a word that may be a word of its own: of "leihgerate" also "gerate"."""
    if word.isalpha() and len(word) <= _MOST_LETTERS:
        for letters in range(_LEAST_PART, len(word) - _LEAST_REST + 1):
            yield from {word[:letters], word[-letters:]} - _joining()


@cache
def _joining() -> frozenset[str]:
    return frozenset(map(plain, function_words()))


@dataclass(frozen=True, slots=True, kw_only=True)
class WordList:
    """The entry of a text in the lexical index.

    Attributes:
        words: The number of words, including function words.
        features: The bit `QUESTION`, and from the bit `LANGUAGE_SHIFT` on the number of the text's language. Earlier
            versions also stored 1, which has no meaning now.
        stems: The hashes of its distinct stems, shape (n,), uint32, ascending.
        counts: How often each stem occurs, shape (n,), uint16, at most 32,767, with the bit `ASKED`; 0 where it only
            begins or ends a longer word, in a text that isn't plainly English.
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
    """Index a text; `extra` are texts by which it can be found too, its tags."""
    import numpy as np  # noqa: PLC0415

    words = words_of(text)
    more = [word for part in extra for word in words_of(part)]
    if _CAMEL.search(text):
        more.extend(_identifier_parts(text))
    counted = Counter(map(hash_stem, words))
    counted.update(map(hash_stem, more))
    language = language_of(text)
    if not counted.pop(0, 0) or language != ENGLISH:
        counted.update(dict.fromkeys((hash_stem(part) for word in set(words) for part in _parts_of(word)), 0))
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
    features |= number_of(language) << LANGUAGE_SHIFT
    return WordList(words=len(words), features=features, stems=stems[order], counts=counts[order])
