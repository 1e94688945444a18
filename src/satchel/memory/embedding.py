"""The dense arm's upkeep: every memory gets vectors of the embedder in use, later, and never in a writer's
way.

What there is to do is read from the store ("a memory without a vector"), so that a crash loses nothing and a
repeat
changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import anyio
import numpy as np

from satchel.clock import Clock
from satchel.errors import EmbedderError, EmbedderMismatch
from satchel.memory import repository
from satchel.memory.index import Floats
from satchel.memory.passages import passages
from satchel.memory.relevance import Gate, examples, examples_hash
from satchel.memory.repository import Pending, to_micros
from satchel.models.port import Embedder, EmbedRole
from satchel.storage import Database

if TYPE_CHECKING:
    from satchel.models.port import Vectors

__all__ = ["DenseArm"]

_BATCH = (
    64  # Memories embedded and written together: a second of work, so that little is lost and others get in.
)
_BATCH_CHARS = 200_000  # And not more text than that: a few entries of 1 MB each are many passages.
_RETRY_S = 30.0  # An embedder that failed is left alone for so long.


class DenseArm:
    """One embedder on one space of one database.

    Attributes:
        trouble: Why the dense arm does not serve, in words for the user, or None.
        model: The id of the embedder's record in the database, once it is known.
        filled: Called with the number of memories after each batch that was embedded.
    """

    def __init__(self, embedder: Embedder, database: Database, space: int, clock: Clock) -> None:
        """Nothing is loaded before the first call."""
        self.embedder = embedder
        self.trouble: str | None = None
        self.model: int | None = None
        self.dimension = 0
        self._database = database
        self._space = space
        self._clock = clock
        self._retry_at = float("-inf")
        self._filling = anyio.Lock()
        self._replaces: str | None = None
        self._gate: Gate | None = None

    @property
    def notice(self) -> str | None:
        """What the user should know: that it does not serve, or that vectors are being made anew."""
        if self.trouble is not None:
            return self.trouble
        if self._replaces is not None:
            return (
                f"The memories of this store were embedded with {self._replaces}; they are being embedded "
                f"again with {self.embedder.info.id}. Until then search finds some by their words alone."
            )
        return None

    async def open(self) -> None:
        """Find out what the store knows of the embedder; the embedder itself is not touched."""
        info = self.embedder.info
        if info.dimension:
            await self._open_model(info.dimension)

    async def _open_model(self, dimension: int) -> None:
        now = to_micros(self._clock.now())
        name = self.embedder.info.id
        self.model, stored, self._replaces = await self._database.write(
            lambda connection: repository.open_model(connection, name, dimension, now)
        )
        if stored != dimension:
            raise EmbedderMismatch(
                f"The embedder {name} gives vectors of {dimension} numbers, and those in the store have "
                f"{stored}: it is another model under the same name. Give it its own name in the settings."
            )
        self.dimension = dimension

    async def embed(self, texts: Sequence[str], role: EmbedRole) -> Vectors | None:
        """Embed, or give None and note the trouble where the embedder does not serve."""
        if self._clock.monotonic_s() < self._retry_at:
            return None
        try:
            found = np.ascontiguousarray(await self.embedder.embed(texts, role), dtype=np.float32)
            if (
                found.ndim != 2
                or len(found) != len(texts)
                or found.shape[1] == 0
                or not np.isfinite(found).all()
            ):
                raise EmbedderError(
                    f"The embedder {self.embedder.info.id} did not answer with one vector for each text."
                )
            if found.shape[1] != self.dimension:
                await self._open_model(found.shape[1])
        except EmbedderError as error:
            self.trouble = f"Search goes by words alone: {error}"
            self._retry_at = self._clock.monotonic_s() + _RETRY_S
            return None
        self.trouble = None
        return found

    async def question(self, text: str) -> Floats | None:
        """The vector of a question, or None where the embedder does not serve."""
        found = await self.embed([text], "query")
        return None if found is None else found[0]

    async def gate(self) -> Gate | None:
        """What the embedder makes of the examples; they are embedded once for each store and kept in it."""
        model = self.model
        if self._gate is None and model is not None:
            name = examples_hash()
            stored = await self._database.read(
                lambda connection: repository.read_examples(connection, model, name)
            )
            if stored is not None:
                vectors: Vectors | None = np.frombuffer(stored, dtype="<f4").reshape(-1, self.dimension)
            else:
                vectors = await self.embed([text for text, _ in examples()], "query")
                if vectors is None:
                    return None
                found = vectors.astype("<f4").tobytes()
                await self._database.write(
                    lambda connection: repository.write_examples(connection, model, name, found)
                )
            assert vectors is not None
            self._gate = Gate.calibrate(vectors)
        return self._gate

    async def fill(
        self, *, limit: int | None = None, progress: Callable[[int], None] = lambda _: None
    ) -> int:
        """Embed memories that have no vector yet, the newest first.

        Args:
            limit: At most so many, or None for all; what is left waits for the next call.
            progress: Told how many are done, after each batch.

        Returns:
            How many were embedded.
        """
        async with self._filling:
            done = 0
            while limit is None or done < limit:
                pending = await self._pending(_BATCH if limit is None else min(_BATCH, limit - done))
                if not pending or not await self._fill_batch(pending):
                    break
                done += len(pending)
                progress(done)
            if done and self._replaces is not None and await self._activate():
                self._replaces = None
            return done

    async def _pending(self, limit: int) -> list[Pending]:
        model = self.model
        if model is None:
            # The dimension, and so the model's record, comes with its first answer.
            if await self.embed(["dimension"], "document") is None or self.model is None:
                return []
            model = self.model
        return await self._database.read(
            lambda connection: repository.pending_vectors(
                connection, self._space, model, limit=limit, max_chars=_BATCH_CHARS
            )
        )

    async def _fill_batch(self, pending: Sequence[Pending]) -> bool:
        cut = [passages(memory.content) for memory in pending]
        found = await self.embed([part for parts in cut for part in parts], "document")
        model = self.model
        if found is None or model is None:
            return False
        rows: dict[int, bytes] = {}
        at = 0
        for memory, parts in zip(pending, cut, strict=True):
            rows[memory.rid] = found[at : at + len(parts)].astype("<f4").tobytes()
            at += len(parts)
        await self._database.write(
            lambda connection: repository.write_vectors(connection, self._space, model, rows)
        )
        return True

    async def _activate(self) -> bool:
        model = self.model
        assert model is not None
        return await self._database.write(lambda connection: repository.activate_model(connection, model))
