"""Models of the library fastembed, for users who have installed it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from satchel.errors import EmbedderError
from satchel.messages import clean_text
from satchel.models.embedding.records import record_of
from satchel.models.embedding.rows import unit_rows
from satchel.models.embedding.worker import Worker
from satchel.models.port import Embedder, EmbedderInfo, EmbedRole

if TYPE_CHECKING:
    from satchel.models.port import Vectors

__all__ = ["FastembedEmbedder"]

_TEXTS_AT_ONCE: Final = 16
_CHARS_A_TOKEN: Final = 32
"""Texts are truncated to this many characters per token. No language needs as many, so tokenising more would be
wasted."""


class FastembedEmbedder(Embedder):
    """A model that fastembed fetches and runs; it is loaded on the first call."""

    def __init__(self, model: str, *, home: Path, threads: int = 1) -> None:
        """Store the parameters.

        Args:
            model: The name in fastembed ("BAAI/bge-small-en-v1.5").
            home: SATCHEL_HOME; the model is stored in its folder `models`.
            threads: The number of threads of one run.

        Raises:
            EmbedderError: fastembed is not installed.
        """
        if importlib.util.find_spec("fastembed") is None:
            raise EmbedderError(
                f"The library fastembed is not installed. Type: {sys.executable} -m pip install fastembed"
            )
        self._info = record_of(model, id=f"fastembed:{model}")
        self._model = model
        self._home = home
        self._threads = threads
        self._worker = Worker()
        self._loaded: Any = None
        self._closed = False

    @property
    def info(self) -> EmbedderInfo:
        """Its record."""
        return self._info

    async def embed(self, texts: Sequence[str], role: EmbedRole) -> Vectors:
        """Embed texts; see `Embedder.embed`."""
        import numpy as np  # noqa: PLC0415  - takes 0.1 s, and only embedding needs it

        prefix = self._info.query_prefix if role == "query" else self._info.document_prefix
        longest = self._info.max_tokens * _CHARS_A_TOKEN
        parts = []
        for start in range(0, len(texts), _TEXTS_AT_ONCE):
            part = [clean_text(prefix + text[:longest]) for text in texts[start : start + _TEXTS_AT_ONCE]]
            rows = await self._worker.run(partial(self._run, part))
            matrix = unit_rows(rows, count=len(part), dimension=self._info.dimension, source=self._info.id)
            if not self._info.dimension:
                self._info = replace(self._info, dimension=matrix.shape[1])
            parts.append(matrix)
        return np.concatenate(parts) if parts else np.zeros((0, self._info.dimension), np.float32)

    async def aclose(self) -> None:
        """Release the memory. Later calls are refused."""
        self._closed = True
        await self._worker.run(self._unload)

    def _unload(self) -> None:
        self._loaded = None

    def _run(self, texts: list[str]) -> list[Any]:
        if self._closed:
            raise EmbedderError("This embedder was closed; open another one.")
        try:
            if self._loaded is None:
                # Takes seconds, and it isn't a dependency of Satchel.
                from fastembed import TextEmbedding  # type: ignore[import-not-found]  # noqa: PLC0415

                cache = str(self._home / "models" / "fastembed")
                self._loaded = TextEmbedding(self._model, cache_dir=cache, threads=self._threads)
            return list(self._loaded.embed(texts))
        except Exception as error:  # it passes on any exception of its downloader and its runtime
            raise EmbedderError(f"fastembed could not serve {self._model}: {error}") from error
