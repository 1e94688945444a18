"""Edges between memories, and the walk along them: breadth-first, so that cycles end by themselves."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, bindparam, literal, or_, select

from satchel.memory.records import MemoryRecord
from satchel.memory.store.history import find_row
from satchel.memory.store.micros import from_micros
from satchel.memory.store.repository import among, listed, read_records
from satchel.memory.store.tables import edges, memories
from satchel.storage import Prepared

__all__ = [
    "MAY_REPLACE",
    "RELATIONS",
    "Edge",
    "Later",
    "Related",
    "Successor",
    "facts_and_turns",
    "is_superseded_by",
    "read_edges",
    "read_later",
    "successors",
    "walk",
]

MAY_REPLACE = "may_replace"
"""The relation of a newer memory to an older one that it may correct, as an extractor, a model or the user says. The
older one still holds, and whatever shows it shows the newer one beside it, if it is likely."""
_LIKELY = 0.3

RELATIONS = (
    "related",
    "supersedes",
    MAY_REPLACE,
    "contradicts",
    "elaborates",
    "restates",
    "derived_from",
)
"""The relations that mean something to Satchel itself. Any other word is allowed too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """One edge, as in "`source` supersedes `target`".

    Attributes:
        source: The id of a memory, and so is `target`.
        weight: 0 (no tie) to 1.
    """

    source: str
    target: str
    relation: str
    weight: float
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Related:
    """A memory that a walk along edges reached.

    Attributes:
        depth: The number of steps from where the walk began, at least 1.
        weight: The product of the weights along the path, 0 to 1; the greatest of all shortest paths.
        relation: Of the last step; `via` is the memory that it came from.
        outgoing: Whether the last edge points to this memory. False if it points away from it.
    """

    memory: MemoryRecord
    depth: int
    weight: float
    relation: str
    via: str
    outgoing: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Weighted:
    weight: float
    is_certain: bool

    @property
    def is_likely(self) -> bool:
        """Whether the later memory is shown before the earlier one: of pairs with this weight, half are right."""
        return self.is_certain or self.weight >= _LIKELY


@dataclass(frozen=True, slots=True, kw_only=True)
class Successor(_Weighted):
    """A later memory that takes the place of an earlier one, or may take it.

    Attributes:
        weight: 1.0 if that is certain, otherwise that of the link.
        is_certain: Whether it supersedes the earlier one, or a fact that was drawn from the earlier one.
    """

    memory: MemoryRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Later(_Weighted):
    """A `Successor` by its rid."""

    rid: int


def successors(later: Iterable[Later], records: Mapping[int, MemoryRecord]) -> tuple[Successor, ...]:
    """The same with their memories, by rid; those that are not there are left out."""
    return tuple(
        Successor(memory=records[one.rid], weight=one.weight, is_certain=one.is_certain)
        for one in later
        if one.rid in records
    )


def read_edges(connection: Connection, space: int, id: str) -> list[Edge]:
    """The edges that begin or end at a memory, the strongest first.

    Raises:
        NotFound: There is no such memory.
    """
    rid = find_row(connection, space, id).rid
    sources, targets = memories.alias("sources"), memories.alias("targets")
    rows = connection.execute(
        select(
            sources.c.id.label("source"),
            targets.c.id.label("target"),
            edges.c.relation,
            edges.c.weight,
            edges.c.created_at,
        )
        .join(sources, sources.c.rid == edges.c.source_rid)
        .join(targets, targets.c.rid == edges.c.target_rid)
        .where(or_(edges.c.source_rid == rid, edges.c.target_rid == rid))
        .order_by(edges.c.weight.desc(), edges.c.created_at, sources.c.id, targets.c.id, edges.c.relation)
    )
    return [
        Edge(
            source=row.source,
            target=row.target,
            relation=row.relation,
            weight=row.weight,
            created_at=from_micros(row.created_at),
        )
        for row in rows
    ]


_SUPERSEDES = edges.c.relation == "supersedes"
_FIRST = (
    select(edges.c.target_rid.label("rid"))
    .where(_SUPERSEDES, edges.c.source_rid == bindparam("newer"))
    .cte("chain", recursive=True)
)
_CHAIN = _FIRST.union(select(edges.c.target_rid).where(_SUPERSEDES, edges.c.source_rid == _FIRST.c.rid))
_REACHED = select(_CHAIN.c.rid).where(_CHAIN.c.rid == bindparam("older")).limit(1)


_MOST_STEPS = 4
"""How many corrections of corrections are followed."""


def read_later(
    connection: Connection, rids: Collection[int], *, shows: Callable[[int], bool] | None = None
) -> dict[int, tuple[Later, ...]]:
    """What was said later and takes the place of some memories, or may: the basis of "what holds now".

    This follows the edges `supersedes` and `may_replace` that lead to a memory, and those that lead to a fact drawn
    from it: a fact with an edge `derived_from` to it, or one that names its session and turn as the source. So a turn
    whose fact was superseded is known to be outdated without an edge of its own.

    `shows` says whether a memory may be shown: what took the place of one that may not is shown instead. All of `rids`
    together take two queries.

    Returns:
        For each memory that has something later, what that is: the certain first, then by weight. Memories among `rids`
        can be later ones of each other.
    """
    found = _read_next(connection, rids)
    if shows is None:
        return found
    for _ in range(_MOST_STEPS):
        hidden = {one.rid for some in found.values() for one in some if not shows(one.rid)}
        if not hidden:
            break
        beyond = _read_next(connection, hidden)
        found = {rid: _past_hidden(rid, some, hidden, beyond) for rid, some in found.items()}
    shown = {rid: tuple(one for one in some if shows(one.rid)) for rid, some in found.items()}
    return {rid: some for rid, some in shown.items() if some}


def _past_hidden(
    rid: int, later: Sequence[Later], hidden: Collection[int], beyond: Mapping[int, Sequence[Later]]
) -> tuple[Later, ...]:
    """What takes the place of a memory; each hidden one is replaced by what took its place in turn."""
    best: dict[int, Later] = {}
    for one in later:
        further = [one]
        if one.rid in hidden:
            further = [
                Later(
                    rid=two.rid,
                    weight=one.weight * two.weight,
                    is_certain=one.is_certain and two.is_certain,
                )
                for two in beyond.get(one.rid, ())
            ]
        for two in further:
            if two.rid != rid and (two.rid not in best or _strength(two) > _strength(best[two.rid])):
                best[two.rid] = two
    return tuple(sorted(best.values(), key=_strength, reverse=True))


_LATER = Prepared(
    select(edges.c.source_rid, edges.c.target_rid, edges.c.relation, edges.c.weight).where(
        edges.c.target_rid.in_(listed(bindparam("rids"))),
        edges.c.relation.in_(map(literal, ("supersedes", MAY_REPLACE))),
        edges.c.weight > 0,
    )
)


def _read_next(connection: Connection, rids: Collection[int]) -> dict[int, tuple[Later, ...]]:
    owners: dict[int, set[int]] = {rid: {rid} for rid in rids}
    for fact, turn in facts_and_turns(connection, rids, are_facts=False):
        owners.setdefault(fact, set()).add(turn)
    found: dict[int, dict[int, Later]] = {}
    for source, target, relation, weight in _LATER.run(connection, {"rids": json.dumps(list(owners))}):
        is_certain = relation == "supersedes"
        later = Later(rid=source, weight=1.0 if is_certain else weight, is_certain=is_certain)
        for owner in owners[target]:
            known = found.setdefault(owner, {}).get(later.rid)
            if later.rid != owner and (known is None or _strength(later) > _strength(known)):
                found[owner][later.rid] = later
    return {
        rid: tuple(sorted(some.values(), key=_strength, reverse=True)) for rid, some in found.items() if some
    }


def _strength(later: Later) -> tuple[bool, float]:
    return later.is_certain, later.weight


_FACTS, _TURNS = memories.alias("facts"), memories.alias("turns")
_BY_PLACE = (
    select(_FACTS.c.rid, _TURNS.c.rid)
    .join(
        _TURNS,
        (_TURNS.c.space_id == _FACTS.c.space_id)
        & (_TURNS.c.source_session == _FACTS.c.source_session)
        & (_TURNS.c.source_turn == _FACTS.c.source_turn),
    )
    .where(_FACTS.c.kind == "fact", _TURNS.c.kind == "episode")
)
_BY_EDGE = select(edges.c.source_rid, edges.c.target_rid).where(edges.c.relation == "derived_from")
_OF_FACTS, _OF_TURNS = (
    tuple(
        Prepared(query.where(query.selected_columns[at].in_(listed(bindparam("rids")))))
        for query in (_BY_EDGE, _BY_PLACE)
    )
    for at in (0, 1)
)


def facts_and_turns(
    connection: Connection, rids: Collection[int], *, are_facts: bool
) -> Iterator[tuple[int, int]]:
    """The pairs of a fact and what it rests on, by an edge or by the place that it names; `rids` are of the facts, or
    of what they rest on.
    """
    for query in _OF_FACTS if are_facts else _OF_TURNS:
        yield from query.run(connection, {"rids": json.dumps(list(rids))})


def is_superseded_by(connection: Connection, older: int, newer: int) -> bool:
    """Whether a chain of `supersedes` already leads from one rid to another."""
    return connection.execute(_REACHED, {"newer": newer, "older": older}).first() is not None


def walk(
    connection: Connection,
    space: int,
    id: str,
    *,
    depth: int,
    relations: Collection[str] | None,
    limit: int,
) -> list[Related]:
    """Find what can be reached from a memory along edges in either direction: nearest first, then strongest.

    `relations` None follows all edges; those with a weight of 0 are never followed. It stops when it has found `limit`
    memories.

    Raises:
        NotFound: There is no such memory.
    """
    start = find_row(connection, space, id).rid
    best: dict[int, tuple[int, float, str, int, bool]] = {}
    strength = {start: 1.0}
    frontier = {start}
    for step in range(1, depth + 1):
        level: dict[int, tuple[int, float, str, int, bool]] = {}
        here = among(frontier)
        query = select(edges).where(
            or_(edges.c.source_rid.in_(here), edges.c.target_rid.in_(here)), edges.c.weight > 0
        )
        if relations is not None:
            query = query.where(edges.c.relation.in_(relations))
        for edge in connection.execute(query):
            for origin, other, outgoing in (
                (edge.source_rid, edge.target_rid, True),
                (edge.target_rid, edge.source_rid, False),
            ):
                if origin not in frontier or other in strength:
                    continue
                weight = strength[origin] * edge.weight
                if other not in level or weight > level[other][1]:
                    level[other] = (step, weight, edge.relation, origin, outgoing)
        if not level:
            break
        strength.update((rid, found[1]) for rid, found in level.items())
        best.update(level)
        if len(best) >= limit:
            break
        frontier = set(level)
    order = sorted(best, key=lambda rid: (best[rid][0], -best[rid][1], rid))[:limit]
    records = read_records(connection, space, [*order, start, *{best[rid][3] for rid in order}])
    return [
        Related(
            memory=records[rid],
            depth=best[rid][0],
            weight=best[rid][1],
            relation=best[rid][2],
            via=records[best[rid][3]].id,
            outgoing=best[rid][4],
        )
        for rid in order
        if rid in records and best[rid][3] in records
    ]
