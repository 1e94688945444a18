"""An embedder without a model: hashed words. For tests, and for machines that can have nothing else."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

from satchel.errors import EmbedderError
from satchel.models.embedding.records import HASHING
from satchel.models.embedding.worker import Worker
from satchel.models.port import Embedder, EmbedderInfo, EmbedRole

if TYPE_CHECKING:
    from satchel.models.port import Vectors

__all__ = ["HashingEmbedder"]

_WORD = re.compile(r"\w+")
_PIECE_WEIGHT = 0.3
"""Of one three-letter piece beside 1.0 for its word: "network" and "networking" come near, "cat" and "dog" do
not."""
_MAX_CHARS = 65_536
"""A text is cut here before its words are counted; 4,096 words of common length are shorter."""


class HashingEmbedder(Embedder):
    """Says how many words two texts share, nothing of what they mean; the same bits on every machine."""

    def __init__(self) -> None:
        """It needs no weights and opens nothing."""
        self._worker = Worker()
        self._closed = False

    @property
    def info(self) -> EmbedderInfo:
        """Its record."""
        return HASHING

    async def embed(self, texts: Sequence[str], role: EmbedRole) -> Vectors:
        """Embed; see `Embedder.embed`. A text without a word has a direction of its own."""
        if self._closed:
            raise EmbedderError("This embedder was closed; open another one.")
        return await self._worker.run(lambda: _embed(texts))

    def count_tokens(self, text: str) -> int:
        """Words of the text, before it is cut."""
        return sum(1 for _ in _WORD.finditer(text))

    async def aclose(self) -> None:
        """Refuse further calls; there is nothing to give back."""
        self._closed = True


def _embed(texts: Sequence[str]) -> Vectors:
    import numpy as np  # noqa: PLC0415  - 0.1 s; only who embeds needs it

    rows = np.zeros((len(texts), HASHING.dimension), np.float32)
    for row, text in zip(rows, texts, strict=True):
        words = [match[0] for match in _WORD.finditer(text[:_MAX_CHARS].casefold())]
        weights: dict[str, float] = defaultdict(float)
        for word, count in Counter(words[: HASHING.max_tokens]).items():
            # A word said ten times is not ten times what the text is about.
            weight = 1 + math.log(count)
            weights[word] += weight
            for piece in _pieces(word):
                weights[piece] += weight * _PIECE_WEIGHT
        # Sorted, so that the order in which words come changes no bit of the sums.
        for feature, weight in sorted(weights.items()):
            place, sign = _place(feature)
            row[place] += sign * weight
        length = math.sqrt(float(np.dot(row, row)))
        if length == 0:  # no word, or words that cancel out
            row[0], length = 1.0, 1.0
        row /= np.float32(length)
    return rows


def _pieces(word: str) -> Iterator[str]:
    """Three-letter pieces with the word's ends marked; a leading `#` tells them apart from words."""
    marked = f"<{word}>"
    for start in range(len(marked) - 2):
        yield "#" + marked[start : start + 3]


def _place(feature: str) -> tuple[int, int]:
    """Where a feature is counted, never at 0, and with which sign: collisions cancel on average."""
    digest = int.from_bytes(blake2b(feature.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
    return 1 + (digest >> 1) % (HASHING.dimension - 1), 1 if digest & 1 else -1
