"""An embedder without a model that hashes words, for tests and for machines without an embedding model."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING

from satchel.models.embedding.embedder import BaseEmbedder
from satchel.models.embedding.records import HASHING
from satchel.models.port import EmbedRole

if TYPE_CHECKING:
    from satchel.models.port import Vectors

_WORD = re.compile(r"\w+")
_PIECE_WEIGHT = 0.3
"""The weight of a three-letter piece, where the word has 1.0. It brings "network" and "networking" close together, but
not "cat" and "dog"."""
_MAX_CHARS = 65_536
"""Texts are truncated to this length before words are counted; 4,096 words of average length are shorter."""


class HashingEmbedder(BaseEmbedder):
    """Measures how many words two texts share, not their meaning. The result is identical on every machine."""

    def __init__(self) -> None:
        super().__init__(HASHING)

    async def embed(self, texts: Sequence[str], role: EmbedRole) -> Vectors:
        """Embed texts; see `Embedder.embed`. A text without words has its own direction."""
        return await self._blocking(lambda: _embed(texts))


def _embed(texts: Sequence[str]) -> Vectors:
    import numpy as np  # noqa: PLC0415  - takes 0.1 s, and only embedding needs it

    rows = np.zeros((len(texts), HASHING.dimension), np.float32)
    for row, text in zip(rows, texts, strict=True):
        words = [match[0] for match in _WORD.finditer(text[:_MAX_CHARS].casefold())]
        weights: dict[str, float] = defaultdict(float)
        for word, count in Counter(words[: HASHING.max_tokens]).items():
            # A word that occurs ten times is not ten times as important.
            weight = 1 + math.log(count)
            weights[word] += weight
            for piece in _pieces(word):
                weights[piece] += weight * _PIECE_WEIGHT
        # Sorted, so that the order of the words doesn't change the floating-point sums.
        for feature, weight in sorted(weights.items()):
            place, sign = _place(feature)
            row[place] += sign * weight
        length = math.sqrt(float(np.dot(row, row)))
        if length == 0:  # no word, or words that cancel out
            row[0], length = 1.0, 1.0
        row /= np.float32(length)
    return rows


def _pieces(word: str) -> Iterator[str]:
    """Three-letter pieces, with marks at both ends of the word; a leading `#` distinguishes them from words."""
    marked = f"<{word}>"
    for start in range(len(marked) - 2):
        yield "#" + marked[start : start + 3]


@lru_cache(32_768)
def _place(feature: str) -> tuple[int, int]:
    """The position (never 0) and the sign of a feature; with random signs, collisions cancel out on average."""
    digest = int.from_bytes(blake2b(feature.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
    return 1 + (digest >> 1) % (HASHING.dimension - 1), 1 if digest & 1 else -1
