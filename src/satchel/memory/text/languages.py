"""Which language a text is written in, as far as it matters for what reads it: told by its script, and in Latin script
by its function words.

docs/decisions/0036-two-embedders.md compares it with language identifiers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping
from functools import cache
from typing import Final

from satchel.memory.data_files import read_lines

ENGLISH: Final = "en"
"""Also what is assumed where nothing tells: a name, a number, "OK"."""

CODES: Final = (
    ENGLISH,
    *["de", "es", "fr", "it", "nl", "pl", "pt", "tr", "ar", "ja", "ko", "ru", "th", "zh"],
    "other",
)
"""The languages that are told apart. The place of each in this list is stored with every memory and must never change;
"other" is written in another script."""

_LOOKED_AT_CHARS = 1_000
_WORD = re.compile(r"[^\W\d_]+'?")

# What only some languages have. One letter may be a name's, so it counts less than a word.
_LETTERS: Final[Mapping[str, str]] = {
    **dict.fromkeys("äöüß", "de"),
    **dict.fromkeys("ñ¿¡", "es"),
    **dict.fromkeys("èêœùû", "fr"),
    **dict.fromkeys("ìò", "it"),
    **dict.fromkeys("łąęśżźćń", "pl"),
    **dict.fromkeys("ãõ", "pt"),
    **dict.fromkeys("ğşı", "tr"),
}
_LETTER_VOTE = 0.5
_LEAST_VOTES = 0.6
"""Fewer say nothing: what then is the likeliest is English."""
_LEAD = 1.3
"""How many times the votes of English another language needs: English has few words that are its own, and borrows."""

# The first and the last character of blocks, and the language. Han counts as Chinese where no kana is beside it.
_SCRIPTS: Final = (
    ("\u0400", "\u052f", "ru"),
    ("\u0600", "\u06ff", "ar"),
    ("\u0750", "\u077f", "ar"),
    ("\u0e00", "\u0e7f", "th"),
    ("\u1100", "\u11ff", "ko"),
    ("\u3040", "\u30ff", "ja"),
    ("\u3400", "\u9fff", "zh"),
    ("\uac00", "\ud7af", "ko"),
    ("\uf900", "\ufaff", "zh"),
    ("\U00020000", "\U0003ffff", "zh"),
)
_SYLLABIC = frozenset({"ja", "ko", "zh"})
_CHARS_A_SYLLABLE = 2
"""A character of these scripts says as much as two letters or more."""
_KANA_SHARE = 5
"""Japanese has at least one kana for so many Han characters."""


def language_of(text: str) -> str:
    """The language of a text, one of `CODES`. Its first 1,000 characters are looked at, which takes 0.05 ms.

    Of two languages in one text, the one with more letters counts.
    """
    text = text[:_LOOKED_AT_CHARS]
    if not text.isascii():
        counts = _scripts(text)
        if counts:
            most = max(counts, key=lambda script: counts[script])
            if most in ("ja", "zh"):
                return "ja" if counts["ja"] * _KANA_SHARE >= counts["zh"] else "zh"
            if most != "latin":
                return most
    return _by_words(text.lower().replace("’", "'"))


def number_of(language: str) -> int:
    """The number of a language that is stored with memories."""
    return CODES.index(language)


def numbers_of(languages: Collection[str]) -> list[int]:
    """The numbers of those of these languages that are told apart."""
    return [number for number, code in enumerate(CODES) if code in languages]


def _scripts(text: str) -> Counter[str]:
    """How many letters of each script there are, those of syllables and words counted more than once."""
    counts: Counter[str] = Counter()
    for char in text:
        if char < "\u0250":
            counts["latin"] += char.isalpha()
            continue
        script = next((name for first, last, name in _SCRIPTS if first <= char <= last), None)
        if script is not None:
            counts[script] += _CHARS_A_SYLLABLE if script in _SYLLABIC else 1
        elif char.isalpha():
            counts["latin" if "\u1e00" <= char <= "\u1eff" else "other"] += 1
    return +counts


@cache
def _voters() -> Mapping[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for line in read_lines("function_words.txt"):
        code, *words = line.split()
        for word in words:
            found.setdefault(word, []).append(code)
    return {word: tuple(codes) for word, codes in found.items()}


@cache
def function_words(language: str = "") -> Collection[str]:
    """Words that only join others, of a language, or of all that are known here."""
    return frozenset(word for word, codes in _voters().items() if not language or language in codes)


def _by_words(text: str) -> str:
    votes: dict[str, float] = {ENGLISH: 0.0}
    voters = _voters()
    for word in _WORD.findall(text):
        codes = voters.get(word)
        if codes is None:
            continue
        for code in codes:
            votes[code] = votes.get(code, 0.0) + 1 / len(codes)
    if not text.isascii():
        for char in set(text) & _LETTERS.keys():
            votes[_LETTERS[char]] = votes.get(_LETTERS[char], 0.0) + _LETTER_VOTE
    best = max(votes, key=lambda code: (votes[code], code == ENGLISH))
    return best if votes[best] >= max(_LEAST_VOTES, _LEAD * votes[ENGLISH]) else ENGLISH
