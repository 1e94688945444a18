"""The bundled default: all-MiniLM-L6-v2 in onnxruntime, with the weights read in place.

The graph next to this module (built by scripts/build_minilm_graph.py) contains no weights, only their positions in
model.safetensors. onnxruntime maps the file into memory. Of the table of word vectors, which is half of the file, only
the rows of the words in use are read. Decision 6 has the measurements.
"""

from __future__ import annotations

import io
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from satchel.clock import Clock
from satchel.errors import EmbedderError
from satchel.messages import clean_text
from satchel.models.embedding.fetching import Progress
from satchel.models.embedding.kept import KeptWeights
from satchel.models.embedding.records import MINILM, MINILM_WEIGHTS
from satchel.models.embedding.rows import product, unit_rows
from satchel.models.embedding.weights import FETCH_COMMAND, fetch_weights
from satchel.models.embedding.worker import Worker
from satchel.models.port import EmbedderInfo, EmbedRole, TokenEmbedder, TokenVectors

if TYPE_CHECKING:
    import numpy as np
    from tokenizers import Tokenizer

    from satchel.models.port import Vectors

__all__ = ["MiniLmEmbedder"]

_MAX_CHARS = 32 * MINILM.max_tokens
"""Texts are truncated to this length before tokenising. English has one token for four or five characters. Tokenising 1
MB would take half a second, and only the first 256 tokens are used."""
_TOKENS_AT_ONCE = 256
"""Tokens in one run, including padding. Measured: in a batch, texts of 8 tokens take half of the time, texts of 20
three quarters; longer ones gain nothing, and long ones lose when the intermediate results exceed the processor's
cache."""
_RUNS_UNPACKED = 10
"""The number of runs before the weights are packed for the processor. Packing takes 35 ms and 40 MB and saves 2 ms per
run, so a command that embeds one question shouldn't pay for it."""
_RECENT_TEXTS = 32
"""The newest texts whose vectors are kept, up to `_MAX_CHARS` each, which is 3 MB: a message is embedded when memories
are searched for it, and again when it is stored after its turn."""


class MiniLmEmbedder(TokenEmbedder):
    """384 dimensions, mean-pooled, over the first 256 tokens of a text. Nothing is loaded or fetched before the first
    call.
    """

    def __init__(
        self,
        home: Path,
        *,
        environ: Mapping[str, str],
        clock: Clock,
        progress: Progress | None = None,
        threads: int = 1,
        fetch: Callable[..., Path] = fetch_weights,
    ) -> None:
        """Store the parameters.

        Args:
            home: SATCHEL_HOME.
            environ: The environment of processes that fetch the weights.
            clock: Determines when a failed fetch may be retried.
            progress: Called while fetching, from another thread.
            threads: The number of threads of one run, 1 or 2; more don't help at these lengths.
            fetch: `fetch_weights`, or a function with the same arguments.
        """
        self._weights = KeptWeights(
            home, MINILM_WEIGHTS, environ=environ, clock=clock, progress=progress, fetch=fetch
        )
        self._threads = threads
        self._worker = Worker()
        self._tokenizer: Tokenizer | None = None
        self._tokenizer_lock = threading.Lock()
        self._session: Any = None
        self._runs = 0
        self._recent: OrderedDict[str, tuple[Vectors, TokenVectors]] = OrderedDict()
        self._closed = False

    @property
    def info(self) -> EmbedderInfo:
        """Its record."""
        return MINILM

    def count_tokens(self, text: str) -> int:
        """The number of tokens in the text, including both special tokens. More than `info.max_tokens` are truncated.

        This takes 0.6 µs per character. The first call reads the tokenizer (20 ms); nothing is fetched.

        Raises:
            EmbedderError: The model has not been fetched yet.
        """
        if self._tokenizer is None:
            folder = self._weights.find()
            if folder is None:
                raise EmbedderError(f"The embedding model is not on this machine. Type: {FETCH_COMMAND}")
            self._load_tokenizer(folder)
        assert self._tokenizer is not None
        return len(self._tokenizer.encode(clean_text(text)).ids)

    async def embed(self, texts: Sequence[str], role: EmbedRole) -> Vectors:
        """Embed texts; see `Embedder.embed`."""
        import numpy as np  # noqa: PLC0415  - takes 0.1 s, and only embedding needs it

        rows = np.zeros((len(texts), MINILM.dimension), np.float32)
        async for position, hidden, _ in self._hidden_states(texts):
            rows[position] = hidden.mean(axis=0)
        return unit_rows(rows, count=len(texts), dimension=MINILM.dimension, source="all-MiniLM-L6-v2")

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
        whole = unit_rows(rows, count=len(texts), dimension=MINILM.dimension, source="all-MiniLM-L6-v2")
        return whole, tokens

    def _keep(self, text: str, row: Vectors, tokens: TokenVectors) -> tuple[Vectors, TokenVectors]:
        """Remember what a text gave, in place of the oldest."""
        if len(text) <= _MAX_CHARS:
            self._recent[text] = (row, tokens)
            while len(self._recent) > _RECENT_TEXTS:
                self._recent.popitem(last=False)
        return row, tokens

    async def aclose(self) -> None:
        """Release the memory. Later calls are refused."""
        self._closed = True
        self._recent.clear()
        # Through the worker, so that a run of another task ends first.
        await self._worker.run(self._unload)

    def _unload(self) -> None:
        self._session = self._tokenizer = None

    async def _hidden_states(
        self, texts: Sequence[str]
    ) -> AsyncIterator[tuple[int, Vectors, Sequence[tuple[int, int]]]]:
        """Yield the position, last hidden state (tokens, 384) and token spans of each text, shortest first."""
        if not texts:
            return
        encoded = await self._worker.run(lambda: self._encode(texts))
        for batch in _batches([len(ids) for ids, _ in encoded]):
            hidden = await self._worker.run(partial(self._run, [encoded[position][0] for position in batch]))
            for position, states in zip(batch, hidden, strict=True):
                ids, spans = encoded[position]
                yield position, states[: len(ids)], spans

    def _encode(self, texts: Sequence[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """Token ids and spans of each text, truncated before the end token. Runs on the worker's thread."""
        tokenizer, _ = self._loaded()
        encoded = []
        for text in texts:
            # One by one, because the library's batches start a thread pool, which causes warnings after a fork.
            found = tokenizer.encode(clean_text(text[:_MAX_CHARS]))
            ids, spans = found.ids, found.offsets
            if len(ids) > MINILM.max_tokens:
                ids = [*ids[: MINILM.max_tokens - 1], ids[-1]]
                spans = [*spans[: MINILM.max_tokens - 1], spans[-1]]
            encoded.append((ids, spans))
        return encoded

    def _run(self, batch: Sequence[Sequence[int]]) -> np.ndarray[tuple[int, int, int], np.dtype[np.float32]]:
        """Last hidden states (texts, longest, 384), including padding. Runs on the worker's thread."""
        import numpy as np  # noqa: PLC0415  - takes 0.1 s, and only embedding needs it

        _, session = self._loaded()
        self._runs += 1
        if self._runs == _RUNS_UNPACKED:
            session = self._session = _open_session(self._weights.folder(), self._threads, packed=True)
        lengths = np.array([len(ids) for ids in batch], np.int32)
        ids = np.zeros((len(batch), int(lengths.max())), np.int64)
        for row, tokens in zip(ids, batch, strict=True):
            row[: len(tokens)] = tokens
        try:
            return session.run(["hidden"], {"input_ids": ids, "lengths": lengths})[0]  # type: ignore[no-any-return]
        except Exception as error:  # its exceptions have no common base class except `Exception`
            raise EmbedderError(f"The embedding model could not be run: {error}") from error

    def _loaded(self) -> tuple[Tokenizer, Any]:
        """Tokenizer and session; fetched and loaded when first needed. Runs on the worker's thread.

        Raises:
            EmbedderError: The embedder is closed, or the weights are unavailable or can't be loaded.
        """
        if self._closed:
            raise EmbedderError("This embedder was closed; open another one.")
        if self._session is None:
            folder = self._weights.folder()
            self._load_tokenizer(folder)
            self._session = _open_session(folder, self._threads, packed=False)
        assert self._tokenizer is not None
        return self._tokenizer, self._session

    def _load_tokenizer(self, folder: Path) -> None:
        # The worker's thread or a caller of `count_tokens` may come first.
        with self._tokenizer_lock:
            if self._tokenizer is not None:
                return
            from tokenizers import Tokenizer  # noqa: PLC0415  - takes 20 ms, and only embedding needs it

            path = folder / "tokenizer.json"
            try:
                tokenizer = Tokenizer.from_file(str(path))
            except Exception as error:  # the library raises bare `Exception` for an unreadable file
                raise _unusable(path, error) from error
            # The file is configured for 128 tokens with padding; we truncate and pad ourselves.
            tokenizer.no_truncation()
            tokenizer.no_padding()
            self._tokenizer = tokenizer


@cache
def _directions() -> Vectors:
    """Shape (384, 64), orthonormal columns: the first uncentred principal directions of this model's 42,055 token
    vectors for the texts in benchmarks/data (own_long, own_facts). With fewer, search ranks worse (32: MRR .685,
    compared with .698 for all 384); 96 gain nothing.
    """
    import numpy as np  # noqa: PLC0415  - takes 0.1 s, and only embedding needs it

    data = resources.files(__package__).joinpath("minilm_tokens.npy").read_bytes()
    return np.load(io.BytesIO(data), allow_pickle=False)  # type: ignore[no-any-return]


def _open_session(folder: Path, threads: int, *, packed: bool) -> Any:
    import onnxruntime  # noqa: PLC0415  - takes 25 ms, and only embedding needs it

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors only; its warnings don't help users
    # The graph is already fused; further optimisation finds nothing.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    # Otherwise, a waiting thread would spin and take a processor from others.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.disable_prepacking", "0" if packed else "1")
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder))
    graph = resources.files(__package__).joinpath("minilm.onnx").read_bytes()
    try:
        return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its exceptions have no common base class except `Exception`
        raise _unusable(folder / "model.safetensors", error) from error


def _unusable(path: Path, error: Exception) -> EmbedderError:
    return EmbedderError(
        f"The embedding model can't be loaded from {path}: {error}\n"
        f"Remove the folder {path.parent} and type: {FETCH_COMMAND}"
    )


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Group texts of similar length by position, at most `_TOKENS_AT_ONCE` tokens unless a text is alone."""
    batch: list[int] = []
    for position in sorted(range(len(lengths)), key=lengths.__getitem__):
        # Sorted, so this text is the longest and all others are padded to it.
        if batch and lengths[position] * (len(batch) + 1) > _TOKENS_AT_ONCE:
            yield batch
            batch = []
        batch.append(position)
    if batch:
        yield batch
