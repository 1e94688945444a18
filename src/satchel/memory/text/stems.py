"""Words, their stems and how common they are. Apart from `lexicon`, because a hook of another agent has no time to load
numpy.
"""

from __future__ import annotations

import json
import re
import unicodedata
import zlib
from collections.abc import Iterator
from functools import cache

import Stemmer

from satchel.memory.data_files import read_lines, read_text_file

__all__ = ["CAMEL", "RARE", "commonness", "hash_stem", "identifier_parts", "stem_of", "stems_of", "words_of"]

_STOP = frozenset(read_lines("stop_words.txt"))

_WORD = re.compile(r"[^\W_]+")
CAMEL = re.compile(r"[a-z][A-Z]")
_CAMEL_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
# Scripts without spaces between words: Han, Hiragana, Katakana, Thai, Lao, Khmer, Burmese. They are indexed by pairs of
# characters.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+"
)

RARE = 0.002
"""The share of English texts that is assumed to contain a word that isn't in the list of common words."""

_stemmer = Stemmer.Stemmer("porter")
_hashes: dict[str, int] = {}
_MAX_HASHES = 200_000  # About 20 MB. A vocabulary is far smaller; random words must not make the cache grow.


def _plain(text: str) -> str:
    """The text in lower case, without accents."""
    if text.isascii():
        return text.lower()
    folded = unicodedata.normalize("NFKD", text.lower())
    return "".join(char for char in folded if not unicodedata.combining(char))


def identifier_parts(text: str) -> Iterator[str]:
    """The words in identifiers such as `getUserName`."""
    for word in _WORD.findall(text):
        if CAMEL.search(word):
            yield from (part.lower() for part in _CAMEL_PARTS.findall(word))


def words_of(text: str) -> list[str]:
    """The words of a text in lower case, without accents; pairs of characters in scripts without spaces."""
    plain = _plain(text)
    if plain.isascii() or not _UNSPACED.search(plain):
        return _WORD.findall(plain)
    words: list[str] = []
    for word in _WORD.findall(plain):
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


def stem_of(word: str) -> str:
    """The stem of a word in lower case, also of a function word."""
    return str(_stemmer.stemWord(word))


def hash_stem(word: str) -> int:
    """The 32-bit hash of a word's stem; 0 for a function word.

    Two stems have the same hash once in four billion pairs; a search then matches a wrong word.
    """
    known = _hashes.get(word)
    if known is None:
        if len(_hashes) >= _MAX_HASHES:
            _hashes.clear()
        # A "word" of 100 letters is encoded data, which has no stem.
        stem = word if len(word) > 100 else _stemmer.stemWord(word)
        known = 0 if word in _STOP else (zlib.crc32(stem.encode("utf-8", "surrogatepass")) or 1)
        _hashes[word] = known
    return known


@cache
def _common() -> dict[int, float]:
    """The frequencies in `data/common_words.json`, by hash."""
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
    if CAMEL.search(text):
        words = [*words, *identifier_parts(text)]
    return [number for number in map(hash_stem, words) if number]
