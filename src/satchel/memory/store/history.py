"""The history of memories: every change since a memory was stored, with before, after, who and why; and undoing it.

Undoing a change is itself a change, so it can be undone too. When a memory is forgotten, its changes are deleted,
including the texts in them; a single entry with a keyed hash records that it was forgotten.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, bindparam, delete, insert, or_, select, update

from satchel.errors import NotFound, UsageError
from satchel.memory.records import Forgotten, MemoryRecord
from satchel.memory.store.checking import Edits
from satchel.memory.store.micros import from_micros, to_micros
from satchel.memory.store.repository import (
    add_earlier_words,
    among,
    content_hash,
    count_up,
    index_words,
    mark_changed,
    tags_of,
)
from satchel.memory.store.tables import changes, edges, memories, readings, statements, tags, vectors
from satchel.memory.text.hashing import WordHasher

_TIMES = ("said_at", "valid_from", "valid_to")
_FIELDS = (
    *(name for name in Edits.__annotations__ if name != "tags"),
    *("said_offset_min", "pinned", "time"),
)
_WRITTEN = frozenset({"content", "tags", "speaker", "tier", "memory_type", "importance"})
"""Fields that an edit changes and that are shown with a memory."""
_INDEXED = frozenset({"content", "tags", "speaker", "said_at", "said_offset_min", "discretion"})
"""Fields that the index in each process, the page or a hook's kept profile depend on: if one changes, the memory is
marked as changed."""
_NO_COMPARING = "comparing by words no longer marks anything"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeNote:
    """What the history keeps of a change besides its fields: when (microseconds since 1970), who, and what for."""

    at: int
    who: str
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of a memory.

    Attributes:
        id: The id for `undo`.
        memory_id: The memory; `other_id` is the other end if an edge was changed.
        action: "add", "edit", "tier", "link", "unlink", "supersede", "keep", "undo" or "forget".
        who: Who made it: "user", "agent", "distill", "compare", or a name.
        before: The fields that changed, with their old values; `after` has the new ones. Times are in ISO 8601. An edge
            is under "edge"; its weight is None if it didn't exist.
        undoes: The id of the change that this one undid, or None; `undone_by` is the id of the one that undid this.
    """

    id: str
    memory_id: str
    other_id: str | None
    action: str
    at: datetime
    who: str
    why: str
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    undoes: str | None = None
    undone_by: str | None = None


# Building a statement takes longer than running it.
_ROW = select(memories).where(memories.c.space_id == bindparam("space"), memories.c.id == bindparam("of"))
_EDGE = (
    (edges.c.source_rid == bindparam("source"))
    & (edges.c.target_rid == bindparam("target"))
    & (edges.c.relation == bindparam("named"))
)
_WEIGHT = select(edges.c.weight).where(_EDGE)
_REMOVE_EDGE = delete(edges).where(_EDGE)
_WEIGH = update(edges).where(_EDGE).values(weight=bindparam("new_weight"))
_KEEP_CHANGE = insert(changes).returning(changes.c.id)


def find_row(connection: Connection, space: int, id: str) -> Any:
    """The row of a memory.

    Raises:
        NotFound: No memory of this space has this id.
    """
    row = connection.execute(_ROW, {"space": space, "of": id}).first()
    if row is None:
        raise NotFound(f"There is no memory {id!r} here.")
    return row


def state_of(connection: Connection, row: Any) -> dict[str, Any]:
    """The fields of a memory that can be changed, as the columns have them, and its tags."""
    tagged = tags_of(connection, [row.rid]).get(row.rid, [])
    return {**{name: getattr(row, name) for name in _FIELDS}, "tags": tagged}


def apply_fields(connection: Connection, space: int, row: Any, fields: Mapping[str, Any]) -> None:
    """Write fields of a memory, by their names in `state_of`, and the data derived from them."""
    changed = count_up(connection, space)
    values = {name: value for name, value in fields.items() if name != "tags"}
    if "content" in values:
        values["content_hash"] = content_hash(values["content"])
        # Vectors of the old text are no longer valid.
        connection.execute(delete(vectors).where(vectors.c.rid == row.rid))
    if fields.keys() & {"content", "said_at", "said_offset_min", "speaker", "time"}:
        # It is read anew: its statements stand elsewhere, and its days mean others.
        connection.execute(delete(statements).where(statements.c.rid == row.rid))
        connection.execute(delete(readings).where(readings.c.rid == row.rid))
    if "tags" in fields:
        connection.execute(delete(tags).where(tags.c.rid == row.rid))
        new = [
            {"rid": row.rid, "tag": tag, "position": position} for position, tag in enumerate(fields["tags"])
        ]
        if new:
            connection.execute(insert(tags), new)
    if _INDEXED & fields.keys():
        mark_changed(connection, [row.rid], changed)
    if values:
        connection.execute(update(memories).where(memories.c.rid == row.rid).values(**values))
    if "content" in fields or "tags" in fields:
        index_words(connection, [row.rid], changed)


def put_edge(
    connection: Connection, source: Any, target: Any, relation: str, weight: float | None, at: int
) -> float | None:
    """Set the weight of an edge; None removes it.

    Returns:
        The previous weight, or None if there was no edge.
    """
    here = {"source": source.rid, "target": target.rid, "named": relation}
    before: float | None = connection.execute(_WEIGHT, here).scalar()
    if weight is None:
        connection.execute(_REMOVE_EDGE, here)
    elif before is None:
        row = {"source_rid": source.rid, "target_rid": target.rid, "relation": relation}
        connection.execute(insert(edges), {**row, "weight": weight, "created_at": at})
    elif before != weight:
        connection.execute(_WEIGH, {**here, "new_weight": weight})
    return before


def write_change(
    connection: Connection,
    space: int,
    action: str,
    memory_id: str,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    note: ChangeNote,
    *,
    other_id: str | None = None,
    undoes: int | None = None,
) -> str:
    """Write a change to the history and return its id."""
    row = {
        "space_id": space,
        "memory_id": memory_id,
        "other_id": other_id,
        "action": action,
        **asdict(note),
        "before": json.dumps(before, ensure_ascii=False),
        "after": json.dumps(after, ensure_ascii=False),
        "undoes": undoes,
    }
    number = connection.execute(_KEEP_CHANGE, row).scalar_one()
    return f"c{number}"


def _readable(fields: Mapping[str, Any]) -> dict[str, Any]:
    offset = fields.get("said_offset_min", 0)
    shown: dict[str, Any] = {}
    for name, value in fields.items():
        if name == "said_offset_min":
            continue
        if name == "pinned":
            shown[name] = bool(value)
        elif name == "time":
            shown[name] = None if value is None else json.loads(value)
        elif name in _TIMES and value is not None:
            shown[name] = from_micros(value, offset if name == "said_at" else 0).isoformat()
        else:
            shown[name] = value
    return shown


def read_changes(connection: Connection, space: int, id: str) -> list[Change]:
    """The changes of a memory, oldest first; see `Memory.history`."""
    rows = connection.execute(
        select(changes)
        .where(changes.c.space_id == space, or_(changes.c.memory_id == id, changes.c.other_id == id))
        .order_by(changes.c.id)
    ).all()
    row = connection.execute(
        select(memories).where(memories.c.space_id == space, memories.c.id == id)
    ).first()
    if row is None:
        rows = [change for change in rows if change.memory_id == id and change.action == "forget"]
        if not rows:
            raise NotFound(f"There is no memory {id!r} here.")
    undone = {change.undoes: f"c{change.id}" for change in rows if change.undoes is not None}
    found: list[Change] = []
    if row is not None:
        first = state_of(connection, row)
        # Undo the changes one after the other to get the state in which it was stored.
        for change in reversed(rows):
            if change.memory_id == id:
                before = json.loads(change.before)
                before.pop("edge", None)
                first.update(before)
        found.append(
            Change(
                id=f"add-{id}",
                memory_id=id,
                other_id=None,
                action="add",
                at=from_micros(row.created_at),
                who=row.trust,
                why="",
                before={},
                after=_readable(first),
            )
        )
    found += [
        Change(
            id=f"c{change.id}",
            memory_id=change.memory_id,
            other_id=change.other_id,
            action=change.action,
            at=from_micros(change.at),
            who=change.who,
            why=change.why,
            before=_readable(json.loads(change.before)),
            after=_readable(json.loads(change.after)),
            undoes=None if change.undoes is None else f"c{change.undoes}",
            undone_by=undone.get(change.id),
        )
        for change in rows
    ]
    return found


def undo_changes(connection: Connection, space: int, change_ids: Sequence[str], note: ChangeNote) -> str:
    """Undo changes, one after the other; returns the id of the first new one."""
    return [undo_change(connection, space, id, note) for id in change_ids][0]


def undo_change(connection: Connection, space: int, change_id: str, note: ChangeNote) -> str:
    """Undo a change. This is a change too, and undoing it restores the first one. See `Memory.undo`."""
    if change_id.startswith("add-"):
        raise UsageError("Storing can't be undone; forget the memory instead.")
    number = int(change_id[1:]) if change_id[:1] == "c" and change_id[1:].isdecimal() else -1
    change = (
        connection.execute(select(changes).where(changes.c.space_id == space, changes.c.id == number)).first()
        if 0 <= number < 2**63
        else None
    )
    if change is None:
        raise NotFound(
            f"There is no change {change_id!r} here; `memory history ID` lists the changes of a memory."
        )
    if change.action == "forget":
        raise UsageError("A forgotten memory can't be restored.")
    before, after = json.loads(change.before), json.loads(change.after)
    row = find_row(connection, space, change.memory_id)
    now = state_of(connection, row)
    edge, old_edge = after.pop("edge", None), before.pop("edge", None)
    differing = [name for name in after if now[name] != after[name]]
    current = _edge_now(connection, space, edge)
    if edge is not None and current is not None and current[2] != edge["weight"]:
        differing.append("edge")
    if differing:
        raise UsageError(
            f"Change {change_id} can't be undone: {', '.join(differing)} was changed again later. "
            "Undo the later change first."
        )
    if old_edge is not None and current is not None:
        put_edge(connection, current[0], current[1], old_edge["relation"], old_edge["weight"], note.at)
    if change.action == "supersede" and before["valid_to"] is None and is_superseded(connection, row.rid):
        del before["valid_to"], after["valid_to"]  # Another memory that took its place ended it too.
    if before:
        apply_fields(connection, space, row, before)
    undone = after if edge is None else {**after, "edge": edge}
    again = before if old_edge is None else {**before, "edge": old_edge}
    return write_change(
        connection, space, "undo", row.id, undone, again, note, other_id=change.other_id, undoes=change.id
    )


def replay(
    connection: Connection,
    space: int,
    memory_id: str,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    *,
    at: int,
) -> None:
    """Make a change again whose entry was read back, where the memory is as it was before it."""
    row = connection.execute(_ROW, {"space": space, "of": memory_id}).first()
    if row is None:
        return
    now = state_of(connection, row)
    fields = {name: value for name, value in after.items() if name in now}
    if fields and all(now[name] == before.get(name) for name in fields):
        apply_fields(connection, space, row, fields)
    edge = after.get("edge")
    ends = _edge_now(connection, space, edge)
    if edge is not None and ends is not None:
        put_edge(connection, ends[0], ends[1], edge["relation"], edge["weight"], at)


def undo_comparing(connection: Connection, space: int, *, at: int) -> None:
    """Undo what versions that compared memories by their words marked; a file that one of them wrote brings it back.

    What was changed again since stays.
    """
    undone = select(changes.c.undoes).where(changes.c.space_id == space, changes.c.undoes.is_not(None))
    found = connection.execute(
        select(changes.c.id)
        .where(
            changes.c.space_id == space,
            changes.c.who == "compare",
            changes.c.action.in_(("link", "supersede")),
            changes.c.id.not_in(undone),
        )
        .order_by(changes.c.id.desc())
    )
    for id in found.scalars().all():
        with suppress(NotFound, UsageError):
            undo_change(connection, space, f"c{id}", ChangeNote(at=at, who="upgrade", why=_NO_COMPARING))


def is_superseded(connection: Connection, rid: int) -> bool:
    """Whether another memory has taken the place of one."""
    query = select(edges.c.source_rid).where(edges.c.target_rid == rid, edges.c.relation == "supersedes")
    return connection.execute(query.limit(1)).first() is not None


def _edge_now(connection: Connection, space: int, edge: Mapping[str, Any] | None) -> Any:
    """Both ends of an edge and its current weight; None if an end no longer exists."""
    if edge is None:
        return None
    try:
        source = find_row(connection, space, edge["source"])
        target = find_row(connection, space, edge["target"])
    except NotFound:
        return None
    here = {"source": source.rid, "target": target.rid, "named": edge["relation"]}
    return source, target, connection.execute(_WEIGHT, here).scalar()


def earlier_contents(connection: Connection, space: int, ids: Sequence[str]) -> dict[str, list[str]]:
    """The texts that memories had before they were edited, by id. Logs may still contain them."""
    found: dict[str, list[str]] = {}
    rows = connection.execute(
        select(changes.c.memory_id, changes.c.before, changes.c.after).where(
            changes.c.space_id == space, changes.c.memory_id.in_(among(ids))
        )
    )
    for id, before, after in rows:
        for text in (before, after):
            content = json.loads(text).get("content")
            if content is not None and content not in found.setdefault(id, []):
                found[id].append(content)
    return found


def as_written(
    connection: Connection, space: int, records: Sequence[MemoryRecord], moment: datetime
) -> list[MemoryRecord]:
    """Memories without the edits that were made after a moment."""
    later: dict[str, dict[str, Any]] = {}
    rows = connection.execute(
        select(changes.c.memory_id, changes.c.before)
        .where(
            changes.c.space_id == space,
            changes.c.memory_id.in_(among(record.id for record in records)),
            changes.c.at > to_micros(moment),
        )
        .order_by(changes.c.id)
    )
    for id, before in rows:
        for name, value in json.loads(before).items():
            if name in _WRITTEN:
                later.setdefault(id, {}).setdefault(name, value)

    def then(record: MemoryRecord) -> MemoryRecord:
        fields: dict[str, Any] = later.get(record.id, {})
        return replace(record, **{**fields, "tags": tuple(fields.get("tags", record.tags))})

    return [then(record) for record in records]


def rewritten(change: Any, clean: Callable[[str], str]) -> dict[str, str]:
    """The columns of a change in whose texts `clean` changes something, as they are then."""

    def cleaned(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: cleaned(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [cleaned(inner) for inner in value]
        return clean(value) if isinstance(value, str) else value

    found = {"why": clean(change.why)}
    for name in ("before", "after"):
        found[name] = json.dumps(cleaned(json.loads(getattr(change, name))), ensure_ascii=False)
    return {name: text for name, text in found.items() if text != getattr(change, name)}


def rewrite_changes(
    connection: Connection, space: int, which: ColumnElement[bool], clean: Callable[[str], str]
) -> None:
    """Have changes say only what `clean` leaves of their texts."""
    for row in connection.execute(select(changes).where(changes.c.space_id == space, which)).all():
        if columns := rewritten(row, clean):
            connection.execute(update(changes).where(changes.c.id == row.id).values(**columns))


def drop_changes(
    connection: Connection, space: int, gone: Sequence[Forgotten], at: int, hasher: WordHasher | None
) -> None:
    """Delete the changes of memories that are being forgotten, and record that they were forgotten. With a hasher, what
    they said before is refused from now on.
    """
    sources = {forgotten.id: forgotten.source for forgotten in gone}
    if hasher is not None:
        hashes = {
            hasher.words(source.session, content, turn=None if source.position is None else source.turn)
            for id, contents in earlier_contents(connection, space, list(sources)).items()
            if (source := sources[id]).session is not None
            for content in contents
        }
        add_earlier_words(connection, space, hashes)
    here = changes.c.space_id == space
    connection.execute(delete(changes).where(here, changes.c.memory_id.in_(among(sources))))
    # The reason of a change of an edge may quote the memory at its other end.
    connection.execute(update(changes).where(here, changes.c.other_id.in_(among(sources))).values(why=""))
    connection.execute(
        insert(changes),
        [
            {
                "space_id": space,
                "memory_id": forgotten.id,
                "action": "forget",
                "at": at,
                "who": "user",
                "why": "",
                "before": json.dumps({"content_hmac": forgotten.content_hmac}),
                "after": "{}",
            }
            for forgotten in gone
        ],
    )
