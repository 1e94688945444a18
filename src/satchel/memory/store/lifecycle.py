"""Changing what is stored: edit, link, supersede, undo, uses. Each change is one transaction, kept in the history."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from satchel.errors import Refused, UsageError
from satchel.memory.records import TRUST_RANK, MemoryRecord, Trust
from satchel.memory.spheres import MOST_SPHERES
from satchel.memory.store import checking, graph, page_rows, repository, statement_rows
from satchel.memory.store.checking import Edits
from satchel.memory.store.cues import cues_of
from satchel.memory.store.discretion_rows import as_asked_elsewhere, as_asked_in
from satchel.memory.store.filters import CheckedFilters
from satchel.memory.store.graph import MAY_REPLACE, Successor, is_superseded_by
from satchel.memory.store.history import (
    ChangeNote,
    apply_fields,
    earlier_contents,
    find_row,
    is_superseded,
    put_edge,
    state_of,
    write_change,
)
from satchel.memory.store.micros import to_micros
from satchel.memory.text.lexicon import stems_of
from satchel.memory.text.statements import shown_words

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from satchel.memory.store.space import Space

USER: Final = "user"
"""The author of changes that a person makes, directly or through a program; `AGENT` of those that a model makes."""
AGENT: Final = "agent"

Relating: TypeAlias = Literal["corrects", "elaborates"]
"""What an extractor can say of a newer fact and an older one."""


async def checked(space: Space, edits: Edits) -> dict[str, Any]:
    """The fields by the names of `history.state_of`; what is not given is not in it. See `Memory.edit`."""
    checking.refuse_unknown(edits, Edits, "field")
    fields: dict[str, Any] = {}
    # In their order here, so that a priority of one's own comes after that of the tier.
    for name in Edits.__annotations__:
        value: Any = edits.get(name)
        if name in ("valid_from", "valid_to"):
            if name in edits:
                fields[name] = space.micros(value)
        elif name == "said_at" and value is not None:
            said: Any = space.aware(value)
            fields |= {name: to_micros(said), "said_offset_min": repository.offset_minutes(said)}
        elif value is not None:
            fields[name] = checking.CHECKS[name](value)
            if name == "tier":
                fields |= {"priority": checking.PRIORITY[value], "decay_rate": checking.DECAY_RATE[value]}
            elif name == "discretion":
                fields["kept_from"] = ""  # The words were for the other one.
    if "tags" in fields:
        fields["tags"] = [await space.redacted(tag) for tag in fields["tags"]]
    for name in fields.keys() & {"content", "kept_from"}:
        fields[name] = await space.redacted(fields[name])
    if fields.get("content") == "":
        raise UsageError("There are no words in this; forget the memory if it shall go.")
    return fields


def note_of(space: Space, by: str = USER, why: str = "") -> ChangeNote:
    """Who makes a change now, and what for."""
    who = checking.clean(by, "name of who changes it")[:200]
    return ChangeNote(at=space.now_micros(), who=who, why=checking.printable(why)[:2000])


def checked_weight(weight: float) -> float:
    """The weight of an edge, from 0 to 1."""
    if not math.isfinite(weight) or not 0 <= weight <= 1:
        raise UsageError(f"The weight is {weight:g}; it goes from 0 (no tie) to 1.")
    return float(weight)


def later(
    connection: Connection, space: int, ids: Sequence[str], *, now: int, holding: bool
) -> dict[str, tuple[Successor, ...]]:
    """What takes the place of memories, or may, by id; see `Memory.later`."""
    rids = repository.rids_of(connection, space, ids)
    shows = partial(repository.holds, connection, at=now) if holding else None
    found = graph.read_later(connection, rids, shows=shows)
    records = repository.read_records(
        connection, space, [*found, *{one for some in found.values() for one in some}]
    )
    return {records[rid].id: graph.successors(some, records) for rid, some in found.items() if rid in records}


def held_back_with(connection: Connection, space: int, ids: Sequence[str]) -> list[MemoryRecord]:
    """What the wishes in some messages hold back; see `Memory.just_held_back`."""
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


def words_said(
    connection: Connection, space: int, ids: Sequence[str]
) -> list[tuple[MemoryRecord, tuple[str, ...]]]:
    """Memories with all the words they ever had; see `Memory.words_said`."""
    records = repository.records_by_id(connection, space, ids)
    others = (
        earlier_contents(connection, space, list(records)),
        {id: (shown_words(record.content),) for id, record in records.items()},
        statement_rows.shown_of(connection, space, list(records)),
        _cues_in_logs(connection, space, records),
        page_rows.texts_of(connection, space, list(records)),
    )
    return [
        (
            record,
            tuple(dict.fromkeys((record.content, *(text for some in others for text in some.get(id, ()))))),
        )
        for id, record in records.items()
    ]


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


def pin(connection: Connection, space: int, id: str, note: ChangeNote, *, pinned: bool) -> str | None:
    """Pin a memory or unpin it; see `Memory.pin`."""
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
    return edit(connection, space, id, {"pinned": int(pinned)}, note)


def edit(
    connection: Connection, space: int, id: str, fields: Mapping[str, Any], note: ChangeNote
) -> str | None:
    """Change fields of a memory, by the names of `history.state_of`, that were checked; see `Memory.edit`."""
    row = find_row(connection, space, id)
    now = state_of(connection, row)
    if now["time"] is not None and fields.get("content", now["content"]) != now["content"]:
        # Its days are read out of the new words, and its end was that of the old ones, or of what took its place.
        ends = {} if is_superseded(connection, row.rid) else {"valid_to": None}
        fields = {**ends, **fields, "time": None}
    before = {name: now[name] for name, value in fields.items() if now[name] != value}
    if not before:
        return None
    after = {name: fields[name] for name in before}
    whole = {**now, **after}
    if None not in (whole["valid_from"], whole["valid_to"]) and whole["valid_to"] < whole["valid_from"]:
        raise UsageError(f"Memory {id} would cease to hold before it begins to; give it other times.")
    apply_fields(connection, space, row, after)
    is_tier = before.keys() <= {"tier", "priority", "decay_rate"} and "tier" in before
    return write_change(connection, space, "tier" if is_tier else "edit", id, before, after, note)


def link(
    connection: Connection,
    space: int,
    source: str,
    target: str,
    relation: str,
    weight: float | None,
    note: ChangeNote,
) -> str | None:
    """Set the weight of an edge, or take the edge away with a weight of None; see `Memory.link`."""
    if source == target:
        raise UsageError(f"Memory {source} can't be tied to itself; nothing was changed.")
    begin, end = find_row(connection, space, source), find_row(connection, space, target)
    before = put_edge(connection, begin, end, relation, weight, note.at)
    if before == weight:
        return None
    action = "unlink" if weight is None else "link"
    edge = {"source": source, "target": target, "relation": relation}
    was, now = {"edge": {**edge, "weight": before}}, {"edge": {**edge, "weight": weight}}
    return write_change(connection, space, action, source, was, now, note, other_id=target)


def supersede(
    connection: Connection, space: int, older: str, newer: str, note: ChangeNote, *, valid_to: int | None
) -> str | None:
    """Let a newer memory take the place of an older one; see `Memory.supersede`.

    A `valid_to` of None takes the time from which the newer one holds: its `valid_from`, else when it was said, where
    that is later than the older one, else that of the note.
    """
    if older == newer:
        raise UsageError(f"Memory {older} can't supersede itself; nothing was changed.")
    old, new = find_row(connection, space, older), find_row(connection, space, newer)
    if not _may_end(old.trust, new.trust, note.who):
        raise Refused(
            f"Memory {older} still holds: {newer} comes from {_ORIGIN[new.trust]}, which can't replace what comes from "
            f"{_ORIGIN[old.trust]}. If it is right, type: satchel memory link {newer} {older} --relation supersedes"
        )
    if is_superseded_by(connection, new.rid, old.rid):
        raise UsageError(f"{older} supersedes {newer} already; undo that first (memory history {newer}).")
    if valid_to is None:
        valid_to = new.said_at if new.valid_from is None else new.valid_from
        if valid_to < old.said_at or valid_to > note.at:
            valid_to = note.at
    if old.valid_from is not None and valid_to < old.valid_from:
        valid_to = old.valid_from
    # What had ended before does not live longer for it.
    if old.valid_to is not None and old.valid_to < valid_to:
        valid_to = old.valid_to
    edge = {"source": newer, "target": older, "relation": "supersedes"}
    before = put_edge(connection, new, old, "supersedes", 1.0, note.at)
    if before == 1.0 and old.valid_to == valid_to:
        return None
    apply_fields(connection, space, old, {"valid_to": valid_to})
    was = {"valid_to": old.valid_to, "edge": {**edge, "weight": before}}
    now = {"valid_to": valid_to, "edge": {**edge, "weight": 1.0}}
    return write_change(connection, space, "supersede", older, was, now, note, other_id=newer)


def keep(connection: Connection, space: int, id: str, note: ChangeNote) -> str:
    """Write into the history that a memory is right; see `Memory.keep`."""
    return write_change(connection, space, "keep", find_row(connection, space, id).id, {}, {}, note)


_DISCRETIONS: Final = ("open", "confidential", "withheld")


def merge(
    connection: Connection, space: int, ids: Sequence[str], content: str, note: ChangeNote
) -> tuple[str, list[str]]:
    """Make one fact of several; see `Memory.merge`."""
    rows = [find_row(connection, space, id) for id in ids]
    begins, ends = ([getattr(row, name) for row in rows] for name in ("valid_from", "valid_to"))
    records = list(repository.records_by_id(connection, space, ids).values())
    for one in records:
        if one.kind != "fact":
            raise UsageError(f"Memory {one.id} is what was said; only facts can be merged.")
    if len(records) < 2:
        raise UsageError("Choose two facts or more to merge.")
    # What the user said stays before what others said, which must not be pinned.
    kept = max(records, key=lambda one: (TRUST_RANK[one.trust], one.valid_to is None, one.said_at))
    records.sort(key=lambda one: one is not kept)
    strictest = max(records, key=lambda one: _DISCRETIONS.index(one.discretion))
    rids = repository.rids_by_id(connection, space, ids)
    turns = {turn for _, turn in graph.facts_and_turns(connection, list(rids.values()), are_facts=True)}
    own = {turn for _, turn in graph.facts_and_turns(connection, [rids[kept.id]], are_facts=True)}
    done = [
        edit(
            connection,
            space,
            kept.id,
            {
                "content": content,
                "tags": list(dict.fromkeys(tag for one in records for tag in one.tags)),
                "spheres": " ".join(
                    list(dict.fromkeys(name for one in records for name in one.spheres))[:MOST_SPHERES]
                ),
                "pinned": int(any(one.pinned for one in records)),
                "importance": max(one.importance for one in records),
                "discretion": strictest.discretion,
                "kept_from": strictest.kept_from,
                # It holds while one of them does.
                "valid_from": None if None in begins else min(begins),
                "valid_to": None if None in ends else max(ends),
            },
            note,
        )
    ]
    for one in records[1:]:
        done.append(link(connection, space, one.id, kept.id, MAY_REPLACE, None, note))
        done.append(supersede(connection, space, one.id, kept.id, note, valid_to=None))
    done += [
        link(connection, space, kept.id, turn, "derived_from", 1.0, note)
        for turn in repository.ids_of(connection, space, sorted(turns - own))
    ]
    return kept.id, [one for one in reversed(done) if one is not None]


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


def relate(
    connection: Connection,
    space: int,
    older: str,
    newer: str,
    relation: Relating,
    note: ChangeNote,
    *,
    valid_to: int | None = None,
) -> str | None:
    """Write what an extractor says of two facts.

    A correction supersedes the older fact only if the newer one was said no earlier and its trust allows it.
    Otherwise the two get an edge `may_replace`: the older one still holds, and whatever shows it shows the newer one
    beside it (`graph.read_later`).

    Returns:
        The relation of the edge that was written, or None if nothing changed.
    """
    if relation != "corrects":
        return relation if link(connection, space, newer, older, relation, 1.0, note) else None
    old, new = find_row(connection, space, older), find_row(connection, space, newer)
    if new.said_at >= old.said_at and _may_end(old.trust, new.trust, note.who):
        done = supersede(connection, space, older, newer, note, valid_to=valid_to)
        if done is not None:
            # What the older one says again, with more, no longer holds either.
            said = set(stems_of(old.content))
            ids = sorted(graph.elaborated_by(connection, [old.rid]))
            for id, one in sorted(repository.records_by_id(connection, space, ids).items()):
                if said.issuperset(stems_of(one.content)):
                    with suppress(UsageError):
                        relate(connection, space, id, newer, relation, note, valid_to=valid_to)
        return None if done is None else "supersedes"
    if old.valid_to is not None and old.valid_to <= note.at:
        return None  # It doesn't hold anyway.
    return MAY_REPLACE if link(connection, space, newer, older, MAY_REPLACE, 1.0, note) else None
