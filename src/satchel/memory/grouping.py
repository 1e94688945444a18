"""What is done with a fact that is near another one: it is tied to it or takes its place. Nothing is merged or removed.

Which facts are still to be compared is a query, so that a crash loses nothing and a repeat changes nothing. Everything
that is done is in the history of both and can be undone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import anyio
from sqlalchemy import Connection, insert, select

from satchel.errors import NotFound, UsageError
from satchel.memory import lifecycle, repository
from satchel.memory.comparing import Comparison, ask_model, judge_pair
from satchel.memory.records import Hit, MemoryRecord
from satchel.memory.tables import compared, edges, memories, vectors

if TYPE_CHECKING:
    from satchel.memory.space import Space
    from satchel.models.port import ChatModel

__all__ = [
    "Grouped",
    "Grouping",
    "with_later_words",
]

_NEAR_COSINE = 0.45
"""From which a pair is compared. Far below seed-2's 0.85: a correction may share few words with what it corrects (0.52
in "decided to use MySQL" and "switched to PostgreSQL", measured with MiniLM), and comparing decides, not the cosine."""

_NEAR_COVERAGE = 0.5
"""The same where no embedder serves: the share of a fact's telling words that the other one has."""

_MOST_NEAR = 5
"""A fact is compared with so many that are nearest."""

SURE = 0.8
"""The confidence from which a correction takes the place of what it corrects; below, both are tied as contradicting.
With the embedder one of the eleven above was wrong on the reported half of the labelled set (benchmarks/compare.py);
with words alone one of ten. `undo` takes it back."""

_WORK = "compare"
_POLL_S = 0.02
_AT_ONCE = 32
_MOST_RECENT = 256
"""Facts that are compared before a search, so that it doesn't give what was corrected a moment ago: a millisecond each,
a fifth of what their vectors take. More than that come from an import, and are compared in the background."""
_EMBEDDED_FIRST = 1_024  # Memories: what has no vector is near nothing.
_MOST_COMPARED_CHARS = 1_000  # Of two texts: statements, and no pages.
_LIKELY = 0.5  # The confidence from which anything is tied at all.
_RANK = {"outside": 0, "agent": 1, "user": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class _PendingFact:
    """A fact that was not compared yet; `vectors` are of the model in use, or None."""

    rid: int
    id: str
    content: str
    vectors: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouped:
    """What comparing came to.

    Attributes:
        compared: Facts that were compared; `pairs` is how often.
        restated: Pairs tied so, and `elaborated`, `contradicted`, and `superseded` likewise.
    """

    compared: int = 0
    pairs: int = 0
    restated: int = 0
    elaborated: int = 0
    contradicted: int = 0
    superseded: int = 0

    def __add__(self, other: Grouped) -> Grouped:
        """Both together."""
        names = [one.name for one in fields(self)]
        return Grouped(**{name: getattr(self, name) + getattr(other, name) for name in names})


class Grouping:
    """Compares the facts of a space with those near them."""

    def __init__(self, space: Space) -> None:
        """Take the space."""
        self._space = space
        self._seen = -1
        self._since = 0  # The change up to which no fact is left to be compared.

    async def compare(self, older: str, newer: str, *, model: ChatModel | None) -> Comparison:
        """How a newer statement stands to an older one; see `Memory.compare`."""
        if model is not None and older.strip() and newer.strip():
            found = await ask_model(model, older, newer)
            if found is not None:
                return found
        similarity: float | None = None
        dense = self._space.dense
        if dense is not None and older.strip() and newer.strip():
            rows = await dense.vectors_of([older, newer])
            similarity = None if rows is None else float(rows[0] @ rows[1])
        return judge_pair(older, newer, similarity)

    async def group(self, *, limit: int | None, model: ChatModel | None) -> Grouped:
        """Compare facts until none is left, or `limit` were compared; see `Memory.group`."""
        total = Grouped()
        while limit is None or total.compared < limit:
            most = _AT_ONCE if limit is None else min(_AT_ONCE, limit - total.compared)
            done = await self.some(most, model=model)
            if not done.compared:
                break
            total += done
        return total

    async def recent(self, *, wait_s: float) -> None:
        """Compare the facts that were stored a moment ago, if they are few: for whoever searches right after.

        Args:
            wait_s: How long to wait for a lock, and for what other processes are comparing.

        Raises:
            StorageLocked: The database was locked for longer.
        """
        changed = self._space.candidates.changed
        if changed == self._seen:
            return
        pending = await self._count()
        if 0 < pending <= _MOST_RECENT:
            pending -= (await self.some(_MOST_RECENT, wait_s=wait_s)).compared
            waited_s = 0.0
            while pending and waited_s < wait_s and await self._space.claims.is_held(_WORK):
                await anyio.sleep(_POLL_S)
                pending, waited_s = await self._count(), waited_s + _POLL_S
            await self._space.refresh()
        if not pending:
            self._since = changed
        self._seen = self._space.candidates.changed

    async def _count(self) -> int:
        return await self._space.read(_count_pending, since=self._since, limit=_MOST_RECENT + 1)

    async def some(
        self, most: int, *, model: ChatModel | None = None, wait_s: float | None = None
    ) -> Grouped:
        """Compare some facts, the oldest, after embedding what has no vectors yet.

        Args:
            most: So many at most.
            model: Asked about pairs that are not clear.
            wait_s: How long to wait for a lock; None for as long as the database is set to.

        Raises:
            StorageLocked: The database was locked for longer.
        """
        space, dense = self._space, self._space.dense
        if dense is not None:
            await dense.open()
        await space.refresh()
        missing = space.candidates.count - space.candidates.embedded
        # Finding what has no vector reads the whole space.
        if dense is not None and missing:
            await dense.fill(limit=min(_EMBEDDED_FIRST, missing), wait_s=wait_s)
            await space.refresh()
        serving = space.candidates.model if dense is not None and dense.trouble is None else None

        def find(connection: Connection, held: Collection[str]) -> list[_PendingFact]:
            return _pending_facts(
                connection, space.id, model=serving, limit=most, since=self._since, without=held
            )

        async with space.claims.take(_WORK, find, name=lambda fact: str(fact.rid), wait_s=wait_s) as facts:
            return await self._tie(facts, model) if facts else Grouped()

    async def _tie(self, facts: Sequence[_PendingFact], model: ChatModel | None) -> Grouped:
        """Compare these facts with what is near them, and tie what belongs together."""
        space = self._space
        near = await space.candidates.near(
            {fact.rid: (fact.content, fact.vectors) for fact in facts},
            limit=_MOST_NEAR,
            cosine=_NEAR_COSINE,
            coverage=_NEAR_COVERAGE,
        )
        wanted = {rid for found in near.values() for rid in found} | {fact.rid for fact in facts}
        records = await space.read(repository.read_records, sorted(wanted))
        findings = [(fact, await _compared(fact, near.get(fact.rid, {}), records, model)) for fact in facts]
        at = space.now_micros()

        def write(connection: Connection, space: int) -> Grouped:
            total = Grouped()
            for fact, found in findings:
                total += _write_findings(connection, space, fact, found, at)
            return total

        return await space.write(write)


async def _compared(
    fact: _PendingFact,
    near: Mapping[int, float | None],
    records: Mapping[int, MemoryRecord],
    model: ChatModel | None,
) -> list[tuple[MemoryRecord, MemoryRecord, Comparison]]:
    """The older one, the newer one, and how they stand, for each memory that is near a fact."""
    findings = []
    for rid, cosine in near.items():
        if fact.rid not in records or rid not in records or records[rid].kind != "fact":
            continue
        older, newer = _in_order(records[rid], records[fact.rid], one_first=rid < fact.rid)
        found = judge_pair(older.content, newer.content, cosine)
        if model is not None and found.confidence < 1:
            found = await ask_model(model, older.content, newer.content) or found
        findings.append((older, newer, found))
    return findings


def _pending(space: int, since: int) -> Any:
    return (
        select(memories.c.rid)
        .select_from(memories.outerjoin(compared, compared.c.rid == memories.c.rid))
        .where(
            memories.c.space_id == space,
            memories.c.changed > since,
            memories.c.kind == "fact",
            compared.c.rid.is_(None),
        )
    )


def _count_pending(connection: Connection, space: int, *, since: int, limit: int) -> int:
    """How many facts that changed after `since` are to be compared, counted up to a limit."""
    return len(connection.execute(_pending(space, since).limit(limit)).all())


def _pending_facts(
    connection: Connection,
    space: int,
    *,
    model: int | None,
    limit: int,
    since: int,
    without: Collection[str],
) -> list[_PendingFact]:
    """The oldest facts that changed after `since` and are to be compared; with a model, those with its vectors.

    Those whose rids are in `without` are being compared already.
    """
    query = _pending(space, since).add_columns(memories.c.id, memories.c.content)
    if model is not None:
        query = query.add_columns(vectors.c.vectors).join(
            vectors, (vectors.c.rid == memories.c.rid) & (vectors.c.model_id == model)
        )
    if without:
        query = query.where(memories.c.rid.not_in([int(rid) for rid in without]))
    rows = connection.execute(query.order_by(memories.c.rid).limit(limit)).all()
    return [
        _PendingFact(
            rid=row.rid,
            id=row.id,
            content=row.content,
            vectors=None if model is None else row.vectors,
        )
        for row in rows
    ]


def with_later_words(hits: Sequence[Hit], near: Sequence[Hit]) -> tuple[Hit, ...]:
    """What is to be shown, and before each of it what was said later and takes it back.

    What was said in conversations is never superseded, since it is the record; a model that is shown an old decision
    alone takes it for the one that holds.

    Args:
        hits: To be shown, surest first.
        near: Found too, and not sure enough by themselves.
    """
    shown: dict[str, Hit] = {}
    for hit in hits:
        later = [
            other
            for other in near
            if other.memory.said_at > hit.memory.said_at
            and len(other.memory.content) + len(hit.memory.content) <= _MOST_COMPARED_CHARS
            and _takes_back(judge_pair(hit.memory.content, other.memory.content, None))
        ]
        if later:
            latest = max(later, key=lambda other: other.memory.said_at)
            shown.setdefault(latest.memory.id, replace(latest, score=hit.score))
        shown.setdefault(hit.memory.id, hit)
    return tuple(shown.values())


def _takes_back(found: Comparison) -> bool:
    return found.relation == "corrects" and found.confidence >= SURE


def _in_order(
    one: MemoryRecord, other: MemoryRecord, *, one_first: bool
) -> tuple[MemoryRecord, MemoryRecord]:
    """The older and the newer of two; of those said in the same moment, in the order they were stored."""

    def since(record: MemoryRecord) -> datetime:
        return record.valid_from or record.said_at

    if since(one) == since(other):
        return (one, other) if one_first else (other, one)
    return (one, other) if since(one) < since(other) else (other, one)


def _write_findings(
    connection: Connection,
    space: int,
    fact: _PendingFact,
    findings: Sequence[tuple[MemoryRecord, MemoryRecord, Comparison]],
    at: int,
) -> Grouped:
    """Tie a fact to those it was compared with, and keep that it was.

    Args:
        connection: In a transaction that writes.
        space: Where they are.
        fact: The fact.
        findings: The older one, the newer one, and how they stand.
        at: When.
    """
    there = connection.execute(
        select(memories.c.content, compared.c.rid)
        .select_from(memories.outerjoin(compared, compared.c.rid == memories.c.rid))
        .where(memories.c.rid == fact.rid)
    ).first()
    if there is None or there.rid is not None or there.content != fact.content:
        return Grouped()  # It was forgotten or edited meanwhile, or another process was quicker.
    connection.execute(insert(compared).values(rid=fact.rid, compared_at=at))
    done = Grouped(compared=1, pairs=len(findings))
    for older, newer, found in findings:
        try:
            done += _tie(connection, space, older, newer, found, at)
        except (NotFound, UsageError):
            continue  # One of them was forgotten meanwhile, or a person has said otherwise before.
    return done


def _tie(
    connection: Connection, space: int, older: MemoryRecord, newer: MemoryRecord, found: Comparison, at: int
) -> Grouped:
    relation = found.relation
    if found.confidence < _LIKELY or relation in ("related", "unrelated"):
        return Grouped()
    if relation == "corrects" and _tied(connection, space, older.id, newer.id, "elaborates", "restates"):
        return Grouped()
    why = f"compared: {relation}, confidence {found.confidence:.2f}"
    if relation == "corrects" and found.confidence >= SURE and _RANK[newer.trust] >= _RANK[older.trust]:
        lifecycle.supersede(
            connection, space, older.id, newer.id, valid_to=None, at=at, who=lifecycle.COMPARE, why=why
        )
        return Grouped(superseded=1)
    name = {"restates": "restates", "elaborates": "elaborates", "corrects": "contradicts"}[relation]
    change = lifecycle.link(
        connection,
        space,
        newer.id,
        older.id,
        name,
        round(found.confidence, 4),
        at=at,
        who=lifecycle.COMPARE,
        why=why,
    )
    if change is None:
        return Grouped()
    return Grouped(
        restated=int(name == "restates"),
        elaborated=int(name == "elaborates"),
        contradicted=int(name == "contradicts"),
    )


def _tied(connection: Connection, space: int, one: str, other: str, *relations: str) -> bool:
    """Whether an edge of these relations lies between two memories already."""
    ends = memories.alias("ends")
    row = connection.execute(
        select(edges.c.relation)
        .join(memories, memories.c.rid == edges.c.source_rid)
        .join(ends, ends.c.rid == edges.c.target_rid)
        .where(
            memories.c.space_id == space,
            memories.c.id.in_((one, other)),
            ends.c.id.in_((one, other)),
            edges.c.relation.in_(relations),
        )
    ).first()
    return row is not None
