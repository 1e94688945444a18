"""What happened to a memory since it was stored: every change with before, after, who and why; and the way back.

A change is undone by another one, so that nothing is lost by undoing either. A memory that is forgotten takes its
changes along, the words in them included; one entry stays that says so, with a hash.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, delete, insert, or_, select, update

from satchel.errors import NotFound, UsageError
from satchel.memory import lexicon
from satchel.memory.hashing import WordHasher
from satchel.memory.records import Forgotten, MemoryRecord
from satchel.memory.repository import content_hash, count_up, from_micros, slices, to_micros
from satchel.memory.tables import changes, compared, earlier_words, edges, memories, tags, vectors, words

__all__ = [
    "Change",
    "apply_fields",
    "as_written",
    "change_to_json",
    "drop_changes",
    "earlier_contents",
    "find_row",
    "own_supersession",
    "put_edge",
    "read_changes",
    "state_of",
    "undo_change",
    "write_change",
]

_TIMES = ("said_at", "valid_from", "valid_to")
_FIELDS = (
    "content",
    "tier",
    "memory_type",
    "importance",
    "priority",
    "decay_rate",
    "speaker",
    "said_at",
    "said_offset_min",
    "valid_from",
    "valid_to",
)
_WRITTEN = frozenset({"content", "tags", "speaker", "tier", "memory_type", "importance"})
"""What an edit writes that is shown with a memory."""
_INDEXED = frozenset({"content", "tags", "speaker", "said_at", "said_offset_min"})
"""What the index in memory holds of a memory: a change of these is told to every process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change of a memory.

    Attributes:
        id: Names it for `undo`.
        memory_id: Which memory, and `other_id` the other one of an edge.
        action: "add", "edit", "tier", "link", "unlink", "supersede", "undo" or "forget".
        who: Who made it: "user", "agent", "distill", "compare", or a name.
        before: The fields that changed, as they were; `after`, as they became. Times are in ISO 8601. An edge stands
            under "edge", with a weight of None where there was none.
        undoes: The change that this one took back, or None; `undone_by`, the one that took this one back.
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


def change_to_json(change: Change) -> dict[str, Any]:
    """A change as plain JSON data."""
    return {
        "id": change.id,
        "memory_id": change.memory_id,
        "other_id": change.other_id,
        "action": change.action,
        "at": change.at.isoformat(),
        "who": change.who,
        "why": change.why,
        "before": dict(change.before),
        "after": dict(change.after),
        "undoes": change.undoes,
        "undone_by": change.undone_by,
    }


# Comparing runs these several times for each fact, and building a statement takes longer than running it.
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
_OWN_SUPERSESSION = (
    select(changes.c.id)
    .where(
        changes.c.space_id == bindparam("space"),
        changes.c.memory_id == bindparam("older"),
        changes.c.other_id == bindparam("newer"),
        changes.c.action == "supersede",
        changes.c.who == "compare",
        changes.c.id.not_in(
            select(changes.c.undoes).where(
                changes.c.space_id == bindparam("space"), changes.c.undoes.is_not(None)
            )
        ),
    )
    .order_by(changes.c.id.desc())
)


def find_row(connection: Connection, space: int, id: str) -> Any:
    """The row of a memory.

    Raises:
        NotFound: There is none with this id in this space.
    """
    row = connection.execute(_ROW, {"space": space, "of": id}).first()
    if row is None:
        raise NotFound(f"There is no memory {id!r} here.")
    return row


def state_of(connection: Connection, row: Any) -> dict[str, Any]:
    """Everything of a memory that can be changed, as the columns hold it, and its tags."""
    tagged = connection.execute(select(tags.c.tag).where(tags.c.rid == row.rid).order_by(tags.c.position))
    return {**{name: getattr(row, name) for name in _FIELDS}, "tags": list(tagged.scalars())}


def apply_fields(connection: Connection, space: int, row: Any, fields: Mapping[str, Any]) -> None:
    """Write fields of a memory, and what is derived from them.

    Args:
        connection: In a transaction that writes.
        space: Where it is.
        row: As it is now.
        fields: By the names of `state_of`.
    """
    changed = count_up(connection, space)
    values = {name: value for name, value in fields.items() if name != "tags"}
    if "content" in values:
        values["content_hash"] = content_hash(values["content"])
        # The vectors are of the old words, and what they were compared with is of no account.
        connection.execute(delete(vectors).where(vectors.c.rid == row.rid))
        connection.execute(delete(compared).where(compared.c.rid == row.rid))
    if "tags" in fields:
        connection.execute(delete(tags).where(tags.c.rid == row.rid))
        new = [
            {"rid": row.rid, "tag": tag, "position": position} for position, tag in enumerate(fields["tags"])
        ]
        if new:
            connection.execute(insert(tags), new)
    if _INDEXED & fields.keys():
        values["changed"] = changed
        # They are read anew with the memory.
        connection.execute(update(vectors).where(vectors.c.rid == row.rid).values(changed=changed))
    if values:
        connection.execute(update(memories).where(memories.c.rid == row.rid).values(**values))
    if "content" in fields or "tags" in fields:
        now = find_row(connection, space, row.id)
        read = lexicon.read_text(now.content, state_of(connection, now)["tags"])
        connection.execute(
            update(words)
            .where(words.c.rid == row.rid)
            .values(version=lexicon.VERSION, words=read.words, features=read.features, stems=read.to_bytes())
        )


def put_edge(
    connection: Connection, source: Any, target: Any, relation: str, weight: float | None, at: int
) -> float | None:
    """Set the weight of an edge, or take it away with None.

    Returns:
        The weight that it had, or None where there was no edge.
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
    *,
    memory_id: str,
    action: str,
    at: int,
    who: str,
    why: str,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    other_id: str | None = None,
    undoes: int | None = None,
) -> str:
    """Keep a change; gives its id."""
    row = {
        "space_id": space,
        "memory_id": memory_id,
        "other_id": other_id,
        "action": action,
        "at": at,
        "who": who,
        "why": why,
        "before": json.dumps(before, ensure_ascii=False),
        "after": json.dumps(after, ensure_ascii=False),
        "undoes": undoes,
    }
    number = connection.execute(_KEEP_CHANGE, row).scalar_one()
    return f"c{number}"


def _shown(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields as people read them."""
    offset = fields.get("said_offset_min", 0)
    shown: dict[str, Any] = {}
    for name, value in fields.items():
        if name == "said_offset_min":
            continue
        if name in _TIMES and value is not None:
            shown[name] = from_micros(value, offset if name == "said_at" else 0).isoformat()
        else:
            shown[name] = value
    return shown


def read_changes(connection: Connection, space: int, id: str) -> list[Change]:
    """Everything that happened to a memory, oldest first; its first entry is that it was stored.

    Raises:
        NotFound: Nothing is known of this id.
    """
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
        # Changes are taken back one after the other, down to what was stored.
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
                after=_shown(first),
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
            before=_shown(json.loads(change.before)),
            after=_shown(json.loads(change.after)),
            undoes=None if change.undoes is None else f"c{change.undoes}",
            undone_by=undone.get(change.id),
        )
        for change in rows
    ]
    return found


def undo_change(connection: Connection, space: int, change_id: str, *, at: int, who: str, why: str) -> str:
    """Take a change back; undoing that again brings it back.

    Returns:
        The id of the change that this is itself.

    Raises:
        NotFound: There is no such change.
        UsageError: It can't be undone, or what it changed was changed again since.
    """
    if change_id.startswith("add-"):
        raise UsageError("That it was stored can't be undone; forget the memory if it shall go.")
    number = int(change_id[1:]) if change_id[:1] == "c" and change_id[1:].isdecimal() else -1
    change = (
        connection.execute(select(changes).where(changes.c.space_id == space, changes.c.id == number)).first()
        if 0 <= number < 2**63
        else None
    )
    if change is None:
        raise NotFound(f"There is no change {change_id!r} here; `memory history ID` lists a memory's.")
    if change.action == "forget":
        raise UsageError("What was forgotten is gone for good and can't be brought back.")
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
            f"Change {change_id} can't be undone: {', '.join(differing)} was changed again since. "
            "Undo the later change first."
        )
    if before:
        apply_fields(connection, space, row, before)
    if old_edge is not None and current is not None:
        put_edge(connection, current[0], current[1], old_edge["relation"], old_edge["weight"], at)
    return write_change(
        connection,
        space,
        memory_id=change.memory_id,
        other_id=change.other_id,
        action="undo",
        at=at,
        who=who,
        why=why,
        before=after if edge is None else {**after, "edge": edge},
        after=before if old_edge is None else {**before, "edge": old_edge},
        undoes=change.id,
    )


def own_supersession(connection: Connection, space: int, older: str, newer: str) -> str | None:
    """The change by which comparing let one memory take another's place, where it still stands; None where not."""
    number = connection.execute(_OWN_SUPERSESSION, {"space": space, "older": older, "newer": newer}).scalar()
    return None if number is None else f"c{number}"


def _edge_now(connection: Connection, space: int, edge: Mapping[str, Any] | None) -> Any:
    """Both ends of an edge and its weight now; None where an end is gone, and with it the edge."""
    if edge is None:
        return None
    try:
        source = find_row(connection, space, edge["source"])
        target = find_row(connection, space, edge["target"])
    except NotFound:
        return None
    weight = connection.execute(
        select(edges.c.weight).where(
            edges.c.source_rid == source.rid,
            edges.c.target_rid == target.rid,
            edges.c.relation == edge["relation"],
        )
    ).scalar()
    return source, target, weight


def earlier_contents(connection: Connection, space: int, ids: Sequence[str]) -> dict[str, list[str]]:
    """What memories said before they were edited, by id: words that may stand in logs still."""
    found: dict[str, list[str]] = {}
    for part in slices(ids):
        rows = connection.execute(
            select(changes.c.memory_id, changes.c.before, changes.c.after).where(
                changes.c.space_id == space, changes.c.memory_id.in_(part)
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
    """Memories as they stood at a moment: what edits wrote later is not in them."""
    later: dict[str, dict[str, Any]] = {}
    for part in slices([record.id for record in records]):
        rows = connection.execute(
            select(changes.c.memory_id, changes.c.before)
            .where(
                changes.c.space_id == space,
                changes.c.memory_id.in_(part),
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


def drop_changes(
    connection: Connection, space: int, gone: Sequence[Forgotten], at: int, hasher: WordHasher
) -> None:
    """Remove the changes of memories that are being forgotten, and keep that they were, by keyed hashes.

    Args:
        connection: In the transaction that forgets.
        space: Where they are.
        gone: What was removed.
        at: When.
        hasher: Has the key.
    """
    sources = {forgotten.id: forgotten.source for forgotten in gone}
    hashes = {
        hasher.words(source.session, content, turn=None if source.position is None else source.turn)
        for id, contents in earlier_contents(connection, space, list(sources)).items()
        if (source := sources[id]).session is not None
        for content in contents
    }
    known: set[str] = set()
    for part in slices(sorted(hashes)):
        known.update(
            connection.execute(
                select(earlier_words.c.words_hash).where(
                    earlier_words.c.space_id == space, earlier_words.c.words_hash.in_(part)
                )
            ).scalars()
        )
    if hashes - known:
        connection.execute(
            insert(earlier_words),
            [{"space_id": space, "words_hash": number} for number in sorted(hashes - known)],
        )
    for part in slices(list(sources)):
        connection.execute(delete(changes).where(changes.c.space_id == space, changes.c.memory_id.in_(part)))
        # An edge's change names both by their ids; a reason may quote the one that goes.
        connection.execute(
            update(changes).where(changes.c.space_id == space, changes.c.other_id.in_(part)).values(why="")
        )
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
