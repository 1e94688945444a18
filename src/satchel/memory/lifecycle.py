"""Changing what is stored: edit, link, supersede, undo, uses. Each change is one transaction, kept in the history."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from sqlalchemy import bindparam, select

from satchel.errors import Refused, UsageError
from satchel.memory import checking, graph, history, repository, statement_rows
from satchel.memory.cues import cues_of
from satchel.memory.discretion_rows import as_asked_elsewhere, as_asked_in
from satchel.memory.filters import CheckedFilters
from satchel.memory.graph import MAY_REPLACE, Edge, Related, Successor, is_superseded_by
from satchel.memory.history import (
    Change,
    apply_fields,
    find_row,
    put_edge,
    state_of,
    undo_change,
    write_change,
)
from satchel.memory.micros import to_micros
from satchel.memory.page import rows
from satchel.memory.records import TRUST_RANK, Discretion, MemoryRecord, MemoryType, Tier, Trust
from satchel.memory.spheres import clean_spheres
from satchel.memory.statements import shown_words
from satchel.memory.stems import stems_of
from satchel.memory.tables import edges, memories
from satchel.storage import Prepared

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from satchel.memory.space import Space

__all__ = [
    "AGENT",
    "KEEP",
    "USER",
    "Edits",
    "Lifecycle",
    "Relating",
    "edit",
    "link",
    "relate",
    "supersede",
]

USER: Final = "user"
"""The author of changes that a person makes, directly or through a program; `AGENT` of those that a model makes."""
AGENT: Final = "agent"

Relating: TypeAlias = Literal["restates", "corrects", "elaborates"]
"""What an extractor can say of a newer fact and an older one."""

KEEP: Final = "keep"
"""Stands for "as it is" where None means something."""

_MAX_DEPTH = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Edits:
    """Fields of a memory that are to change, before anything is checked; see `Memory.edit`."""

    content: str | None = None
    tags: Iterable[str] | None = None
    tier: Tier | None = None
    memory_type: MemoryType | None = None
    importance: int | None = None
    priority: float | None = None
    decay_rate: float | None = None
    speaker: str | None = None
    said_at: datetime | None = None
    valid_from: datetime | Literal["keep"] | None = KEEP
    valid_to: datetime | Literal["keep"] | None = KEEP
    discretion: Discretion | None = None
    kept_from: str | None = None
    spheres: Iterable[str] | None = None


class Lifecycle:
    """Changes the memories of a space and reads their histories and edges."""

    def __init__(self, space: Space) -> None:
        """Take the space."""
        self._space = space

    async def edit(self, id: str, edits: Edits, *, by: str, why: str) -> str | None:
        """Change a memory; see `Memory.edit`."""
        fields = await self._checked(edits)
        return await self._space.write(
            edit, id, fields, at=self._space.now_micros(), who=_name(by), why=_reason(why)
        )

    async def pin(self, id: str, *, pinned: bool, by: str, why: str) -> str | None:
        """Pin a memory or unpin it; see `Memory.pin`."""

        def write(connection: Connection, space: int) -> str | None:
            row = find_row(connection, space, id)
            if pinned and row.trust == "outside":
                raise UsageError(
                    f"Memory {id} came from outside, and the profile holds only what the user said. Store it in your "
                    "own words first."
                )
            if pinned and statement_rows.pinned_count(connection, space) >= statement_rows.MOST_PINS:
                raise UsageError(
                    f"{statement_rows.MOST_PINS} memories are pinned, and the profile has room for about ten. Unpin "
                    "some first."
                )
            return edit(
                connection, space, id, {"pinned": int(pinned)}, at=at, who=_name(by), why=_reason(why)
            )

        at = self._space.now_micros()
        return await self._space.write(write)

    async def link(
        self, source: str, target: str, relation: str, weight: float | None, *, by: str, why: str
    ) -> str | None:
        """Set the weight of an edge, or remove the edge with None; see `Memory.link`."""
        return await self._space.write(
            link,
            source,
            target,
            checking.clean(relation, "relation").strip(),
            None if weight is None else _checked_weight(weight),
            at=self._space.now_micros(),
            who=_name(by),
            why=_reason(why),
        )

    async def later(self, ids: Sequence[str], *, holding: bool) -> dict[str, tuple[Successor, ...]]:
        """Return what takes the place of memories, or may; see `Memory.later`."""
        now = self._space.now_micros()

        def read(connection: Connection, space: int) -> dict[str, tuple[Successor, ...]]:
            rids = repository.rids_of(connection, space, ids)
            shows = partial(repository.holds, connection, at=now) if holding else None
            found = graph.read_later(connection, rids, shows=shows)
            records = repository.read_records(
                connection, space, [*found, *{one.rid for some in found.values() for one in some}]
            )
            return {
                records[rid].id: tuple(
                    Successor(memory=records[one.rid], weight=one.weight, is_certain=one.is_certain)
                    for one in some
                    if one.rid in records
                )
                for rid, some in found.items()
                if rid in records
            }

        return await self._space.read(read)

    async def edges(self, id: str) -> tuple[Edge, ...]:
        """Return the edges of a memory; see `Memory.edges`."""

        def read(connection: Connection, space: int) -> list[Edge]:
            return graph.read_edges(connection, find_row(connection, space, id).rid)

        return tuple(await self._space.read(read))

    async def related(
        self, id: str, depth: int, relations: Collection[str] | None, *, limit: int
    ) -> tuple[Related, ...]:
        """Return what edges lead to; see `Memory.related`."""
        if not 1 <= depth <= _MAX_DEPTH or limit < 1:
            raise UsageError(f"A walk has 1 to {_MAX_DEPTH} steps and a limit of 1 or more.")

        def read(connection: Connection, space: int) -> list[Related]:
            start = find_row(connection, space, id).rid
            return graph.walk(connection, space, start, depth=depth, relations=relations, limit=limit)

        return tuple(await self._space.read(read))

    async def supersede(
        self, older: str, newer: str, *, valid_to: datetime | None, by: str, why: str
    ) -> str | None:
        """Let a newer memory take the place of an older one; see `Memory.supersede`."""
        return await self._space.write(
            supersede,
            older,
            newer,
            valid_to=self._space.micros(valid_to),
            at=self._space.now_micros(),
            who=_name(by),
            why=_reason(why),
        )

    async def history(self, id: str) -> tuple[Change, ...]:
        """Return every change of a memory; see `Memory.history`."""
        return tuple(await self._space.read(history.read_changes, id))

    async def undo(self, change_id: str, *, by: str, why: str) -> str:
        """Take a change back; see `Memory.undo`."""
        return await self._space.write(
            undo_change, change_id, at=self._space.now_micros(), who=_name(by), why=_reason(why)
        )

    async def note_use(self, ids: Iterable[str]) -> None:
        """Count that memories were used; see `Memory.note_use`."""
        wanted = list(dict.fromkeys(ids))
        at = self._space.now_micros()

        def write(connection: Connection, space: int) -> None:
            repository.note_uses(connection, repository.rids_of(connection, space, wanted), at)

        if wanted:
            await self._space.write(write)

    async def held_back_with(self, ids: Sequence[str]) -> list[MemoryRecord]:
        """What the wishes in some messages hold back; see `Memory.just_held_back`."""

        def read(connection: Connection, space: int) -> list[MemoryRecord]:
            found = repository.records_by_id(connection, space, ids).values()
            own = [one for one in found if one.discretion != "open" and one.source.turn is not None]
            if not own:
                return []
            session = own[0].source.session or ""
            turns = [one.source.turn for one in own if one.source.turn is not None]
            here = {as_asked_in(turn) for turn in turns}
            elsewhere = {as_asked_elsewhere(session, turn) for turn in turns}
            rids = [
                *repository.matching_rids(connection, space, CheckedFilters(session=session)),
                *repository.matching_rids(connection, space, CheckedFilters(discretion="withheld")),
            ]

            def is_meant(one: MemoryRecord) -> bool:
                is_here = one.source.session == session and (one.kept_from in here or one.id in ids)
                return one.discretion != "open" and (is_here or one.kept_from in elsewhere)

            return [one for one in repository.read_records(connection, space, rids).values() if is_meant(one)]

        return await self._space.read(read)

    async def known(self, ids: Sequence[str]) -> frozenset[str]:
        """Return which of these ids belong to memories."""
        if not ids:
            return frozenset()
        return await self._space.read(
            lambda connection, space: frozenset(repository.known_ids(connection, space, ids))
        )

    async def words_said(self, ids: Sequence[str]) -> tuple[tuple[MemoryRecord, tuple[str, ...]], ...]:
        """Return memories with all the words they ever had; see `Memory.words_said`."""

        def read(connection: Connection, space: int) -> list[tuple[MemoryRecord, tuple[str, ...]]]:
            records = repository.records_by_id(connection, space, ids)
            earlier = history.earlier_contents(connection, space, list(records))
            shown = statement_rows.shown_of(connection, space, list(records))
            called = _cues_in_logs(connection, space, records)
            written = rows.texts_of(connection, space, list(records))
            return [
                (
                    record,
                    tuple(
                        dict.fromkeys(
                            (
                                record.content,
                                *earlier.get(id, ()),
                                shown_words(record.content),
                                *shown.get(id, ()),
                                *called.get(id, ()),
                                *written.get(id, ()),
                            )
                        )
                    ),
                )
                for id, record in records.items()
            ]

        return tuple(await self._space.read(read))

    async def _checked(self, edits: Edits) -> dict[str, Any]:
        """The fields by the names of `history.state_of`; what is not given is not in it."""
        space = self._space
        fields: dict[str, Any] = {}
        if edits.content is not None:
            fields["content"] = await space.redacted(checking.content_of(edits.content))
            if not fields["content"]:
                raise UsageError("There are no words in this; forget the memory if it shall go.")
        if edits.tags is not None:
            fields["tags"] = [await space.redacted(tag) for tag in checking.clean_tags(edits.tags)]
        if edits.tier is not None:
            fields["tier"] = checking.one_of(edits.tier, Tier, "tier")
            fields["priority"] = checking.PRIORITY[edits.tier]
            fields["decay_rate"] = checking.DECAY_RATE[edits.tier]
        if edits.memory_type is not None:
            fields["memory_type"] = checking.one_of(edits.memory_type, MemoryType, "memory type")
        if edits.importance is not None:
            fields["importance"] = checking.importance_of(edits.importance)
        if edits.priority is not None:
            fields["priority"] = checking.share_of(edits.priority, "priority")
        if edits.decay_rate is not None:
            fields["decay_rate"] = checking.share_of(edits.decay_rate, "decay rate")
        if edits.speaker is not None:
            fields["speaker"] = checking.printable(edits.speaker)[:200]
        if edits.discretion is not None:
            fields["discretion"] = checking.one_of(edits.discretion, Discretion, "discretion")
            fields["kept_from"] = ""  # The words were for the other one.
        if edits.kept_from is not None:
            fields["kept_from"] = await space.redacted(checking.printable(edits.kept_from)[:200])
        if edits.spheres is not None:
            fields["spheres"] = clean_spheres(edits.spheres)
        said = space.aware(edits.said_at)
        if said is not None:
            fields |= {"said_at": to_micros(said), "said_offset_min": repository.offset_minutes(said)}
        if edits.valid_from != KEEP:
            fields["valid_from"] = space.micros(edits.valid_from)
        if edits.valid_to != KEEP:
            fields["valid_to"] = space.micros(edits.valid_to)
        return fields


def _cues_in_logs(
    connection: Connection, space: int, records: Mapping[str, MemoryRecord]
) -> dict[str, list[str]]:
    """The cues of what a model stored itself, by id: its call is in the log of the session. The cues that an extractor
    gave are in no log.
    """
    stored = [
        id for id, one in records.items() if one.source.session is not None and one.source.quote is None
    ]
    ids = {rid: id for id, rid in repository.rids_by_id(connection, space, stored).items()}
    return {ids[rid]: found for rid, found in cues_of(connection, list(ids)).items()}


def _name(by: str) -> str:
    return checking.clean(by, "name of who changes it")[:200]


def _reason(why: str) -> str:
    return checking.printable(why)[:2000]


def _checked_weight(weight: float) -> float:
    """The weight of an edge.

    Raises:
        UsageError: It is not from 0 to 1.
    """
    if not math.isfinite(weight) or not 0 <= weight <= 1:
        raise UsageError(f"The weight is {weight:g}; it goes from 0 (no tie) to 1.")
    return float(weight)


def edit(
    connection: Connection, space: int, id: str, fields: Mapping[str, Any], *, at: int, who: str, why: str
) -> str | None:
    """Change fields of a memory.

    Args:
        connection: In a transaction that writes.
        space: Where it is.
        id: Which one.
        fields: By the names of `history.state_of`, checked.
        at: When.
        who: Who wants it.
        why: What for.

    Returns:
        The change's id, or None where everything was so already.

    Raises:
        NotFound: There is no such memory.
        UsageError: It would end to hold before it begins.
    """
    row = find_row(connection, space, id)
    now = state_of(connection, row)
    if now["time"] is not None and fields.get("content", now["content"]) != now["content"]:
        # Its days are read out of the new words, and its end was that of the old ones.
        fields = {"valid_to": None, **fields, "time": None}
    before = {name: now[name] for name, value in fields.items() if now[name] != value}
    if not before:
        return None
    after = {name: fields[name] for name in before}
    whole = {**now, **after}
    if None not in (whole["valid_from"], whole["valid_to"]) and whole["valid_to"] < whole["valid_from"]:
        raise UsageError(f"Memory {id} would cease to hold before it begins to; give it other times.")
    apply_fields(connection, space, row, after)
    return write_change(
        connection,
        space,
        memory_id=id,
        action="tier" if before.keys() <= {"tier", "priority", "decay_rate"} and "tier" in before else "edit",
        at=at,
        who=who,
        why=why,
        before=before,
        after=after,
    )


def link(
    connection: Connection,
    space: int,
    source: str,
    target: str,
    relation: str,
    weight: float | None,
    *,
    at: int,
    who: str,
    why: str,
) -> str | None:
    """Set the weight of an edge, or take the edge away with a weight of None.

    Returns:
        The change's id, or None where everything was so already.

    Raises:
        NotFound: One of the two is not there.
        UsageError: They are one and the same.
    """
    if source == target:
        raise UsageError(f"Memory {source} can't be tied to itself; nothing was changed.")
    begin, end = find_row(connection, space, source), find_row(connection, space, target)
    before = put_edge(connection, begin, end, relation, weight, at)
    if before == weight:
        return None
    edge = {"source": source, "target": target, "relation": relation}
    return write_change(
        connection,
        space,
        memory_id=source,
        other_id=target,
        action="unlink" if weight is None else "link",
        at=at,
        who=who,
        why=why,
        before={"edge": {**edge, "weight": before}},
        after={"edge": {**edge, "weight": weight}},
    )


def supersede(
    connection: Connection,
    space: int,
    older: str,
    newer: str,
    *,
    valid_to: int | None,
    at: int,
    who: str,
    why: str,
) -> str | None:
    """Let a newer memory take the place of an older one: an edge, and an end to the older one's validity.

    Args:
        connection: In a transaction that writes.
        space: Where both are.
        older: What no longer holds.
        newer: What holds instead.
        valid_to: Until when the older one held; None takes the time from which the newer one does: its
            `valid_from`, else when it was said, where that is later than the older one, else `at`.
        at: When.
        who: Who says so.
        why: What for.

    Returns:
        The change's id; undoing it undoes both. None where it was so already.

    Raises:
        NotFound: One of the two is not there.
        UsageError: They are the same, or somebody said before that it is the other way round.
        Refused: The newer one is not trusted enough to end the older one; see `_may_end`.
    """
    if older == newer:
        raise UsageError(f"Memory {older} can't supersede itself; nothing was changed.")
    old, new = find_row(connection, space, older), find_row(connection, space, newer)
    if not _may_end(old.trust, new.trust, who):
        raise Refused(
            f"Memory {older} still holds: {newer} comes from {_ORIGIN[new.trust]}, which can't replace what comes from "
            f"{_ORIGIN[old.trust]}. If it is right, type: satchel memory link {newer} {older} --relation supersedes"
        )
    if is_superseded_by(connection, new.rid, old.rid):
        raise UsageError(f"{older} supersedes {newer} already; undo that first (memory history {newer}).")
    if valid_to is None:
        valid_to = new.said_at if new.valid_from is None else new.valid_from
        if valid_to < old.said_at or valid_to > at:
            valid_to = at
    if old.valid_from is not None and valid_to < old.valid_from:
        valid_to = old.valid_from
    # What had ended before does not live longer for it.
    if old.valid_to is not None and old.valid_to < valid_to:
        valid_to = old.valid_to
    edge = {"source": newer, "target": older, "relation": "supersedes"}
    before = put_edge(connection, new, old, "supersedes", 1.0, at)
    if before == 1.0 and old.valid_to == valid_to:
        return None
    apply_fields(connection, space, old, {"valid_to": valid_to})
    return write_change(
        connection,
        space,
        memory_id=older,
        other_id=newer,
        action="supersede",
        at=at,
        who=who,
        why=why,
        before={"valid_to": old.valid_to, "edge": {**edge, "weight": before}},
        after={"valid_to": valid_to, "edge": {**edge, "weight": 1.0}},
    )


_ORIGIN: Final[Mapping[Trust, str]] = {
    "outside": "outside",
    "agent": "the agent",
    "user": "the user",
}


def _may_end(older: Trust, newer: Trust, who: str) -> bool:
    """Whether a memory may end the validity of another one, by whose words they are and by who wants it.

    Only this function decides it. The user may end anything. A model may state for the user what the user told it, but
    what comes from outside ends nothing that the user or the agent said. Distilling, which nobody asked for, never ends
    what is trusted more.
    """
    if who == USER:
        return True
    if who == AGENT:
        return newer != "outside" or older == "outside"
    return TRUST_RANK[newer] >= TRUST_RANK[older]


_ELABORATED = Prepared(
    select(memories.c.id, memories.c.content)
    .select_from(edges.join(memories, memories.c.rid == edges.c.target_rid))
    .where(edges.c.source_rid == bindparam("rid"), edges.c.relation == "elaborates")
    .order_by(memories.c.rid)
)


def relate(
    connection: Connection,
    space: int,
    older: str,
    newer: str,
    relation: Relating,
    *,
    confidence: float,
    valid_to: int | None = None,
    at: int,
    who: str,
    why: str,
) -> str | None:
    """Write what an extractor says of two facts.

    A correction supersedes the older fact only if the newer one was said no earlier and its trust allows it.
    Otherwise the two get an edge `may_replace` whose weight is the confidence: the older one still holds,
    and whatever shows it shows the newer one beside it (`graph.read_later`).

    Args:
        connection: In a transaction that writes.
        space: Where both are.
        older: The id of the older fact.
        newer: The id of the newer fact.
        relation: How the newer one relates to the older one.
        confidence: 0 to 1; the weight of the edge.
        valid_to: Until when the older one held; see `supersede`.
        at: The time of the change in microseconds.
        who: The author of the change.
        why: The reason, for the history.

    Returns:
        The relation of the edge that was written, or None if nothing changed.

    Raises:
        NotFound: One of the two is not there.
        UsageError: They are the same, or a person has said otherwise.
    """
    if relation != "corrects":
        written = link(connection, space, newer, older, relation, confidence, at=at, who=who, why=why)
        return None if written is None else relation
    old, new = find_row(connection, space, older), find_row(connection, space, newer)
    if new.said_at >= old.said_at and _may_end(old.trust, new.trust, who):
        done = supersede(connection, space, older, newer, valid_to=valid_to, at=at, who=who, why=why)
        if done is not None:
            # What the older one says again, with more, no longer holds either.
            said = set(stems_of(old.content))
            for row in _ELABORATED.named(connection, {"rid": old.rid}):
                if said.issuperset(stems_of(row.content)):
                    with suppress(UsageError):
                        relate(connection, space, row.id, newer, relation, confidence=confidence,
                               valid_to=valid_to, at=at, who=who, why=why)  # fmt: skip
        return None if done is None else "supersedes"
    if old.valid_to is not None and old.valid_to <= at:
        return None  # It doesn't hold anyway.
    written = link(connection, space, newer, older, MAY_REPLACE, confidence, at=at, who=who, why=why)
    return None if written is None else MAY_REPLACE
