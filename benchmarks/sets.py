"""What the benchmarks of quality share: the sets in a folder, what was fitted to which, intervals, kept embeddings.

The folder holds `NAME.json` (a set for `retrieval.py`) and `life-*/*.json`, one person each. Public
sets stay outside the project, so every program here takes the folder as an argument.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from satchel.clock import SystemClock
from satchel.models.embedding import open_embedder
from satchel.models.port import Embedder, EmbedderInfo, EmbedRole, TokenEmbedder, TokenVectors, Vectors

HERE = Path(__file__).parent
FITTED = HERE / "data" / "fitted.json"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "satchel-benchmarks"
RESAMPLES = 2_000
"""The ends of a 95 % interval then move by less than .003 from one seed to another on 100 questions."""

Refit = Callable[[str, str], AbstractContextManager[object]]


def read(path: Path) -> Any:
    """The content of a JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))


def fitted_on(recipe: str) -> frozenset[str]:
    """The sets, and persons as "SET/PERSON", that a recipe was fitted to: "search", "surfacing" or "statements".

    data/fitted.json is the record; whoever fits weights anew changes it in the same commit.
    """
    return frozenset(read(FITTED)[recipe])


def is_fitted(recipe: str, name: str, part: str = "") -> bool:
    """Whether a recipe has seen a set, or one conversation or person of it."""
    sets = fitted_on(recipe)
    return name in sets or (bool(part) and f"{name}/{part}" in sets)


def refit_from(path: Path | None) -> Refit | None:
    """The function `left_out(set, part)` of a Python file: a context in which the recipe has not seen that part.

    With it a figure is left out even where the shipped recipe was fitted to the set.
    """
    if path is None:
        return None
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} is no Python file.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    refit: Refit = module.left_out
    return refit


def without(refit: Refit | None, name: str, part: str = "") -> AbstractContextManager[object]:
    """The context to measure a part of a set in."""
    return nullcontext() if refit is None else refit(name, part)


def interval(
    rows: Sequence[float], clusters: Sequence[str] | None = None, *, of: Sequence[float] | None = None
) -> tuple[float, float] | None:
    """The 95 % bootstrap interval of a mean, or of a share.

    Args:
        rows: One figure for each question.
        clusters: The conversation of each; whole conversations are drawn then, as questions about one talk resemble
            each other. None draws questions.
        of: What each figure is a part of, for a share: the sum of `rows` over the sum of these. None is 1 each.

    Returns:
        Its ends; None where there is nothing to draw from: fewer than two questions or conversations.
    """
    values = np.asarray(rows, dtype=float)
    names = list(clusters) if clusters is not None else [str(at) for at in range(len(values))]
    index = {name: at for at, name in enumerate(dict.fromkeys(names))}
    if len(index) < 2:
        return None
    cluster = np.array([index[name] for name in names])
    sums = np.bincount(cluster, weights=values, minlength=len(index))
    counts = np.bincount(cluster, weights=of, minlength=len(index))
    drawn = np.random.default_rng(0).integers(len(index), size=(RESAMPLES, len(index)))
    parts, wholes = sums[drawn].sum(axis=1), counts[drawn].sum(axis=1)
    low, high = np.quantile(parts[wholes > 0] / wholes[wholes > 0], (0.025, 0.975))
    return round(float(low), 4), round(float(high), 4)


@dataclass(frozen=True, slots=True)
class _Kept:
    """What the cache has of one text."""

    vector: Vectors
    tokens: TokenVectors | None


class CachedEmbedder(TokenEmbedder):
    """An embedder whose answers are kept in a file, by a hash of model and text: a second run embeds nothing.

    Token vectors are kept and given in half precision, in the first run too, so that two runs have the same figures.
    """

    def __init__(self, inner: TokenEmbedder, folder: Path = CACHE, second: Embedder | None = None) -> None:
        """Open the file, or make it; `second` is for languages that this one doesn't read."""
        folder.mkdir(parents=True, exist_ok=True)
        self.second = second
        self._inner = inner
        self._kept = sqlite3.connect(folder / "embeddings.db", timeout=60, check_same_thread=False)
        self._kept.execute("PRAGMA journal_mode=WAL")
        self._kept.execute(
            "CREATE TABLE IF NOT EXISTS kept (key BLOB PRIMARY KEY, vector BLOB, tokens BLOB, spans BLOB)"
        )

    @property
    def info(self) -> EmbedderInfo:
        """The inner embedder's record."""
        return self._inner.info

    async def embed(self, texts: Sequence[str], role: EmbedRole) -> Vectors:
        """Embed texts; see `Embedder.embed`."""
        found = self._look_up(texts, role, with_tokens=False)
        if None in found:  # With tokens, so that no text passes the model twice.
            return (await self.embed_tokens(texts, role))[0]
        return _stacked(found, self.info)

    async def embed_tokens(
        self, texts: Sequence[str], role: EmbedRole
    ) -> tuple[Vectors, Sequence[TokenVectors]]:
        """Embed texts and their tokens; see `TokenEmbedder.embed_tokens`."""
        found = self._look_up(texts, role, with_tokens=True)
        new = [at for at, kept in enumerate(found) if kept is None]
        if new:
            vectors, tokens = await self._inner.embed_tokens([texts[at] for at in new], role)
            for at, vector, own in zip(new, vectors, tokens, strict=True):
                half = own.vectors.astype(np.float16).astype(np.float32)
                found[at] = _Kept(vector, TokenVectors(vectors=half, spans=own.spans))
            self._keep(role, {texts[at]: found[at] for at in new})
        return _stacked(found, self.info), [kept.tokens for kept in found if kept and kept.tokens]

    async def aclose(self) -> None:
        """Close both."""
        self._kept.close()
        await self._inner.aclose()

    def _key(self, text: str, role: EmbedRole) -> bytes:
        return hashlib.sha256(f"{self.info.id}\n{role}\n{text}".encode("utf-8", "surrogatepass")).digest()

    def _look_up(self, texts: Sequence[str], role: EmbedRole, *, with_tokens: bool) -> list[_Kept | None]:
        return [self._one(self._key(text, role), with_tokens=with_tokens) for text in texts]

    def _one(self, key: bytes, *, with_tokens: bool) -> _Kept | None:
        row = self._kept.execute("SELECT vector, tokens, spans FROM kept WHERE key = ?", (key,)).fetchone()
        if row is None or (with_tokens and row[1] is None):
            return None
        vector = np.frombuffer(row[0], dtype="<f4")
        if not with_tokens:
            return _Kept(vector, None)
        half = np.frombuffer(row[1], dtype="<f2").reshape(-1, self.info.token_dimension)
        spans = np.frombuffer(row[2], dtype="<i4").reshape(-1, 2)
        return _Kept(vector, TokenVectors(vectors=half.astype(np.float32), spans=spans))

    def _keep(self, role: EmbedRole, made: dict[str, _Kept | None]) -> None:
        with self._kept:
            self._kept.executemany(
                "INSERT OR REPLACE INTO kept VALUES (?, ?, ?, ?)",
                [
                    (
                        self._key(text, role),
                        kept.vector.astype("<f4").tobytes(),
                        None if kept.tokens is None else kept.tokens.vectors.astype("<f2").tobytes(),
                        None if kept.tokens is None else kept.tokens.spans.astype("<i4").tobytes(),
                    )
                    for text, kept in made.items()
                    if kept is not None
                ],
            )


def _stacked(found: Iterable[_Kept | None], info: EmbedderInfo) -> Vectors:
    rows = [kept.vector for kept in found if kept is not None]
    return np.stack(rows) if rows else np.zeros((0, info.dimension), np.float32)


@asynccontextmanager
async def closing(embedder: Embedder) -> AsyncIterator[Embedder]:
    """Close an embedder at the end."""
    try:
        yield embedder
    finally:
        await embedder.aclose()


def cached_embedder(name: str, *, home: Path | None, folder: Path = CACHE, second: str = "none") -> Embedder:
    """An embedder by its name in the settings, with kept answers if it gives token vectors; those have the second
    embedder beside them, see `second_of`.
    """
    home = home or Path(os.environ.get("SATCHEL_HOME") or Path.home() / ".satchel")

    def opened(name: str) -> Embedder:
        return open_embedder(name, home=home, environ=os.environ, clock=SystemClock())

    inner = opened(name)
    if not isinstance(inner, TokenEmbedder):
        return inner
    return CachedEmbedder(inner, folder, second=None if second == "none" else opened(second))


def second_of(embedder: Embedder) -> Embedder | str:
    """The embedder for other languages that stands beside one, as `Memory.open` takes it."""
    found = embedder.second if isinstance(embedder, CachedEmbedder) else None
    return "none" if found is None else found
