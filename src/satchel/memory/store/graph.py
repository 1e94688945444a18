"""Edges between memories, and the walk along them: breadth-first, so that cycles end by themselves."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from sqlalchemy import Connection, bindparam, literal, or_, select

from satchel.memory.records import MemoryRecord
from satchel.memory.store.history import find_row
from satchel.memory.store.micros import from_micros
from satchel.memory.store.repository import among, listed, read_records
from satchel.memory.store.tables import edges, memories
from satchel.storage import Prepared

MAY_REPLACE = "may_replace"
"""The relation of a newer memory to an older one that it may correct, as an extractor, a model or the user says. The
older one still holds, and whatever shows it shows the newer one beside it."""

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
class Successor:
    """A later memory that takes the place of an earlier one, or may take it.

    Attributes:
        is_certain: Whether it supersedes the earlier one, or a fact that was drawn from the earlier one.
    """

    memory: MemoryRecord
    is_certain: bool


Later: TypeAlias = Mapping[int, bool]
"""The rids of later memories, the certain ones first, and whether each is certain; see `Successor`."""


def successors(later: Later, records: Mapping[int, MemoryRecord]) -> tuple[Successor, ...]:
    """The same with their memories, by rid; those that are not there are left out."""
    return tuple(
        Successor(memory=records[rid], is_certain=is_certain)
        for rid, is_certain in later.items()
        if rid in records
    )


def read_edges(connection: Connection, space: int, id: str) -> list[Edge]:
    """The edges that begin or end at a memory, the strongest first."""
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
    return [Edge(**{**row._mapping, "created_at": from_micros(row.created_at)}) for row in rows]


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
) -> dict[int, Later]:
    """What was said later and takes the place of some memories, or may: the basis of "what holds now".

    This follows the edges `supersedes` and `may_replace` that lead to a memory, and those that lead to a fact drawn
    from it: a fact with an edge `derived_from` to it, or one that names its session and turn as the source. So a turn
    whose fact was superseded is known to be outdated without an edge of its own.

    `shows` says whether a memory may be shown: what took the place of one that may not is shown instead. All of `rids`
    together take two queries.

    Returns:
        For each memory that has something later, what that is. Memories among `rids` can be later ones of each other.
    """
    found = _read_next(connection, rids)
    if shows is None:
        return found
    for _ in range(_MOST_STEPS):
        hidden = {later for some in found.values() for later in some if not shows(later)}
        if not hidden:
            break
        beyond = _read_next(connection, hidden)
        found = {
            rid: _certain_first(
                (further, is_certain and is_next_certain)
                for later, is_certain in some.items()
                for further, is_next_certain in (
                    beyond.get(later, {}) if later in hidden else {later: True}
                ).items()
                if further != rid
            )
            for rid, some in found.items()
        }
    shown = {rid: {one: some[one] for one in some if shows(one)} for rid, some in found.items()}
    return {rid: some for rid, some in shown.items() if some}


def _certain_first(later: Iterable[tuple[int, bool]]) -> Later:
    found: dict[int, bool] = {}
    for rid, is_certain in sorted(later, key=lambda one: not one[1]):
        found.setdefault(rid, is_certain)
    return found


_LATER = Prepared(
    select(edges.c.source_rid, edges.c.target_rid, edges.c.relation).where(
        edges.c.target_rid.in_(listed(bindparam("rids"))),
        edges.c.relation.in_(map(literal, ("supersedes", MAY_REPLACE))),
        edges.c.weight > 0,
    )
)


def _read_next(connection: Connection, rids: Collection[int]) -> dict[int, Later]:
    owners: dict[int, set[int]] = {rid: {rid} for rid in rids}
    for fact, turn in facts_and_turns(connection, rids, are_facts=False):
        owners.setdefault(fact, set()).add(turn)
    found: dict[int, list[tuple[int, bool]]] = {}
    for source, target, relation in _LATER.run(connection, {"rids": json.dumps(list(owners))}):
        for owner in owners[target] - {source}:
            found.setdefault(owner, []).append((source, relation == "supersedes"))
    return {rid: _certain_first(some) for rid, some in found.items()}


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


def elaborated_by(connection: Connection, rids: Collection[int]) -> frozenset[str]:
    """The ids of what these memories say with something added."""
    found = edges.c.source_rid.in_(among(rids)) & (edges.c.relation == "elaborates")
    joined = edges.join(memories, memories.c.rid == edges.c.target_rid)
    return frozenset(connection.execute(select(memories.c.id).select_from(joined).where(found)).scalars())


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
    """Find what can be reached from a memory; see `Memory.related`. Edges with a weight of 0 are never followed."""
    start = find_row(connection, space, id).rid
    best: dict[int, tuple[int, float, str, int, bool]] = {start: (0, 1.0, "", start, True)}
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
                if origin not in frontier or other in best:
                    continue
                weight = best[origin][1] * edge.weight
                if other not in level or weight > level[other][1]:
                    level[other] = (step, weight, edge.relation, origin, outgoing)
        if not level:
            break
        best.update(level)
        if len(best) > limit:
            break
        frontier = set(level)
    order = sorted(best.keys() - {start}, key=lambda rid: (best[rid][0], -best[rid][1], rid))[:limit]
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
