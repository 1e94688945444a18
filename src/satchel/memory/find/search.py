"""Searching: reads only. What may not be shown is left out before anything is counted or limited."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, get_args

from satchel.errors import UsageError
from satchel.memory.find import folding, formulas, presenting
from satchel.memory.find.candidates.ranking import Ranked
from satchel.memory.find.question import (
    AskedWith,
    ParsedQuestion,
    is_widespread,
    may_name_days,
    possible_names,
    read_question,
)
from satchel.memory.records import Discretion, Hit, MemoryRecord, Mode
from satchel.memory.store import history, repository
from satchel.memory.store.checking import printable
from satchel.memory.store.filters import CheckedFilters, Filters, Visible
from satchel.memory.text import lexicon

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection

    from satchel.memory.find.candidates.engine import FactorsOf
    from satchel.memory.store.filters import VisibleOf
    from satchel.memory.store.space import Space

_PRESENTED = 10
"""Hits of which the best passage is looked for: as many as a model or a person reads."""
_PRESENTED_CHARS = 20_000
_EVIDENCE_OF_ONE = 3
"""Hits for each that is wanted, where a fact's turn and the answer to it are one with it."""
_QUICKLY_READ_CHARS = 1_000
_WORD = re.compile(r"[^\W_]{2,}")
_NEAREST = 2.0
_NEAREST_TO_UNKNOWN = 2.75
"""How many standard deviations of the cosines of unrelated messages the nearest must be above their mean where no
memory has a word of the query; the second one where the embedder knows none of its words whole either. Chosen on three
lives of `life-dev`. On five others something was shown for 18 of 150 invented words (149 with 1 for both) and for 32 of
88 real ones that the lives say nothing of (83), and what bears on it for 65 of the 86 topics for which it was.
"""


class Search:
    """Finds the memories of a space. It sees what was embedded and compared so far; `Upkeep.prepare` sees to that."""

    def __init__(self, space: Space) -> None:
        self._space = space

    async def hits(
        self,
        query: str,
        *,
        limit: int,
        mode: Mode,
        include_superseded: bool,
        threshold: float | None = None,
        relevant_only: bool = False,
        clearly: bool = False,
        filters: Filters,
    ) -> tuple[Hit, ...]:
        """Find memories, best first; see `Memory.search`."""
        if mode not in get_args(Mode):
            raise UsageError(f"There is no search mode {mode!r}; the modes are {', '.join(get_args(Mode))}.")
        if limit < 1:
            raise UsageError(f"A search for {limit} memories finds nothing; ask for 1 or more.")
        query = printable(query)
        wanted = self._space.filter_of(filters)
        most = limit * _EVIDENCE_OF_ONE if wanted.pop("folded", False) else limit
        visible = self.visible(wanted, include_superseded=include_superseded or "as_of" in wanted)
        if mode == "keyword":
            hits = await self._by_keywords(query, visible, limit=most)
        elif mode == "semantic":
            least = formulas.SEMANTIC_THRESHOLD if threshold is None else threshold
            hits = await self._by_meaning(query, visible, limit=most, threshold=least)
        else:
            found, asked = await self._found(query, limit=most, mode=mode, visible=visible)
            least = await self._least_cosine(found, asked, clearly=clearly) if relevant_only else -math.inf
            hits = tuple(
                Hit(memory=record, score=round(one.score, 6), signals=one.signals)
                for one, record in found
                if one.shares_word or max(one.cosine or -1.0, one.cue) > least
            )
        if threshold is not None and mode != "semantic":
            hits = tuple(hit for hit in hits if hit.score > threshold)
        hits = await self._as_of(hits, wanted.get("as_of"))
        hits = hits if mode == "semantic" else await self._presented(query, hits)
        if most == limit:
            return hits
        evidence = await self._space.read(folding.read_evidence, [hit.memory.id for hit in hits])
        return folding.folded_hits(hits, evidence, limit=limit)

    async def _as_of(self, hits: Sequence[Hit], moment: datetime | None) -> tuple[Hit, ...]:
        """The same hits, with their memories as they stood at a moment, and those marked whose time was over then; None
        is now.
        """
        then = await self.as_written([hit.memory for hit in hits], moment)
        now = moment or self._space.clock.now()
        return tuple(
            replace(hit, memory=memory, is_over=memory.is_over(now))
            for hit, memory in zip(hits, then, strict=True)
        )

    async def _presented(self, query: str, hits: tuple[Hit, ...]) -> tuple[Hit, ...]:
        replies = [hit.memory for hit in hits[:_PRESENTED] if presenting.is_short_reply(hit.memory)]
        asked = await self._space.read(presenting.questions_before, replies) if replies else {}
        stems = lexicon.stems_of(query[:_PRESENTED_CHARS])
        return (
            *(
                replace(
                    hit,
                    passage=presenting.best_passage(hit.memory.content, stems),
                    answers=asked.get(hit.memory.id),
                )
                for hit in hits[:_PRESENTED]
            ),
            *hits[_PRESENTED:],
        )

    async def _least_cosine(
        self,
        found: Sequence[tuple[Ranked, MemoryRecord]],
        asked: tuple[ParsedQuestion, AskedWith | None],
        *,
        clearly: bool,
    ) -> float:
        """How near to a question what has no telling word of it must be, itself or by a cue: nearer than unrelated
        messages are. `clearly`: where nothing has a word of it, the nearest must stand out, or nothing is near.
        """
        dense = self._space.dense
        gate = None if dense is None or not found else await dense.gate()
        if gate is None:
            return math.inf
        if not clearly:
            return gate.mean + gate.deviation
        near = _NEAREST if _knows_a_word(*asked) else _NEAREST_TO_UNKNOWN
        is_near = any(
            one.shares_word or max(one.cosine or -1.0, one.cue) > gate.mean + near * gate.deviation
            for one, _ in found
        )
        return gate.mean + gate.deviation if is_near else math.inf

    async def as_written(
        self, memories: Sequence[MemoryRecord], moment: datetime | None
    ) -> tuple[MemoryRecord, ...]:
        """Memories as they stood at a moment; see `Memory.as_written`. None is now."""
        if moment is None or not memories:
            return tuple(memories)
        return tuple(await self._space.read(history.as_written, memories, moment))

    async def list(
        self, filters: Filters, *, limit: int, offset: int, facts_first: bool = False
    ) -> tuple[MemoryRecord, ...]:
        """Return the memories that fit, the newest first; see `Memory.list`."""
        wanted = self._space.filter_of(filters)
        found = await self._space.read(
            repository.list_records,
            wanted,
            limit=max(0, limit),
            offset=max(0, offset),
            facts_first=facts_first,
        )
        return await self.as_written(found, wanted.get("as_of"))

    def visible(
        self,
        wanted: CheckedFilters,
        *,
        include_superseded: bool,
        without_session: str | None = None,
        exclude: Collection[str] = (),
        over_from: int = 0,
        without: Collection[Discretion] = (),
    ) -> VisibleOf:
        """Return what reads which memories may be found.

        Nothing of the session `without_session`, and nothing that is held back as in `without`. What is over because
        its time is over is among them from the importance `over_from` on; it is shown as past.
        """
        now, space = self._space.now_micros(), self._space.id

        def read(connection: Connection) -> Visible:
            hidden: list[int] = []
            if not include_superseded:
                hidden += repository.expired_rids(connection, space, now, over_from=over_from)
            if without_session is not None:
                hidden += repository.rids_of_session(connection, space, without_session)
            if without:
                hidden += repository.held_back_rids(connection, space, without)
            if exclude:
                hidden += repository.rids_of(connection, space, list(exclude))
            return Visible(
                allowed=None
                if not wanted
                else frozenset(repository.matching_rids(connection, space, wanted)),
                hidden=frozenset(hidden),
            )

        return read

    async def _found(
        self, query: str, *, limit: int, mode: Mode, visible: VisibleOf
    ) -> tuple[Sequence[tuple[Ranked, MemoryRecord]], tuple[ParsedQuestion, AskedWith | None]]:
        """Find memories, best first, in what `candidates` took in last, without what was forgotten meanwhile; returns
        also the query as it was asked. In the mode "hybrid", importance, recency and priority move scores by a tenth
        each.
        """
        space = self._space
        question, asked = await self._asked(query, mode)
        if not space.candidates.contents.count or not query.strip():
            return (), (question, asked)

        def with_records(
            connection: Connection, found: tuple[Ranked, ...]
        ) -> Sequence[tuple[Ranked, MemoryRecord]]:
            records = repository.read_records(connection, space.id, [one.rid for one in found])
            return [(one, records[one.rid]) for one in found if one.rid in records]

        found = await space.candidates.find(
            question,
            asked,
            limit=limit,
            then=with_records,
            visible=visible,
            factors=self._boosts() if mode == "hybrid" else None,
        )
        return found, (question, asked)

    async def _asked(self, query: str, mode: Mode) -> tuple[ParsedQuestion, AskedWith | None]:
        """A query as it was parsed and as the embedder has it; None where it isn't compared by meaning."""
        space, candidates = self._space, self._space.candidates
        dense = None if mode == "lexical" else space.dense
        if dense is not None:
            await dense.open()
        question, asked = await self._read(query), None
        if dense is not None and candidates.contents.count and query.strip():
            if mode == "semantic" or dense.reads(question.text):
                asked = await dense.question(question.text)
            await candidates.note_asked()
        return question, asked

    async def _read(self, query: str) -> ParsedQuestion:
        """Parse a query with what the space tells of it; on memory's thread if that may take long."""
        candidates = self._space.candidates
        is_quick = len(query) <= _QUICKLY_READ_CHARS and not may_name_days(query)
        names = possible_names(query) if is_quick else await self._space.thread.run(possible_names, query)
        having = await candidates.count_having(names) if names else {}
        widespread = [
            name for name, count in having.items() if is_widespread(count, candidates.contents.count)
        ]

        def read() -> ParsedQuestion:
            return read_question(
                query,
                candidates.contents.speakers.items(),
                asked_at=self._space.clock.now(),
                locale=self._space.locale,
                widespread=widespread,
            )

        return read() if is_quick else await self._space.thread.run(read)

    def _boosts(self) -> FactorsOf:
        space, now = self._space, self._space.clock.now()
        return lambda connection, rids: formulas.boosts_of(
            connection, space.id, rids, now=now, by_request=space.by_request
        )

    async def _by_keywords(self, query: str, visible: VisibleOf, *, limit: int) -> tuple[Hit, ...]:
        scored = await self._space.read(
            formulas.score_by_keywords,
            formulas.keywords_of(query),
            now=self._space.clock.now(),
            by_request=self._space.by_request,
            visible=visible,
        )
        return tuple(scored[:limit])

    async def _by_meaning(
        self, query: str, visible: VisibleOf, *, limit: int, threshold: float
    ) -> tuple[Hit, ...]:
        _, asked = await self._asked(query, "semantic")
        if asked is None:
            return ()
        seen = await self._space.backend.read(visible)
        scored = await self._space.read(
            formulas.score_by_meaning,
            await self._space.candidates.cosines(asked.vector, visible=seen),
            now=self._space.clock.now(),
            threshold=threshold,
        )
        return tuple(scored[:limit])


def _knows_a_word(question: ParsedQuestion, asked: AskedWith | None) -> bool:
    """Whether the embedder has a token for a whole word of the query; one without tokens may."""
    if asked is None or asked.tokens is None:
        return True
    spans = {(int(start), int(end)) for start, end in asked.tokens.spans}
    return any(word.span() in spans for word in _WORD.finditer(question.text))
