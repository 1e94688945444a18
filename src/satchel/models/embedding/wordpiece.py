"""The pieces of words that all-MiniLM-L6-v2 was trained with: BERT's, without case and accents."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

_MOST_WORD_CHARS: Final = 100
_WORD: Final = re.compile("[^ ]+")
_IDEOGRAPH: Final = re.compile(
    "[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002b81f\U0002b920-\U0002ceaf"
    "\U0002f800-\U0002fa1f]"
)


class WordPiece:
    """Splits texts into pieces, and says where in the text each is."""

    def __init__(self, vocabulary: Mapping[str, int]) -> None:
        """Take the number of each piece; one that goes on with a word begins with "##".

        Raises:
            KeyError: The marks of a text's beginning and end, or of an unknown word, are missing.
        """
        self._vocabulary = vocabulary
        self._begin, self._end, self._unknown = (vocabulary[mark] for mark in ("[CLS]", "[SEP]", "[UNK]"))
        self._pieces = lru_cache(maxsize=20_000)(self._split)

    @classmethod
    def of_file(cls, path: Path) -> WordPiece:
        """Read a `tokenizer.json`.

        Raises:
            OSError, ValueError, KeyError, TypeError: It can't be read, or it is something else.
        """
        return cls(json.loads(path.read_bytes())["model"]["vocab"])

    def encode(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """The number of each piece, and the span of characters that it came from. Both marks have the span (0, 0)."""
        ids, spans = [self._begin], [(0, 0)]
        shapes = [_SHAPES[char] for char in text]
        places = [place for place, shape in enumerate(shapes) for _ in shape]
        for word in _WORD.finditer("".join(shapes)):
            begin = word.start()
            for number, start, end in self._pieces(word[0]):
                ids.append(number)
                spans.append((places[begin + start], places[begin + end - 1] + 1))
        ids.append(self._end)
        spans.append((0, 0))
        return ids, spans

    def _split(self, word: str) -> tuple[tuple[int, int, int], ...]:
        """The longest piece at the beginning, then the longest of the rest: each as number, start and end."""
        found: list[tuple[int, int, int]] = []
        start = 0
        while start < len(word) <= _MOST_WORD_CHARS:
            for end in range(len(word), start, -1):
                number = self._vocabulary.get(("##" if start else "") + word[start:end])
                if number is not None:
                    found.append((number, start, end))
                    start = end
                    break
            else:
                break
        return tuple(found) if start == len(word) else ((self._unknown, 0, len(word)),)


class _Shapes(dict[str, str]):
    """What a character becomes: nothing, a blank, letters without case and accents, or a word between blanks."""

    def __missing__(self, char: str) -> str:
        self[char] = shape = self._shape(char)
        return shape

    @staticmethod
    def _shape(char: str) -> str:
        if char.isspace() and (char in "\t\n\r" or unicodedata.category(char)[0] == "Z"):
            return " "
        if char == "\ufffd" or unicodedata.category(char) in ("Cc", "Cf", "Co", "Cs"):
            return ""
        parts = [part for part in unicodedata.normalize("NFD", char) if unicodedata.category(part) != "Mn"]
        text = "".join(f" {part} " if _stands_alone(part) else part.lower() for part in parts)
        return f" {text} " if _IDEOGRAPH.match(char) else text


def _stands_alone(char: str) -> bool:
    """Whether it is punctuation; in ASCII, whatever is neither letter nor number."""
    return unicodedata.category(char)[0] == "P" or (char.isascii() and not char.isalnum())


_SHAPES: Final = _Shapes()
