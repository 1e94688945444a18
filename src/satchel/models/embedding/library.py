"""Models of the library fastembed, for users who have installed it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Awaitable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from satchel.errors import EmbedderError
from satchel.models.embedding.embedder import BaseEmbedder
from satchel.models.embedding.records import record_of
from satchel.models.port import EmbedRole

if TYPE_CHECKING:
    from satchel.models.port import Vectors

_TEXTS_AT_ONCE: Final = 16
_CHARS_A_TOKEN: Final = 32
"""Texts are truncated to this many characters per token. No language needs as many, so tokenising more would be
wasted."""


class FastembedEmbedder(BaseEmbedder):
    """A model that fastembed fetches and runs; it is loaded on the first call."""

    def __init__(self, model: str, *, home: Path) -> None:
        """Store the parameters.

        Args:
            model: The name in fastembed ("BAAI/bge-small-en-v1.5").
            home: SATCHEL_HOME; the model is stored in its folder `models`.

        Raises:
            EmbedderError: fastembed is not installed.
        """
        if importlib.util.find_spec("fastembed") is None:
            raise EmbedderError(
                f"The library fastembed is not installed. Type: {sys.executable} -m pip install fastembed"
            )
        super().__init__(record_of(model, id=f"fastembed:{model}"))
        self._model = model
        self._home = home
        self._loaded: Any = None

    async def embed(self, texts: Sequence[str], role: EmbedRole) -> Vectors:
        """Embed texts; see `Embedder.embed`."""

        def ask(part: list[str]) -> Awaitable[list[Any]]:
            return self._blocking(partial(self._run, part))

        return await self._in_parts(ask, texts, role, at_once=_TEXTS_AT_ONCE, chars_a_token=_CHARS_A_TOKEN)

    def _unload(self) -> None:
        self._loaded = None

    def _run(self, texts: list[str]) -> list[Any]:
        try:
            if self._loaded is None:
                # Takes seconds, and it isn't a dependency of Satchel.
                from fastembed import TextEmbedding  # type: ignore[import-not-found]  # noqa: PLC0415

                cache = str(self._home / "models" / "fastembed")
                self._loaded = TextEmbedding(self._model, cache_dir=cache, threads=1)
            return list(self._loaded.embed(texts))
        except Exception as error:  # it passes on any exception of its downloader and its runtime
            raise EmbedderError(f"fastembed could not serve {self._model}: {error}") from error
