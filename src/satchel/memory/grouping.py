"""Compares facts with similar ones and links them; a correction supersedes what it corrects. Nothing is merged or
deleted.

A query finds the facts that are still to be compared, so a crash loses nothing and repeating the work changes nothing.
Every change is in the history of both facts and can be undone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
from sqlalchemy import Connection, bindparam, insert, null, select

from satchel.clock import local_day
from satchel.errors import NotFound, UsageError
from satchel.memory import lifecycle, repository
from satchel.memory.comparing import Comparison, ask_model, judge_pair
from satchel.memory.graph import MAY_REPLACE
from satchel.memory.records import TRUST_RANK, MemoryRecord
from satchel.memory.repository import listed
from satchel.memory.spending import Asked, add_usage
from satchel.memory.tables import compared, edges, memories, vectors
from satchel.storage import Prepared

if TYPE_CHECKING:
    from satchel.memory.space import Space
    from satchel.models.port import ChatModel

__all__ = [
    "Grouped",
    "Grouping",
]

_NEAR_COSINE = 0.2
"""The least cosine of a pair that is compared. It is far below the 0.85 of seed-2, because a correction may share few
words with what it corrects. In 20 invented lives, 1 % of the facts that were replaced are below it with MiniLM (18 %
below 0.45), and 98 % are among the five nearest. The comparison decides, not the cosine."""

_NEAR_COVERAGE = 0.5
"""The same without an embedder: the least share of a fact's words, weighted by rarity, that the other one contains."""

_MAX_NEAR = 5
"""The number of nearest facts that a fact is compared with."""

_LEAST_CORRECTION = 0.12
"""The probability of a correction from which two facts are linked as `may_replace`. On pairs by left-out authors, that
misses at most 8 % of the corrections, and links a quarter to two fifths of the merely related or unrelated
(benchmarks/compare.py). The weight of the link is the probability, so whatever shows it can ask for more."""

SURE = 0.8
"""The confidence from which a language model's verdict takes effect by itself."""

_WORK = "compare"
_POLL_S = 0.02
_BATCH = 32
"""Facts that are compared and linked together, in a transaction of a tenth of a second."""
_ASKED_AT_ONCE = 4  # Requests to a language model; most providers allow more.
_CLAIMED = 256
"""Facts that are claimed together, because finding those that are left passes over all others."""
_MAX_RECENT = 256
"""The number of new facts that are compared before a search, so that it doesn't return what was just corrected. Each
takes a millisecond, a fifth of the time to embed it. More come from an import and are compared in the background."""
_EMBED_FIRST = 1_024  # Memories that are embedded before comparing; one without a vector is near nothing.
_PROBABLE = 0.5  # The probability of a correction with which an episode is shown before what it corrects.
_MAX_STATEMENT_CHARS = 1_000  # Of two texts together; longer ones are pages and not statements.
_LIKELY = 0.4  # The least confidence with which facts are linked as restating or elaborating.


@dataclass(frozen=True, slots=True, kw_only=True)
class _PendingFact:
    """A fact to compare; `vectors` are of the embedding model in use, or None."""

    rid: int
    id: str
    content: str
    vectors: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouped:
    """The results of comparing.

    Attributes:
        compared: The number of facts that were compared; `pairs` is the number of comparisons.
        restated: The number of pairs that were linked as restating; `elaborated` and `may_replace` likewise.
        superseded: The number of facts that another one superseded.
    """

    compared: int = 0
    pairs: int = 0
    restated: int = 0
    elaborated: int = 0
    may_replace: int = 0
    superseded: int = 0

    def __add__(self, other: Grouped) -> Grouped:
        """The sums of all fields."""
        names = [one.name for one in fields(self)]
        return Grouped(**{name: getattr(self, name) + getattr(other, name) for name in names})


class Grouping:
    """Compares the facts of a space with similar ones."""

    def __init__(self, space: Space) -> None:
        """Compare in this space."""
        self._space = space
        self._seen = -1
        self._since = 0  # All facts up to this change have been compared.

    async def compare(
        self, older: str, newer: str, *, model: ChatModel | None, asked: list[Asked]
    ) -> Comparison:
        """Compare a newer statement with an older one; see `Memory.compare`. The cost is appended to `asked`."""
        if model is not None and older.strip() and newer.strip():
            found = await ask_model(model, older, newer, asked)
            if found is not None:
                return found
        similarity: float | None = None
        dense = self._space.dense
        if dense is not None and older.strip() and newer.strip():
            similarity = await dense.similarity(older, newer)
        return judge_pair(older, newer, similarity)

    async def group(self, *, limit: int | None, model: ChatModel | None) -> Grouped:
        """Compare facts until none is left or `limit` were compared; see `Memory.group`."""
        total = Grouped()
        while limit is None or total.compared < limit:
            most = _CLAIMED if limit is None else min(_CLAIMED, limit - total.compared)
            done = await self.compare_some(most, model=model)
            if not done.compared:
                break
            total += done
        return total

    async def compare_recent(self, *, wait_s: float) -> None:
        """Compare the facts that were just stored, if they are few, so that a search takes them into account.

        Args:
            wait_s: How long to wait for a lock, and for other processes that are comparing.

        Raises:
            StorageLocked: The database was locked for longer.
        """
        changed = self._space.candidates.changed
        if changed == self._seen:
            return
        done, found = await self._compare_next(_MAX_RECENT, wait_s=wait_s, unless_more=True)
        pending = found - done.compared
        if 0 < found <= _MAX_RECENT:
            waited_s = 0.0
            while pending and waited_s < wait_s and await self._space.claims.is_held(_WORK):
                await anyio.sleep(_POLL_S)
                pending = await self._space.read(_count_pending, since=self._since, limit=_MAX_RECENT + 1)
                waited_s += _POLL_S
            if done.pairs or waited_s:
                await self._space.refresh()
        if not pending:
            self._since = changed
        self._seen = self._space.candidates.changed

    async def compare_some(
        self, most: int, *, model: ChatModel | None = None, wait_s: float | None = None
    ) -> Grouped:
        """Compare the oldest facts that are pending, after embedding those without vectors.

        Args:
            most: The maximum number of facts.
            model: Asked about every pair that isn't certain.
            wait_s: How long to wait for a lock; None for the database's own limit.

        Raises:
            StorageLocked: The database was locked for longer.
        """
        space, dense = self._space, self._space.dense
        if dense is not None:
            await dense.open()
        await space.refresh()
        missing = space.candidates.count - space.candidates.embedded
        # Checked first, because finding memories without vectors reads the whole space.
        if dense is not None and missing:
            await dense.fill(limit=min(_EMBED_FIRST, missing), wait_s=wait_s)
            await space.refresh()
        return (await self._compare_next(most, model=model, wait_s=wait_s))[0]

    async def _compare_next(
        self, most: int, *, model: ChatModel | None = None, wait_s: float | None, unless_more: bool = False
    ) -> tuple[Grouped, int]:
        """Compare the oldest pending facts that are embedded; see `compare_some`.

        Args:
            most: The maximum number of facts.
            model: Asked about every pair that isn't certain.
            wait_s: How long to wait for a lock.
            unless_more: Compare none if more than `most` are pending.

        Returns:
            The result, and the number of facts that were pending, counted up to `most` + 1.
        """
        space, dense = self._space, self._space.dense
        pending = 0
        serving = space.candidates.models if dense is not None and dense.trouble is None else ()

        def find(connection: Connection, held: Collection[str]) -> list[_PendingFact]:
            nonlocal pending
            pending = _count_pending(connection, space.id, since=self._since, limit=most + 1)
            if not pending or (unless_more and pending > most):
                return []
            return _pending_facts(
                connection, space.id, models=serving, limit=most, since=self._since, without=held
            )

        async with space.claims.take(_WORK, find, name=lambda fact: str(fact.rid), wait_s=wait_s) as taken:
            total = Grouped()
            for at in range(0, len(taken.pieces), _BATCH):
                is_last = at + _BATCH >= len(taken.pieces)
                total += await self._compare_and_link(
                    taken.pieces[at : at + _BATCH], model, also=taken.release if is_last else None
                )
            return total, pending

    async def _compare_and_link(
        self,
        facts: Sequence[_PendingFact],
        model: ChatModel | None,
        *,
        also: Callable[[Connection], None] | None,
    ) -> Grouped:
        """Compare these facts with the nearest ones, write the links and, in the same transaction, `also`."""
        space = self._space
        near = await space.candidates.near(
            {fact.rid: (fact.content, fact.vectors) for fact in facts},
            limit=_MAX_NEAR,
            cosine=_NEAR_COSINE,
            coverage=_NEAR_COVERAGE,
        )
        findings: list[tuple[_PendingFact, list[_Finding]]] = [(fact, []) for fact in facts]
        wanted = {rid for found in near.values() for rid in found}
        if wanted:
            wanted |= {fact.rid for fact in facts}
            records = await space.read(repository.read_records, sorted(wanted))
            # A third of a millisecond for each pair: too long for the event loop.
            findings = await space.thread.run(
                lambda: [(fact, _compare_with(fact, near.get(fact.rid, {}), records)) for fact in facts]
            )
        asked: list[Asked] = []
        if model is not None:
            findings = await _ask_about(findings, model, asked)
        day = local_day(space.clock.now())
        at = space.now_micros()

        def write(connection: Connection, space: int) -> Grouped:
            if also is not None:
                also(connection)
            add_usage(connection, space, asked, day)
            total = Grouped()
            for fact, found in findings:
                total += _write_findings(connection, space, fact, found, at)
            return total

        return await space.write(write)


_Finding: TypeAlias = tuple[MemoryRecord, MemoryRecord, Comparison]
"""The older memory, the newer one and their relation."""


def _compare_with(
    fact: _PendingFact, near: Mapping[int, float | None], records: Mapping[int, MemoryRecord]
) -> list[_Finding]:
    """A finding for each memory near a fact."""
    if fact.rid not in records:
        return []
    own = records[fact.rid]
    findings = []
    for rid, cosine in near.items():
        if rid not in records or records[rid].kind != "fact":
            continue
        if len(records[rid].content) + len(own.content) > _MAX_STATEMENT_CHARS:
            continue
        older, newer = _in_order(records[rid], own, one_first=rid < fact.rid)
        found = judge_pair(older.content, newer.content, cosine)
        findings.append((older, newer, found))
    return findings


async def _ask_about(
    findings: Sequence[tuple[_PendingFact, list[_Finding]]], model: ChatModel, asked: list[Asked]
) -> list[tuple[_PendingFact, list[_Finding]]]:
    """The findings of a language model, where the given ones aren't certain. The cost is appended to `asked`.

    Two new facts that are near each other both bring their pair; the model is asked about it once.
    """
    answers: dict[tuple[str, str], Comparison] = {}
    slots = anyio.CapacityLimiter(_ASKED_AT_ONCE)

    async def ask(older: MemoryRecord, newer: MemoryRecord) -> None:
        async with slots:
            answer = await ask_model(model, older.content, newer.content, asked)
        if answer is not None:
            answers[older.id, newer.id] = answer

    pairs = {
        (older.id, newer.id): (older, newer)
        for _, some in findings
        for older, newer, found in some
        if found.confidence < 1
    }
    async with anyio.create_task_group() as group:
        for older, newer in pairs.values():
            group.start_soon(ask, older, newer)
    return [
        (fact, [(older, newer, answers.get((older.id, newer.id), found)) for older, newer, found in some])
        for fact, some in findings
    ]


_PENDING = (
    select(memories.c.rid)
    .select_from(memories.outerjoin(compared, compared.c.rid == memories.c.rid))
    .where(
        memories.c.space_id == bindparam("space"),
        memories.c.changed > bindparam("since"),
        memories.c.kind == "fact",
        compared.c.rid.is_(None),
    )
    .limit(bindparam("most"))
)
_COUNTED = Prepared(_PENDING)
# In the order of an index, so that SQLite need not sort all of them.
_FACTS = (
    _PENDING.add_columns(memories.c.id, memories.c.content)
    .where(memories.c.rid.not_in(listed(bindparam("without"))))
    .order_by(memories.c.changed, memories.c.rid)
)
_NEXT_FACTS = Prepared(_FACTS.add_columns(null()))
_NEXT_EMBEDDED = Prepared(
    _FACTS.add_columns(vectors.c.vectors).join(
        vectors, (vectors.c.rid == memories.c.rid) & vectors.c.model_id.in_(listed(bindparam("models")))
    )
)


def _count_pending(connection: Connection, space: int, *, since: int, limit: int) -> int:
    """The number of pending facts that changed after `since`, counted up to a limit."""
    return len(_COUNTED.run(connection, {"space": space, "since": since, "most": limit}))


def _pending_facts(
    connection: Connection,
    space: int,
    *,
    models: Sequence[int],
    limit: int,
    since: int,
    without: Collection[str],
) -> list[_PendingFact]:
    """The oldest pending facts that changed after `since`; with embedding `models`, only those with their vectors. The
    rids in `without` are left out: another process is comparing them.
    """
    values: dict[str, Any] = {"space": space, "since": since, "most": limit}
    if models:
        values["models"] = json.dumps(list(models))
    query = _NEXT_EMBEDDED if models else _NEXT_FACTS
    rows = query.run(connection, {**values, "without": json.dumps([int(rid) for rid in without])})
    return [
        _PendingFact(rid=rid, id=id, content=content, vectors=packed) for rid, id, content, packed in rows
    ]


def _in_order(
    one: MemoryRecord, other: MemoryRecord, *, one_first: bool
) -> tuple[MemoryRecord, MemoryRecord]:
    """The older and the newer of two memories; if their times are equal, in the order in which they were stored."""

    def since(record: MemoryRecord) -> datetime:
        return record.valid_from or record.said_at

    if since(one) == since(other):
        return (one, other) if one_first else (other, one)
    return (one, other) if since(one) < since(other) else (other, one)


# These run several times for each fact, and building a statement takes longer than running it.
_UNCOMPARED = Prepared(
    select(memories.c.content)
    .select_from(memories.outerjoin(compared, compared.c.rid == memories.c.rid))
    .where(memories.c.rid == bindparam("rid"), compared.c.rid.is_(None))
)
_COMPARED = Prepared(insert(compared), columns=["rid", "compared_at"])
_ENDS = memories.alias("ends")
_LINKED = (
    select(edges.c.relation)
    .join(memories, memories.c.rid == edges.c.source_rid)
    .join(_ENDS, _ENDS.c.rid == edges.c.target_rid)
    .where(
        memories.c.space_id == bindparam("space"),
        memories.c.id.in_(bindparam("ids", expanding=True)),
        _ENDS.c.id.in_(bindparam("ids", expanding=True)),
        edges.c.relation.in_(bindparam("relations", expanding=True)),
    )
)


def _write_findings(
    connection: Connection,
    space: int,
    fact: _PendingFact,
    findings: Sequence[_Finding],
    at: int,
) -> Grouped:
    """Write the links of a fact, and mark it as compared. `at` is in microseconds."""
    if _UNCOMPARED.run(connection, {"rid": fact.rid}) != [(fact.content,)]:
        return Grouped()  # It was forgotten or edited meanwhile, or another process compared it first.
    _COMPARED.run(connection, {"rid": fact.rid, "compared_at": at})
    done = Grouped(compared=1, pairs=len(findings))
    for older, newer, found in findings:
        try:
            done += _link(connection, space, older, newer, found, at)
        except (NotFound, UsageError):
            continue  # One of them was forgotten meanwhile, or a person has undone this link.
    return done


def _link(
    connection: Connection, space: int, older: MemoryRecord, newer: MemoryRecord, found: Comparison, at: int
) -> Grouped:
    """Write what comparing two facts has found.

    Besides a likely restatement or elaboration, a possible correction is linked too: which of the two it is, is often
    hard to tell.
    """
    is_known = _are_linked(connection, space, older.id, newer.id, "elaborates", "restates")
    written = []
    if found.relation in ("restates", "elaborates") and found.confidence >= _LIKELY:
        written.append(_relate(connection, space, older, newer, found.relation, found, at))
    is_possible = found.correction >= _LEAST_CORRECTION and found.confidence < SURE
    if (found.relation == "corrects" or is_possible) and not is_known:
        written.append(_relate(connection, space, older, newer, "corrects", found, at))
    return Grouped(
        restated=written.count("restates"),
        elaborated=written.count("elaborates"),
        may_replace=written.count(MAY_REPLACE),
        superseded=written.count("supersedes"),
    )


def _relate(
    connection: Connection,
    space: int,
    older: MemoryRecord,
    newer: MemoryRecord,
    relation: lifecycle.Relating,
    found: Comparison,
    at: int,
) -> str | None:
    confidence = found.confidence if relation == found.relation else found.correction
    shown = f", {found.evidence} replaced" if found.evidence and relation == "corrects" else ""
    return lifecycle.relate(
        connection,
        space,
        older.id,
        newer.id,
        relation,
        confidence=round(confidence, 4),
        ends=_takes_effect(older, newer, found),
        at=at,
        who=lifecycle.COMPARE,
        why=f"compared: {relation}, confidence {confidence:.2f}{shown}",
    )


def _takes_effect(older: MemoryRecord, newer: MemoryRecord, found: Comparison) -> bool:
    """Whether a correction may end the older fact by itself: it is sure enough, and by the same speaker or by somebody
    who is trusted more.
    """
    is_sure = found.confidence >= SURE if found.by_model else found.evidence is not None
    by_same = older.speaker.casefold() == newer.speaker.casefold()
    return is_sure and (by_same or TRUST_RANK[newer.trust] > TRUST_RANK[older.trust])


def _are_linked(connection: Connection, space: int, one: str, other: str, *relations: str) -> bool:
    """Whether an edge with one of these relations connects two memories, in either direction."""
    found = connection.execute(_LINKED, {"space": space, "ids": [one, other], "relations": relations})
    return found.first() is not None
