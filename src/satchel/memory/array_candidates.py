"""`ports.Candidates` with numpy: one space as arrays in this process, refreshed from the database's changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import anyio
import numpy as np

from satchel.memory import repository
from satchel.memory.index import Index
from satchel.memory.question import Question, read_question
from satchel.memory.ranking import Factors, Found, Scores, choose, rank, score, top, within_reach
from satchel.memory.vector_rows import read_tokens

if TYPE_CHECKING:
    from satchel.memory.arrays import Floats, Ints
    from satchel.memory.embedding import AskedWith
    from satchel.memory.filters import Visible
    from satchel.memory.ports import Backend, FactorsOf
    from satchel.memory.records import Mode
    from satchel.memory.thread import OneThread

__all__ = ["ArrayCandidates"]

_MOST_COMPARED_CHARS = 20_000


class ArrayCandidates:
    """The memories of one space as arrays. Only `thread` touches them: what changes them and what reads never meet."""

    def __init__(self, backend: Backend, space: int, thread: OneThread) -> None:
        """Nothing is read before the first `refresh`."""
        self._backend = backend
        self._space = space
        self._thread = thread
        self._index = Index()
        self._refreshing = anyio.Lock()

    @property
    def changed(self) -> int:
        """See `ports.Candidates`."""
        return self._index.changed

    @property
    def count(self) -> int:
        """See `ports.Candidates`."""
        return self._index.alive_count

    @property
    def embedded(self) -> int:
        """See `ports.Candidates`."""
        return self._index.embedded_count

    @property
    def model(self) -> int | None:
        """See `ports.Candidates`."""
        return self._index.model

    @property
    def speakers(self) -> Mapping[str, int]:
        """See `ports.Candidates`."""
        return self._index.speaker_numbers

    async def refresh(self, *, model: int | None = None, dimension: int = 0) -> None:
        """See `ports.Candidates`."""
        async with self._refreshing:
            index = self._index
            if index.needs_rebuild:
                index = self._index = Index()
            if model is not None:
                index.dimension = dimension
                index.use_model(model)
            changes = await self._backend.read(
                lambda connection: repository.load_changes(
                    connection,
                    self._space,
                    since=index.changed,
                    model=index.model,
                    vectors_since=index.vectors_changed,
                )
            )
            if changes is not None:
                await self._thread.run(index.apply, changes)

    async def find(
        self,
        question: Question,
        asked: AskedWith | None,
        *,
        mode: Mode,
        limit: int,
        visible: Visible | None = None,
        factors: FactorsOf | None = None,
        for_showing: bool = False,
    ) -> Found:
        """See `ports.Candidates`."""
        index = self._index
        vector, tokens = (None, None) if asked is None else asked
        chosen = await self._thread.run(
            lambda: choose(
                index,
                question,
                vector,
                limit=limit,
                mode=mode,
                with_tokens=tokens is not None,
                only=None if visible is None else _rows_of(visible, index),
                without_echoes=for_showing,
            )
        )
        if chosen is None:
            return Found()
        read: Mapping[int, bytes] = {}
        model = index.model
        if chosen.lacking_tokens and model is not None:
            read = await self._backend.read(
                lambda connection: read_tokens(connection, model, chosen.lacking_tokens)
            )

        def fit() -> Scores:
            taken = index.take_tokens(read) if index.model == model else {}
            return score(index, question, chosen, mode=mode, tokens=tokens, read=taken)

        scores = await self._thread.run(fit)
        multiply: Factors | None = None
        if factors is not None:
            rids = chosen.rids if for_showing else within_reach(chosen, scores, limit)
            multiply = _by_rid(await factors(rids.tolist()))
        return await self._thread.run(
            lambda: rank(index, question, chosen, scores, limit=limit, factors=multiply)
        )

    async def cosines(self, vector: Floats, *, visible: Visible) -> Mapping[int, float]:
        """See `ports.Candidates`."""
        index = self._index

        def compare() -> dict[int, float]:
            cosines = index.cosines(vector)
            alive, rids = index.alive, index.rids
            return {
                int(rids[row]): float(cosine)
                for row, cosine in zip(cosines.rows, cosines.best, strict=True)
                if alive[row] and cosine > 0 and visible.shows(int(rids[row]))
            }

        return await self._thread.run(compare)

    async def having(self, stems: Sequence[int]) -> frozenset[int]:
        """See `ports.Candidates`."""
        index = self._index

        def read() -> frozenset[int]:
            rows = set.intersection(*(set(index.postings(stem)[0].tolist()) for stem in stems))
            return frozenset(int(index.rids[row]) for row in rows)

        return await self._thread.run(read)

    async def near(
        self, texts: Mapping[int, tuple[str, bytes | None]], *, limit: int, cosine: float, coverage: float
    ) -> Mapping[int, Mapping[int, float | None]]:
        """See `ports.Candidates`."""
        index = self._index

        def compare() -> dict[int, Mapping[int, float | None]]:
            return {
                rid: _near_words(index, rid, text, limit=limit, coverage=coverage)
                if vectors is None
                else _near_vector(index, rid, vectors, limit=limit, cosine=cosine)
                for rid, (text, vectors) in texts.items()
                if not _is_said(index, rid)
            }

        return await self._thread.run(compare)


def _is_said(index: Index, rid: int) -> bool:
    row = index.rows.get(rid)
    return row is not None and bool(index.sittings().number[row] >= 0)


def _near_vector(
    index: Index, rid: int, vectors: bytes, *, limit: int, cosine: float
) -> dict[int, float | None]:
    own = np.frombuffer(vectors, dtype="<f4").reshape(-1, index.dimension)[0]
    sitting, cosines = index.sittings().number, index.cosines(own)
    near: dict[int, float | None] = {}
    for at in top(cosines.best, limit + 1).tolist():
        row, found = int(cosines.rows[at]), float(cosines.best[at])
        other = int(index.rids[row])
        if other != rid and index.alive[row] and sitting[row] < 0 and found >= cosine:
            near[other] = found
    return near


def _near_words(index: Index, rid: int, text: str, *, limit: int, coverage: float) -> dict[int, float | None]:
    question = read_question(text[:_MOST_COMPARED_CHARS], ())
    chosen = choose(index, question, None, limit=limit + 1, mode="lexical")
    if chosen is None:
        return {}
    sitting = index.sittings().number
    found = rank(index, question, chosen, score(index, question, chosen, mode="lexical"), limit=limit + 1)
    return {
        hit.rid: None
        for hit in found.ranked
        if hit.rid != rid and sitting[hit.row] < 0 and hit.coverage >= coverage
    }


def _rows_of(visible: Visible, index: Index) -> Any:
    """Which rows are visible: shape (rows,), bool; None for all."""
    if visible.allowed is None and not visible.hidden:
        return None
    rows = np.full(len(index), visible.allowed is None, dtype=np.bool_)
    for rids, shown in ((visible.allowed or (), True), (visible.hidden, False)):
        known = index.rows.of(rids)
        rows[known[known >= 0]] = shown
    return rows


def _by_rid(found: Mapping[int, float]) -> Factors:
    def factors(rids: Ints) -> Floats:
        return np.array([found.get(rid, 1.0) for rid in rids.tolist()], dtype=np.float32)

    return factors
