"""The bundled default: all-MiniLM-L6-v2 in numpy, with the weights read in place.

model.safetensors is mapped into memory. Of the table of word vectors, which is half of the file, only the rows of the
words in use are read. Decisions 6 and 67 have the measurements.
"""

from __future__ import annotations

import io
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from functools import cache, partial
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from satchel.errors import EmbedderError
from satchel.messages import clean_text
from satchel.models.embedding.embedder import batches
from satchel.models.embedding.kept import BundledEmbedder
from satchel.models.embedding.records import MINILM, MINILM_WEIGHTS
from satchel.models.embedding.rows import product
from satchel.models.embedding.weights import FETCH_COMMAND
from satchel.models.embedding.wordpiece import WordPiece
from satchel.models.port import EmbedRole, TokenEmbedder, TokenVectors

if TYPE_CHECKING:
    from satchel.models.embedding.minilm_model import MiniLm
    from satchel.models.port import Vectors

_MAX_CHARS: Final = 32 * MINILM.max_tokens
"""Texts are truncated to this length before tokenising. English has one token for four or five characters. Tokenising 1
MB would take half a second, and only the first 256 tokens are used."""
_TOKENS_AT_ONCE: Final = 256
"""Tokens in one run. Measured: in a batch, texts of 8 tokens take 40 % of the time, texts of 20 two thirds; longer ones
gain nothing."""
_RECENT_TEXTS = 32
"""The newest texts whose vectors are kept, up to `_MAX_CHARS` each, which is 3 MB: a message is embedded when memories
are searched for it, and again when it is stored after its turn."""


class MiniLmEmbedder(BundledEmbedder, TokenEmbedder):
    """384 dimensions, mean-pooled, over the first 256 tokens of a text."""

    _files, _record = MINILM_WEIGHTS, MINILM

    def __init__(self, home: Path, **options: Any) -> None:
        """See `BundledEmbedder`."""
        super().__init__(home, **options)
        self._tokenizer: WordPiece | None = None
        self._model: MiniLm | None = None
        self._recent: OrderedDict[str, tuple[Vectors, TokenVectors]] = OrderedDict()

    async def embed(self, texts: Sequence[str], role: EmbedRole) -> Vectors:
        """Embed texts; see `Embedder.embed`."""
        import numpy as np  # noqa: PLC0415  - takes 0.1 s, and only embedding needs it

        rows = np.zeros((len(texts), MINILM.dimension), np.float32)
        async for position, hidden, _ in self._hidden_states(texts):
            rows[position] = hidden.mean(axis=0)
        return self._checked(rows, count=len(texts), source="all-MiniLM-L6-v2")

    async def embed_tokens(
        self, texts: Sequence[str], role: EmbedRole
    ) -> tuple[Vectors, Sequence[TokenVectors]]:
        """Embed each token, too; see `TokenEmbedder.embed_tokens`. A token's vector is the last hidden state, projected
        onto the 64 directions that best distinguish tokens.
        """
        import numpy as np  # noqa: PLC0415  - takes 0.1 s, and only embedding needs it

        known = [self._recent.get(text) for text in texts]
        new = [position for position, found in enumerate(known) if found is None]
        rows = np.zeros((len(texts), MINILM.dimension), np.float32)
        async for at, hidden, spans in self._hidden_states([texts[position] for position in new]):
            row = hidden.mean(axis=0)
            # The first and the last token mark the beginning and the end.
            reduced = product(hidden[1:-1], _directions())
            reduced /= np.maximum(np.sqrt(np.einsum("ij,ij->i", reduced, reduced)), 1e-12)[:, None]
            where = np.array(spans[1:-1], np.int32).reshape(-1, 2)
            known[new[at]] = self._keep(texts[new[at]], row, TokenVectors(vectors=reduced, spans=where))
        tokens = []
        for position, found in enumerate(known):
            assert found is not None
            rows[position] = found[0]
            tokens.append(found[1])
        whole = self._checked(rows, count=len(texts), source="all-MiniLM-L6-v2")
        return whole, tokens

    def _keep(self, text: str, row: Vectors, tokens: TokenVectors) -> tuple[Vectors, TokenVectors]:
        """Remember what a text gave, in place of the oldest."""
        if len(text) <= _MAX_CHARS:
            self._recent[text] = (row, tokens)
            while len(self._recent) > _RECENT_TEXTS:
                self._recent.popitem(last=False)
        return row, tokens

    def _unload(self) -> None:
        self._recent.clear()
        self._model = self._tokenizer = None

    async def _hidden_states(
        self, texts: Sequence[str]
    ) -> AsyncIterator[tuple[int, Vectors, Sequence[tuple[int, int]]]]:
        """Yield the position, last hidden state (tokens, 384) and token spans of each text, shortest first."""
        if not texts:
            return
        encoded = await self._blocking(lambda: self._encode(texts))
        lengths = [len(ids) for ids, _ in encoded]
        shortest_first = sorted(range(len(lengths)), key=lengths.__getitem__)
        for batch in batches(shortest_first, lengths, most=_TOKENS_AT_ONCE):
            hidden = await self._blocking(partial(self._run, [encoded[position][0] for position in batch]))
            for position, states in zip(batch, hidden, strict=True):
                yield position, states, encoded[position][1]

    def _encode(self, texts: Sequence[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """Token ids and spans of each text, truncated before the end token. Runs on a thread."""
        tokenizer, _ = self._loaded()
        encoded = []
        for text in texts:
            ids, spans = tokenizer.encode(clean_text(text[:_MAX_CHARS]))
            if len(ids) > MINILM.max_tokens:
                ids = [*ids[: MINILM.max_tokens - 1], ids[-1]]
                spans = [*spans[: MINILM.max_tokens - 1], spans[-1]]
            encoded.append((ids, spans))
        return encoded

    def _run(self, batch: Sequence[Sequence[int]]) -> list[Vectors]:
        """The last hidden states of each text (tokens, 384). Runs on a thread."""
        _, model = self._loaded()
        return model.hidden(batch)

    def _loaded(self) -> tuple[WordPiece, MiniLm]:
        """Tokenizer and weights; fetched and loaded when first needed. Runs on a thread.

        Raises:
            EmbedderError: The weights are unavailable or can't be loaded.
        """
        if self._model is None:
            # Numpy takes 0.1 s, and only embedding needs it.
            from satchel.models.embedding import minilm_model  # noqa: PLC0415

            folder = self._folder()
            path = folder / "tokenizer.json"
            try:
                self._tokenizer = WordPiece.of_file(path)
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise _unusable(path, error) from error
            path = folder / "model.safetensors"
            try:
                self._model = minilm_model.load(path)
            except minilm_model.DAMAGED as error:
                raise _unusable(path, error) from error
        assert self._tokenizer is not None
        return self._tokenizer, self._model


@cache
def _directions() -> Vectors:
    """Shape (384, 64), orthonormal columns: the first uncentred principal directions of this model's 42,055 token
    vectors for the texts in benchmarks/data (own_long, own_facts). With fewer, search ranks worse (32: MRR .685,
    compared with .698 for all 384); 96 gain nothing.
    """
    import numpy as np  # noqa: PLC0415  - takes 0.1 s, and only embedding needs it

    data = resources.files(__package__).joinpath("minilm_tokens.npy").read_bytes()
    return np.load(io.BytesIO(data), allow_pickle=False)  # type: ignore[no-any-return]


def _unusable(path: Path, error: Exception) -> EmbedderError:
    return EmbedderError(
        f"The embedding model can't be loaded from {path}: {error}\n"
        f"Remove the folder {path.parent} and type: {FETCH_COMMAND}"
    )
