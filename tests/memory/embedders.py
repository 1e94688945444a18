"""Embedders that misbehave, and one that knows meanings."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence

import numpy as np

from satchel.errors import EmbedderError
from satchel.models.embedding import HashingEmbedder
from satchel.models.port import EmbedderInfo, EmbedRole, TokenVectors, Vectors


class Counting(HashingEmbedder):
    """Counts the texts that it embeds."""

    def __init__(self, id: str = "counting") -> None:
        super().__init__()
        self.documents: list[str] = []
        self.queries: list[str] = []
        self.closed = False
        self._info = EmbedderInfo(id=id, dimension=512, max_tokens=4096, threshold=0.3)

    @property
    def info(self) -> EmbedderInfo:
        return self._info

    async def embed(self, texts: Sequence[str], role: EmbedRole) -> Vectors:
        (self.documents if role == "document" else self.queries).extend(texts)
        return await super().embed(texts, role)

    async def aclose(self) -> None:
        self.closed = True
        await super().aclose()


class Down(Counting):
    """Does not serve until `up` is set."""

    up = False

    async def embed(self, texts: Sequence[str], role: EmbedRole) -> Vectors:
        if not self.up:
            raise EmbedderError("The embedding service does not answer. Start it.")
        return await super().embed(texts, role)


class Broken(Counting):
    """Answers with what it was made with, whatever is asked."""

    def __init__(self, answer: np.ndarray[tuple[int, int], np.dtype[np.float32]]) -> None:
        super().__init__()
        self.answer = answer

    async def embed(self, texts: Sequence[str], role: EmbedRole) -> Vectors:
        return self.answer


class Topical(Counting):
    """Knows which words mean the same: each group of them is one direction."""

    GROUPS = (
        {"wifi", "network", "router", "internet"},
        {"allergic", "shellfish", "seafood", "cook", "dinner", "shrimp"},
        {"database", "postgresql", "mysql"},
        {"cat", "pet", "pixel"},
    )

    async def embed(self, texts: Sequence[str], role: EmbedRole) -> Vectors:
        plain = await super().embed(texts, role)
        rows = np.zeros((len(texts), 512 + len(self.GROUPS)), np.float32)
        rows[:, : plain.shape[1]] = plain * 0.3
        for row, text in zip(rows, texts, strict=True):
            words = set(text.lower().replace(".", " ").replace("?", " ").split())
            for place, group in enumerate(self.GROUPS):
                if words & group:
                    row[512 + place] = 1.0
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        return rows

    @property
    def info(self) -> EmbedderInfo:
        return EmbedderInfo(id="topical", dimension=516, max_tokens=4096, threshold=0.5)


class Wordy(Counting):
    """Gives a vector for each word as well: its own direction, wherever it stands."""

    def __init__(self, id: str = "wordy") -> None:
        super().__init__(id)
        self._info = EmbedderInfo(id=id, dimension=512, max_tokens=4096, threshold=0.3, token_dimension=64)
        self.token_calls = 0

    async def embed_tokens(
        self, texts: Sequence[str], role: EmbedRole
    ) -> tuple[Vectors, Sequence[TokenVectors]]:
        self.token_calls += 1
        return await self.embed(texts, role), [tokens_of(text) for text in texts]


def tokens_of(text: str) -> TokenVectors:
    """The words and marks of a text, each in the direction that its letters give."""
    spans = [match.span() for match in re.finditer(r"\w+|[^\w\s]", text)]
    rows = np.zeros((len(spans), 64), np.float32)
    for row, (start, end) in zip(rows, spans, strict=True):
        seed = zlib.crc32(text[start:end].lower().encode("utf-8", "surrogatepass"))
        row[:] = np.random.default_rng(seed).standard_normal(64)
        row /= np.linalg.norm(row)
    return TokenVectors(vectors=rows, spans=np.array(spans, np.int32).reshape(-1, 2))
