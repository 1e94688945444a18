"""The pieces of words that SentencePiece's unigram models were trained with: normalising and segmenting."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import numpy as np

_UNKNOWN: Final = 0
_PENALTY: Final = 10.0
"""How much less than the rarest piece an unknown character counts."""
_BLANKS: Final = re.compile(" {2,}")
_BLANK: Final = "\u2581"


class Unigram:
    """Splits texts into the pieces whose product of probabilities is largest."""

    def __init__(self, pieces: Sequence[str], scores: Sequence[float], charsmap: bytes) -> None:
        """Take the tables of a model.

        Args:
            pieces: By number; the first is what stands for unknown characters.
            scores: The logarithm of each piece's probability; 0 for a mark, which no text has.
            charsmap: What characters are replaced by, as `sp.model` has it: the bytes of a trie of darts-clone after
                their number, then the replacements, each with a zero byte at its end.

        Raises:
            ValueError: One of the tables is damaged.
        """
        self._numbers = {
            piece: number
            for number, (piece, score) in enumerate(zip(pieces, scores, strict=True))
            if score < 0
        }
        self._scores = scores
        self._longest = max(map(len, self._numbers))
        self._unknown_score = min(scores) - _PENALTY
        size = int.from_bytes(charsmap[:4], "little")
        self._trie: list[int] = np.frombuffer(charsmap[4 : 4 + size], "<u4").tolist()
        self._replacements = charsmap[4 + size :]
        if not self._trie or not self._replacements.endswith(b"\0"):
            raise ValueError("the table of characters is damaged")

    def encode(self, text: str) -> list[int]:
        """The number of each piece. Unknown characters side by side are one."""
        text = _BLANKS.sub(" ", self._normalised(text)).strip(" ")
        if not text:
            return []
        text = _BLANK + text.replace(" ", _BLANK)
        best = [0.0] + [-float("inf")] * len(text)
        last = [(0, _UNKNOWN)] * (len(text) + 1)
        scores, number_of = self._scores, self._numbers.get
        for start, so_far in enumerate(best):
            # An unknown character is worse than whatever the model knows.
            if start < len(text) and so_far + self._unknown_score > best[start + 1]:
                best[start + 1], last[start + 1] = so_far + self._unknown_score, (start, _UNKNOWN)
            for end in range(start + 1, min(start + self._longest, len(text)) + 1):
                number = number_of(text[start:end])
                if number is not None and so_far + scores[number] > best[end]:
                    best[end], last[end] = so_far + scores[number], (start, number)
        numbers: list[int] = []
        end = len(text)
        while end:
            end, number = last[end]
            if number != _UNKNOWN or not numbers or numbers[-1] != _UNKNOWN:
                numbers.append(number)
        return numbers[::-1]

    def _normalised(self, text: str) -> str:
        data = text.encode()
        parts: list[bytes] = []
        at = kept = 0
        while at < len(data):
            replacement, end = self._replacement(data, at)
            if replacement is not None:
                parts += (data[kept:at], replacement)
                kept = end
            at = end
        return b"".join([*parts, data[kept:]]).decode()

    def _replacement(self, data: bytes, at: int) -> tuple[bytes | None, int]:
        """What the longest sequence that begins here is replaced by, or None; and where what follows begins."""
        trie = self._trie
        found: int | None = None
        end = at
        node = _child(0, trie[0])
        for place in range(at, len(data)):
            node ^= data[place]
            unit = trie[node]
            if unit & 0x800000FF != data[place]:
                break
            node = _child(node, unit)
            if unit >> 8 & 1:
                found, end = trie[node] & 0x7FFFFFFF, place + 1
        if found is not None:
            return self._replacements[found : self._replacements.index(b"\0", found)], end
        end = at + 1
        while end < len(data) and data[end] & 0xC0 == 0x80:
            end += 1
        return None, end


def _child(node: int, unit: int) -> int:
    """Where a node's children are; their places differ from it by their byte."""
    return node ^ (unit >> 10 << ((unit & 1 << 9) >> 6))
