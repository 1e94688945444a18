"""The dense arm's upkeep: every memory gets vectors of the embedder in use, later, and never in a writer's way.

What there is to do is read from the store ("a memory without vectors"), so that a crash loses nothing and a repeat
changes nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import anyio
import numpy as np

from satchel.clock import Clock
from satchel.errors import EmbedderError, EmbedderMismatch, StorageLocked
from satchel.memory.candidates import vector_rows
from satchel.memory.candidates.tokens import pack
from satchel.memory.candidates.vector_rows import Embedded, Pending
from satchel.memory.passages import passages
from satchel.memory.question import AskedWith
from satchel.memory.relevance import Gate, examples, examples_hash
from satchel.memory.repository import to_micros
from satchel.models.port import Embedder, EmbedRole, TokenEmbedder

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from satchel.memory.ports import Backend, Claims
    from satchel.models.port import TokenVectors, Vectors

__all__ = ["DenseArm"]

_BATCH = (
    64  # Memories embedded and written together: a second of work, so that little is lost and others get in.
)
_BATCH_CHARS = 200_000  # And not more text than that: a few entries of 1 MB each are many passages.
_RETRY_S = 30.0  # An embedder that failed is left alone for so long.
_OTHERS_S = 5.0
"""How long the vectors that other processes are making are waited for, counted from the last batch of one's own."""
_POLL_S = 0.02
_LOCKED_S = 1.0
_KEEP_RETIRED_MICROS = 7 * 86_400_000_000
"""Vectors of a model that is no longer in use are kept for a week: whoever changes his mind need not wait again."""


class DenseArm:
    """One embedder on one space of one database.

    Attributes:
        trouble: Why the dense arm does not serve, in words for the user, or None.
        model: The id of the embedder's record in the database, once it is known.
        waiting: How many memories the last search could not compare by meaning, since they are not embedded yet.
    """

    def __init__(
        self, embedder: Embedder, database: Backend, space: int, clock: Clock, claims: Claims
    ) -> None:
        """Nothing is loaded before the first call."""
        self.embedder = embedder
        self._embeds_tokens = isinstance(embedder, TokenEmbedder)  # Looking takes 0.1 ms.
        self.trouble: str | None = None
        self.model: int | None = None
        self.dimension = 0
        self.waiting = 0
        self._database = database
        self._space = space
        self._clock = clock
        self._claims = claims
        self._retry_at = float("-inf")
        # Held for one batch at a time: a question that comes in the middle of a long fill waits for one.
        self._filling = anyio.Lock()
        self._replaces: str | None = None
        self._gate: Gate | None = None
        self._tidied = False

    @property
    def has_tokens(self) -> bool:
        """Whether the embedder gives a vector for each token too."""
        return self.embedder.info.token_dimension > 0 and self._embeds_tokens

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
        if self.waiting:
            return (
                f"{self.waiting:,} memories are not embedded yet and are found by their words alone. "
                "Type: satchel memory reindex"
            )
        return None

    async def open(self) -> None:
        """Find out what the store knows of the embedder; the embedder itself is not touched."""
        info = self.embedder.info
        if info.dimension and self.model is None:
            await self._open_model(info.dimension)

    async def _open_model(self, dimension: int) -> None:
        now = to_micros(self._clock.now())
        name = self.embedder.info.id
        found = await self._database.read(lambda connection: vector_rows.find_model(connection, name))
        if found is None:
            found = await self._database.write(
                lambda connection: vector_rows.open_model(connection, name, dimension, now)
            )
        if found.dimension != dimension:
            raise EmbedderMismatch(
                f"The embedder {name} gives vectors of {dimension} numbers, and those in the store have "
                f"{found.dimension}: it is another model under the same name. Give it its own name in the settings."
            )
        self.model, self._replaces = found.id, found.replaces
        self.dimension = dimension

    async def _embed(
        self, texts: Sequence[str], role: EmbedRole, *, with_tokens: bool
    ) -> tuple[Vectors, Sequence[TokenVectors] | None] | None:
        """Embed, or give None and note the trouble where the embedder does not serve."""
        if self._clock.monotonic_s() < self._retry_at:
            return None
        tokens: Sequence[TokenVectors] | None = None
        try:
            if with_tokens and self.has_tokens:
                assert isinstance(self.embedder, TokenEmbedder)
                given, tokens = await self.embedder.embed_tokens(texts, role)
                self._check_tokens(tokens, len(texts))
            else:
                given = await self.embedder.embed(texts, role)
            found = np.ascontiguousarray(given, dtype=np.float32)
            if (
                found.ndim != 2
                or len(found) != len(texts)
                or found.shape[1] == 0
                or not np.isfinite(found).all()
            ):
                raise EmbedderError(
                    f"The embedder {self.embedder.info.id} did not answer with one vector for each text."
                )
            if found.shape[1] != self.dimension or self.model is None:
                await self._open_model(found.shape[1])
        except EmbedderError as error:
            self.trouble = f"Search goes by words alone: {error}"
            self._retry_at = self._clock.monotonic_s() + _RETRY_S
            return None
        self.trouble = None
        return found, tokens

    def _check_tokens(self, tokens: Sequence[TokenVectors], count: int) -> None:
        width = self.embedder.info.token_dimension
        if len(tokens) != count or not all(
            found.vectors.shape == (len(found.spans), width) and np.isfinite(found.vectors).all()
            for found in tokens
        ):
            raise EmbedderError(
                f"The embedder {self.embedder.info.id} did not answer with {width} numbers for each token."
            )

    async def vectors_of(self, texts: Sequence[str]) -> Vectors | None:
        """The vectors of some texts that are not stored, or None where the embedder does not serve."""
        found = await self._embed(texts, "document", with_tokens=False)
        return None if found is None else found[0]

    async def question(self, text: str) -> AskedWith | None:
        """The vectors of a question, or None where the embedder does not serve."""
        found = await self._embed([text], "query", with_tokens=True)
        if found is None:
            return None
        vectors, tokens = found
        return AskedWith(vector=vectors[0], tokens=None if tokens is None else tokens[0])

    async def gate(self, *, anew: bool = False) -> Gate | None:
        """What the embedder makes of the examples; they are embedded once for each store and kept in it.

        Args:
            anew: Embed them again, whatever is kept.
        """
        model = self.model
        if model is None or (self._gate is not None and not anew):
            return self._gate
        name = examples_hash()
        stored = (
            None
            if anew
            else await self._database.read(
                lambda connection: vector_rows.read_examples(connection, model, name)
            )
        )
        if stored is not None:
            vectors: Vectors = np.frombuffer(stored, dtype="<f4").reshape(-1, self.dimension)
        else:
            found = await self._embed([text for text, _ in examples()], "query", with_tokens=False)
            if found is None:
                return None
            vectors = found[0]
            packed = vectors.astype("<f4").tobytes()
            # Without them the next process asks the embedder again.
            with suppress(StorageLocked):
                await self._database.write(
                    lambda connection: vector_rows.write_examples(connection, model, name, packed),
                    wait_s=_LOCKED_S,
                )
        self._gate = Gate.calibrate(vectors)
        return self._gate

    async def fill(
        self,
        *,
        limit: int | None = None,
        everywhere: bool = False,
        progress: Callable[[int], None] = lambda _: None,
        wait_s: float | None = None,
    ) -> int:
        """Embed memories that have no vectors yet, the newest first, and wait for what other processes are embedding.

        Args:
            limit: At most so many, or None for all; what is left waits for the next call.
            everywhere: Those of all users and scopes of the database, not of this space alone. What is derived is
                no secret, and only when all are done does a model take over.
            progress: Told how many are done, after each batch.
            wait_s: How long to wait for a lock before each batch; None for as long as the database is set to.

        Returns:
            How many were embedded.

        Raises:
            StorageLocked: The database was locked for longer.
        """
        done, waited_s = 0, 0.0
        while limit is None or done < limit:
            most = _BATCH if limit is None else min(_BATCH, limit - done)
            async with self._filling, self._taken(None if everywhere else self._space, most, wait_s) as batch:
                if batch and not await self._fill_batch(batch):
                    break
            if batch:
                done, waited_s = done + len(batch), 0.0
                progress(done)
            elif waited_s < _OTHERS_S and await self._claims.is_held(self._work):
                await anyio.sleep(_POLL_S)
                waited_s += _POLL_S
            else:
                break
        if self._replaces is not None and self.trouble is None:
            await self.take_over()
        return done

    async def keep_up(self) -> None:
        """What the background does: embed what is missing here and, while another model is to be replaced, everywhere;
        then see whether old vectors can go.
        """
        await self.open()
        await self.fill()
        if self._replaces is not None and self.trouble is None:
            await self.fill(everywhere=True)
        if not self._tidied and self.model is not None and self._replaces is None:
            self._tidied = True
            await self.drop_retired()

    async def pending(self, *, everywhere: bool = False) -> int:
        """How many memories have no vectors yet; 0 where that can't be known before the embedder answers."""
        model = self.model
        if model is None:
            return 0
        space = None if everywhere else self._space
        return await self._database.read(
            lambda connection: vector_rows.count_pending(connection, space, model)
        )

    @property
    def _work(self) -> str:
        return f"embed {self.model}"

    @asynccontextmanager
    async def _taken(
        self, space: int | None, most: int, wait_s: float | None
    ) -> AsyncIterator[Sequence[Pending]]:
        """Memories without vectors that no other process embeds meanwhile."""
        if self.model is None:
            # The dimension, and so the model's record, comes with its first answer.
            await self._embed(["dimension"], "document", with_tokens=False)
        model = self.model
        if model is None:
            yield ()
            return

        def find(connection: Connection, held: Collection[str]) -> list[Pending]:
            return vector_rows.pending_vectors(
                connection,
                space,
                model,
                limit=most,
                max_chars=_BATCH_CHARS,
                without=[int(rid) for rid in held],
            )

        async with self._claims.take(
            self._work, find, name=lambda memory: str(memory.rid), wait_s=wait_s
        ) as batch:
            yield batch

    async def _fill_batch(self, pending: Sequence[Pending]) -> bool:
        cut = [passages(memory.content) for memory in pending]
        found = await self._embed([part for parts in cut for part in parts], "document", with_tokens=True)
        model = self.model
        if found is None or model is None:
            return False
        vectors, tokens = found
        made: list[Embedded] = []
        at = 0
        for memory, parts in zip(pending, cut, strict=True):
            end = at + len(parts)
            made.append(
                Embedded(
                    pending=memory,
                    vectors=vectors[at:end].astype("<f4").tobytes(),
                    tokens=None if tokens is None else pack(parts, tokens[at:end]),
                )
            )
            at = end
        if not await self._database.write(
            lambda connection: vector_rows.write_vectors(connection, model, made)
        ):
            # Another process put it aside and dropped it: it begins anew.
            self.model = self._gate = None
            return False
        return True

    async def take_over(self) -> bool:
        """Put this model in use where it has vectors of everything in the database.

        Returns:
            Whether it is in use.
        """
        model = self.model
        if model is None:
            return False
        now = to_micros(self._clock.now())
        if self._replaces is not None and await self._database.write(
            lambda connection: vector_rows.activate_model(connection, model, now)
        ):
            self._replaces = None
        return self._replaces is None

    async def drop_retired(self, *, at_once: bool = False) -> list[str]:
        """Remove the vectors of models that are no longer in use: a week after, or at once.

        Returns:
            The names of those models.
        """
        before = to_micros(self._clock.now()) + 1
        if not at_once:
            before -= _KEEP_RETIRED_MICROS
        return await self._database.write(lambda connection: vector_rows.drop_retired(connection, before))
