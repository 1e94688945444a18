"""The searchable side of one space: arrays in this process, refreshed from the database's changes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import numpy as np

from satchel.errors import StorageError
from satchel.memory.find.candidates.evidence import gather
from satchel.memory.find.candidates.index import Index
from satchel.memory.find.candidates.ranking import Ranked, rank
from satchel.memory.find.candidates.vector_rows import read_tokens
from satchel.memory.find.question import AskedWith, ParsedQuestion
from satchel.memory.store import repository

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from satchel.memory.find.candidates.arrays import Floats
    from satchel.memory.find.candidates.evidence import ComparedMessage, Evidence
    from satchel.memory.find.embedding import DenseArm
    from satchel.memory.store.filters import Visible, VisibleOf
    from satchel.memory.store.thread import OneThread
    from satchel.storage import Database

T = TypeVar("T")

FactorsOf = Callable[["Connection", Sequence[int]], Mapping[int, Sequence[float]]]
"""Given rids, by what each one's score is multiplied, as in `decay.factors`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What the arrays of a space hold, complete up to a change: how many memories, how many of them have a vector or
    cues without vectors, of which model, and the numbers of the speakers.
    """

    changed: int = 0
    count: int = 0
    embedded: int = 0
    cues_waiting: int = 0
    model: int | None = None
    speakers: Mapping[str, int] = field(default_factory=dict)


class Candidates:
    """The memories of one space as arrays: which may answer a question, and how well each fits.

    All of it is derived from the tables. Only `thread` touches it, or what that waits for: changes and searches never
    meet. A rid is the number of a memory in the database.
    """

    def __init__(self, backend: Database, space: int, thread: OneThread, dense: DenseArm | None) -> None:
        """Nothing is read before the first `refresh`. `dense` tells which models' vectors are compared."""
        self._backend = backend
        self._space = space
        self._thread = thread
        self._dense = dense
        self._index = Index()
        self.contents = Contents()
        """What it holds, as of the last `refresh`."""
        self._refreshing = anyio.Lock()
        self._refreshes = 0  # That have begun.
        self._refreshed: tuple[int, object] = (0, None)  # The last that ended, and for which models.

    def close(self) -> None:
        """Let go of everything."""
        self._index = Index()

    async def _loaded(self) -> Index:
        """The arrays; loaded again where another search could not refresh them."""
        if self.contents.changed and not self._index.changed:
            await self.refresh()
        return self._index

    async def refresh(self) -> None:
        """Take in what this and other processes have changed since the last time."""
        dense = self._dense
        model, dimension, second = (
            (None, 0, None) if dense is None else (dense.model, dense.dimension, dense.second)
        )
        before, models = self._refreshes, (model, dimension, second)
        async with self._refreshing:
            ended, of_models = self._refreshed
            is_loaded = self._index.changed == self.contents.changed
            if ended > before and of_models == models and is_loaded:
                return  # It began after this was called: many conversations that begin at once share one.
            self._refreshes += 1
            if self._index.needs_rebuild:
                self._index = Index()
            index = self._index
            if model is not None:
                index.use_model(model, dimension)
                index.use_second(second)

            def take_in(connection: Connection) -> None:
                changes = repository.load_changes(
                    connection,
                    self._space,
                    since=index.changed,
                    models=index.models,
                )
                if changes is not None:
                    index.apply(changes)

            try:
                await self._thread.run(self._backend.read_blocking, take_in)
            except StorageError:
                # It may have taken in a part, of which nobody would say what was forgotten.
                self._index = Index()
                raise
            self.contents = Contents(
                changed=index.changed,
                count=index.alive_count,
                embedded=index.embedded_count,
                cues_waiting=index.cues_waiting,
                model=index.model,
                speakers=index.speaker_numbers,
            )
            self._refreshed = self._refreshes, models

    async def note_asked(self) -> None:
        """A question was embedded: the first answer of some embedders tells under which number the store knows them,
        and what has no vector yet could not be compared.
        """
        dense = self._dense
        if dense is None:
            return
        if self.contents.model is None and dense.model is not None:
            await self.refresh()
        dense.waiting = 0 if dense.any_trouble else self.contents.count - self.contents.embedded

    async def find(
        self,
        question: ParsedQuestion,
        asked: AskedWith | None,
        *,
        limit: int,
        then: Callable[[Connection, tuple[Ranked, ...]], T],
        visible: VisibleOf,
        factors: FactorsOf | None,
    ) -> T:
        """Find the memories that fit a question, best first, among those that `visible` reads. Scores are multiplied by
        `factors` before the order is final, and `then` reads what is wanted of what was found. `asked` is None where no
        embedder serves.
        """
        index = await self._loaded()
        vector, tokens = (None, None) if asked is None else asked
        read = self._backend.read_blocking

        def find() -> T:
            """Find in one visit to the thread: a visit costs as much CPU as reading thirty rows."""
            found = rank(
                index,
                question,
                limit=limit,
                vector=vector,
                tokens=tokens,
                only=_rows_of(read(visible), index),
                read=lambda rids: read(lambda connection: read_tokens(connection, index.model, rids)),
                factors=lambda rids: {} if factors is None else read(lambda at: factors(at, rids)),
            )
            return read(lambda connection: then(connection, found))

        return await self._thread.run(find)

    async def evidence(
        self,
        asked: ComparedMessage,
        *,
        each: int,
        then: Callable[[Connection, Evidence | None], T],
        visible: VisibleOf,
    ) -> T:
        """Measure what speaks for showing memories before a message, `each` of each way of finding them. `then` reads
        what it takes of that, None where there are no memories, in the same visit to the store.
        """
        index = await self._loaded()
        read = self._backend.read_blocking

        def measure() -> T:
            found = gather(index, asked, only=_rows_of(read(visible), index), each=each)
            return read(lambda connection: then(connection, found))

        return await self._thread.run(measure)

    async def cosines(self, vector: Floats, *, visible: Visible) -> Mapping[int, float]:
        """The cosine of a vector, shape (d,), and each visible memory's best passage, by rid; only those above 0."""
        index = await self._loaded()

        def compare() -> Mapping[int, float]:
            found = index.cosines(vector)
            near = zip(index["rid"][found.rows].tolist(), found.best.tolist(), strict=True)
            return {rid: cosine for rid, cosine in near if cosine > 0 and visible.shows(rid)}

        return await self._thread.run(compare)

    async def count_having(self, stems: Collection[int]) -> Mapping[int, int]:
        """How many memories have each of these stems as a word."""
        index = await self._loaded()
        return await self._thread.run(lambda: {stem: len(index.postings(stem).whole) for stem in stems})

    async def having(self, stems: Sequence[int]) -> frozenset[int]:
        """The rids of the memories that have every one of these stems as a word."""
        index = await self._loaded()

        def read() -> frozenset[int]:
            rows = set.intersection(*(set(index.postings(stem).whole.tolist()) for stem in stems))
            return frozenset(int(index["rid"][row]) for row in rows)

        return await self._thread.run(read)


def _rows_of(visible: Visible, index: Index) -> Any:
    """Which rows are visible: shape (rows,), bool; None for all."""
    if visible.allowed is None and not visible.hidden:
        return None
    rows = np.full(len(index), visible.allowed is None, dtype=np.bool_)
    for rids, shown in ((visible.allowed or (), True), (visible.hidden, False)):
        known = index.rows_of(rids)
        rows[known[known >= 0]] = shown
    return rows
