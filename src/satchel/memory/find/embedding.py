"""Embeds the memories of a space with the embedder in use, after they were written, so that writers don't wait.

A query finds memories without vectors, so a crash loses nothing and repeating the work changes nothing.
"""

from __future__ import annotations

import unicodedata
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import anyio
import numpy as np

from satchel.clock import Clock
from satchel.errors import EmbedderError, EmbedderMismatch, StorageLocked, StorageUnwritable
from satchel.memory.find.candidates import vector_rows
from satchel.memory.find.candidates.arrays import to_stored
from satchel.memory.find.candidates.tokens import pack
from satchel.memory.find.candidates.vector_rows import Embedded, Share, Vectorless
from satchel.memory.find.question import AskedWith
from satchel.memory.find.relevance import RelevanceGate, examples, examples_hash
from satchel.memory.store.micros import to_micros
from satchel.memory.text.passages import passages
from satchel.models.port import Embedder, EmbedRole, TokenEmbedder

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from satchel.memory.find.candidates.arrays import Floats
    from satchel.memory.find.candidates.vectors import Second
    from satchel.memory.store.claims import Claims
    from satchel.models.port import TokenVectors, Vectors
    from satchel.storage import Database

T = TypeVar("T")

_ALL = Share()

_BATCH = 64
_STEP = 8  # Where somebody waits: a thirtieth of a second with the default embedder.
_STEP_CHARS = 4_000
"""Memories that are embedded and written together: about a second of work, so that a crash loses little and other
writers don't wait long."""
_BATCH_CHARS = 200_000
"""The most text in a batch: a few memories of 1 MB each have many passages."""
_LOOKED_AT_CHARS = 1_000
"""Of a text, to see in which script it is written."""
_RETRY_S = 30.0
"""After a failure, the embedder isn't called for this long."""
_OTHERS_S = 5.0
"""How long to wait for other processes that are embedding, after the last batch of this one."""
_POLL_S = 0.02
_LOCKED_S = 1.0
_KEEP_RETIRED_MICROS = 7 * 86_400_000_000
"""Vectors of a model that is no longer in use are kept for a week, so that switching back is immediate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fill:
    """What is to be embedded.

    Attributes:
        limit: The maximum number of memories, and of memories with cues; None for all.
        everywhere: The memories of all users and scopes in the database, not only of this space. A model comes into use
            only when all are embedded.
        progress: Called with the number of memories that are done, after each batch.
        wait_s: How long to wait for a lock before each batch; None for the database's own limit.
        until_s: When to stop, by the clock's monotonic time, in small steps and without waiting for others.
        fetch: Fetch a second embedder that isn't on this machine; nobody should be waiting then.
    """

    limit: int | None = None
    everywhere: bool = False
    progress: Callable[[int], None] | None = None
    wait_s: float | None = None
    until_s: float | None = None
    fetch: bool = False


EVERYTHING = Fill()


class DenseArm:
    """One embedder for one space: its number in the store (`model`), None until that is known; why it is unavailable,
    as a message for the user (`trouble`); and how many memories the last search couldn't compare, as they had no
    vectors (`waiting`).
    """

    _without_it = "Search uses only words"
    _counts_before_the_first = False

    def __init__(
        self,
        embedder: Embedder,
        database: Database,
        space: int,
        clock: Clock,
        claims: Claims,
        *,
        share: Share = _ALL,
    ) -> None:
        """Nothing is loaded yet. `claims` divide the work between processes; `share` says which memories it embeds."""
        self.embedder = embedder
        self._embeds_tokens = isinstance(embedder, TokenEmbedder)  # The check takes 0.1 ms.
        self.trouble: str | None = None
        self.model: int | None = None
        self.dimension = 0
        self.waiting = 0
        self._database = database
        self._space = space
        self._share = share
        self._clock = clock
        self._claims = claims
        self._retry_at = float("-inf")
        # Held for one batch at a time, so that a query during a long fill waits for one batch only.
        self._filling = anyio.Lock()
        self._replaces: str | None = None
        self._gate: RelevanceGate | None = None
        self._tidied = False

    @property
    def has_tokens(self) -> bool:
        """Whether the embedder also returns a vector for each token."""
        return self.embedder.info.token_dimension > 0 and self._embeds_tokens

    @property
    def second(self) -> Second | None:
        """The model for other languages whose vectors are in the store, where there is one; see `TwoArms`."""
        return None

    def reads(self, text: str) -> bool:
        """Whether most letters of a text are of a script that the model reads."""
        script = self.embedder.info.script
        letters = [char for char in text[:_LOOKED_AT_CHARS] if char.isalpha()] if script else []
        known = sum(char.isascii() or unicodedata.name(char, "").startswith(script) for char in letters)
        return 2 * known >= len(letters)

    @property
    def any_trouble(self) -> str | None:
        """Why an embedder is unavailable, as a message for the user, or None."""
        return self.trouble

    @property
    def notice(self) -> str | None:
        """A message for the user if the embedder is unavailable or memories are not embedded yet, otherwise None."""
        if self.any_trouble is not None:
            return self.any_trouble
        if self._replaces is not None:
            return (
                f"The memories of this store were embedded with {self._replaces} and are being embedded again with "
                f"{self.embedder.info.id}. Until this is done, some memories are found only by their words."
            )
        if self.waiting:
            return (
                f"{self.waiting:,} memories are not embedded yet and are found only by their words until they "
                "are. To do it now: satchel memory reindex"
            )
        return None

    async def open(self) -> None:
        """Look up the embedder in the database. The embedder itself isn't loaded."""
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
                f"The embedder {name} returns vectors of {dimension} numbers, but those in the store have "
                f"{found.dimension}: it is a different model with the same name. Give it another name in the settings."
            )
        self.model, self._replaces = found.id, found.replaces
        self.dimension = dimension

    async def _embed(
        self, texts: Sequence[str], role: EmbedRole, *, with_tokens: bool
    ) -> tuple[Vectors, Sequence[TokenVectors] | None] | None:
        """Embed texts. If the embedder is unavailable, set `trouble` and return None."""
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
                    f"The embedder {self.embedder.info.id} did not return one vector of numbers for each text."
                )
            if found.shape[1] != self.dimension or self.model is None:
                await self._open_model(found.shape[1])
        except EmbedderError as error:
            self.trouble = f"{self._without_it}: {error}"
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
                f"The embedder {self.embedder.info.id} did not return {width} numbers for each token."
            )

    async def question(self, text: str) -> AskedWith | None:
        """Embed a question; None if the embedder is unavailable."""
        found = await self._embed([text], "query", with_tokens=True)
        if found is None:
            return None
        vectors, tokens = found
        return AskedWith(vector=vectors[0], tokens=None if tokens is None else tokens[0])

    async def asked(self, texts: Sequence[str]) -> Vectors | None:
        """Embed what is asked, without tokens: shape (len(texts), d); None if the embedder is unavailable, or doesn't
        read the first text.
        """
        if texts and not self.reads(texts[0]):
            return None
        found = await self._embed(texts, "query", with_tokens=False)
        return None if found is None else found[0]

    async def gate_for(self, message: Floats) -> RelevanceGate | None:
        """Return the gate for a message whose vector was made by `asked`; None if the embedder is unavailable."""
        return await self.gate()

    async def gate(self) -> RelevanceGate | None:
        """Return the gate of surfacing, calibrated for this embedder; None if the embedder is unavailable."""
        model = self.model
        if model is None or self._gate is not None:
            return self._gate
        name = examples_hash()
        stored = await self._database.read(
            lambda connection: vector_rows.read_examples(connection, model, name)
        )
        if stored is not None:
            vectors: Vectors = np.frombuffer(stored, dtype="<f4").reshape(-1, self.dimension)
        else:
            found = await self._embed([text for text, _ in examples()], "query", with_tokens=False)
            if found is None:
                return None
            vectors = found[0]
            packed = vectors.astype("<f4").tobytes()
            # If they can't be written, the next process embeds them again.
            with suppress(StorageLocked, StorageUnwritable):
                await self._database.write(
                    lambda connection: vector_rows.write_examples(connection, model, name, packed),
                    wait_s=_LOCKED_S,
                )
        self._gate = RelevanceGate.calibrate(vectors)
        return self._gate

    async def fill(self, wanted: Fill = EVERYTHING) -> int:
        """Embed memories without vectors, then cues without vectors, newest first, and wait for other processes that
        are embedding.

        Returns:
            The number of memories that were embedded.

        Raises:
            StorageLocked: The database was locked for longer.
        """
        done = await self._in_batches(wanted, of_cues=False)
        if self.trouble is None:
            await self._in_batches(replace(wanted, progress=None), of_cues=True)
        if self._replaces is not None and self.trouble is None:
            await self.take_over()
        return done

    async def _in_batches(self, wanted: Fill, *, of_cues: bool) -> int:
        """Take batches and make their vectors until nothing is left, or it is time; returns the number of memories."""
        done, waited_s, limit, until = 0, 0.0, wanted.limit, None
        step = _BATCH if wanted.until_s is None else _STEP
        while limit is None or done < limit:
            if wanted.until_s is not None and self._clock.monotonic_s() >= wanted.until_s:
                break
            most = step if limit is None else min(step, limit - done)
            async with self._filling, self._taken(wanted, most, until, of_cues=of_cues) as taken:
                if taken and not await self._fill_batch(taken, of_cues=of_cues):
                    break
            if taken:
                done, waited_s, until = done + len(taken), 0.0, taken[-1].place
                if wanted.progress is not None:
                    wanted.progress(done)
            elif until is not None:
                until = None  # for what was stored meanwhile
            elif (
                wanted.until_s is None
                and waited_s < _OTHERS_S
                and await self._claims.is_held(self._work(of_cues=of_cues))
            ):
                await anyio.sleep(_POLL_S)
                waited_s += _POLL_S
            else:
                break
        return done

    async def keep_up(self) -> None:
        """Do the background work: embed the memories of this space and, while this model is replacing another one, of
        all spaces; then delete vectors that expired.
        """
        await self.open()
        await self.fill()
        if self._replaces is not None and self.trouble is None:
            await self.fill(Fill(everywhere=True))
        if not self._tidied and self.model is not None and self._replaces is None:
            self._tidied = True
            await self.drop_retired()

    async def pending(self, *, everywhere: bool = False) -> int:
        """Count the memories without vectors. The result is 0 until the embedder's dimension is known."""
        if self.model is None and not self._counts_before_the_first:
            return 0
        model, space = self.model or 0, None if everywhere else self._space
        return await self._database.read(
            lambda connection: vector_rows.count_pending(connection, space, model, self._share)
        )

    def _work(self, *, of_cues: bool) -> str:
        return f"embed {'cues ' if of_cues else ''}{self.model}"

    @asynccontextmanager
    async def _taken(
        self, wanted: Fill, most: int, until: int | None, *, of_cues: bool
    ) -> AsyncIterator[Sequence[Vectorless]]:
        """Claim memories without vectors, or with cues that have none, so that no other process embeds them too."""
        if self.model is None:
            # The first answer tells the dimension, which the model's record needs.
            await self._embed(["dimension"], "document", with_tokens=False)
        model = self.model
        if model is None:
            yield ()
            return
        space = None if wanted.everywhere else self._space

        def find(connection: Connection, held: Collection[str]) -> list[Vectorless]:
            without = [int(rid) for rid in held]
            if of_cues:
                return vector_rows.pending_cues(connection, space, model, limit=most, without=without)
            return vector_rows.pending_vectors(
                connection,
                space,
                model,
                limit=most,
                max_chars=_BATCH_CHARS if wanted.until_s is None else _STEP_CHARS,
                without=without,
                share=self._share,
                until=until,
            )

        async with self._claims.take(
            self._work(of_cues=of_cues), find, name=lambda memory: str(memory.rid), wait_s=wanted.wait_s
        ) as taken:
            yield taken

    async def _fill_batch(self, pending: Sequence[Vectorless], *, of_cues: bool) -> bool:
        # Without the bars between cells: they are a third of a table's tokens, and say nothing.
        cut = [
            list(memory.texts)
            if of_cues
            else [part.replace(" | ", " ") for part in passages(memory.texts[0])]
            for memory in pending
        ]
        texts = [part for parts in cut for part in parts]
        found = await self._embed(texts, "document", with_tokens=not of_cues)
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
                    vectors=to_stored(vectors[at:end]),
                    tokens=None if tokens is None else pack(parts, tokens[at:end]),
                )
            )
            at = end

        def write(connection: Connection) -> bool:
            instead_of = None if of_cues else self._share.instead_of
            return vector_rows.write_vectors(connection, model, made, of_cues=of_cues, instead_of=instead_of)

        if not await self._database.write(write):
            # Another process retired and deleted the model's record.
            self.model = self._gate = None
            return False
        return True

    async def take_over(self) -> bool:
        """Put this model in use if every memory in the database has its vectors; returns whether it is."""
        model = self.model
        if model is None:
            return False
        now = to_micros(self._clock.now())
        if self._replaces is not None and await self._database.write(
            lambda connection: vector_rows.activate_model(connection, model, now, self._share)
        ):
            self._replaces = None
        return self._replaces is None

    async def drop_retired(self, *, at_once: bool = False) -> list[str]:
        """Delete the vectors of models out of use for a week, or `at_once` of all out of use; returns their names."""
        before = to_micros(self._clock.now()) + 1
        if not at_once:
            before -= _KEEP_RETIRED_MICROS
        return await self._database.write(lambda connection: vector_rows.drop_retired(connection, before))
