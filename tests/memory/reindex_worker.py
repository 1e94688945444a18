"""Goes over to another embedder until it is killed: its main program is forked for each round."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from satchel.memory import Memory
from satchel.models.embedding import HashingEmbedder
from satchel.models.port import EmbedderInfo, EmbedRole, Vectors
from tests.killing import serve, tell


class Turned(HashingEmbedder):
    """One of many embedders: each has its name, and vectors that are none of another's."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    @property
    def info(self) -> EmbedderInfo:
        return EmbedderInfo(id=f"turned-{self._number}", dimension=512, max_tokens=4096, threshold=0.3)

    async def embed(self, texts: Sequence[str], role: EmbedRole) -> Vectors:
        return np.roll(await super().embed(texts, role), self._number, axis=1)


async def work(path: str, embedder: int, drop_old: bool) -> None:
    """Make all vectors anew, and tell how far it is."""
    async with Memory.open(Path(path), embedder=Turned(embedder), back_fill=False) as memory:
        tell("open")
        done = await memory.reindex(drop_old=drop_old, progress=lambda done, _: tell("embedded", done))
        tell("in use" if done.in_use else "not in use")


if __name__ == "__main__":
    serve(work)
