"""The SQL of memory. Every function runs inside a transaction of `storage.Database`."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import (
    BigInteger,
    BindParameter,
    ColumnElement,
    Connection,
    and_,
    bindparam,
    case,
    delete,
    exists,
    func,
    insert,
    literal,
    not_,
    or_,
    select,
    update,
)
from sqlalchemy.dialects.sqlite import insert as upsert
from sqlalchemy.sql import Select

from satchel.memory.records import Discretion, MemoryRecord, Source, Stats, time_from_json
from satchel.memory.spheres import person_sphere
from satchel.memory.store import discretion_rows
from satchel.memory.store.decay import FLOOR, LASTING_IMPORTANCE
from satchel.memory.store.filters import CheckedFilters
from satchel.memory.store.micros import from_micros, to_micros
from satchel.memory.store.tables import (
    changes,
    cue_vectors,
    cues,
    earlier_words,
    edges,
    memories,
    spaces,
    tags,
    tombstones,
    uses,
    vectors,
    words,
)
from satchel.memory.text import lexicon
from satchel.memory.text.discretion import DiscretionWish
from satchel.memory.text.hashing import WordHasher
from satchel.storage import Prepared

T = TypeVar("T")
_SLICE = 500
_DAY_MICROS = 86_400_000_000.0


def offset_minutes(moment: datetime) -> int:
    """The offset of an aware time from UTC, in minutes."""
    offset = moment.utcoffset()
    return 0 if offset is None else int(offset.total_seconds() // 60)


def content_hash(content: str) -> str:
    """The SHA-256 of a text as hexadecimal digits."""
    return hashlib.sha256(content.encode()).hexdigest()


def digest_of(*parts: object, size: int = 16) -> str:
    """A hash of some names, which tells them apart wherever they end."""
    text = "".join(f"{len(str(part))}:{part};" for part in parts)
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=size).hexdigest()


def place_hash(session: str, turn: int, position: int) -> str:
    """The hash of a place in a conversation, for tombstones and for the ids of episodes."""
    return digest_of("place", session, turn, position)


def words_hash(hasher: WordHasher, row: Mapping[str, Any]) -> str | None:
    """The hash by which the words of a memory are refused once they are forgotten; None without a session.

    What was said has a place of its own, and nothing else is stored there. Whoever counts places again may give the
    same words the next one, so words are known within their turn too; the session's later turns may repeat them
    ("Yes, please."). Several facts may come from one turn: they are known by their words in the whole session.
    """
    session, turn = row["source_session"], row["source_turn"]
    if session is None:
        return None
    return hasher.words(session, row["content"], turn=None if row["source_position"] is None else turn)


def slices(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Divide a list into parts of 500, for work that is done in steps."""
    for at in range(0, len(items), _SLICE):
        yield items[at : at + _SLICE]


def listed(values: BindParameter[str]) -> Select[Any]:
    """The values of a JSON array, for `column.in_`: a single parameter, so that a statement is compiled only once."""
    return select(func.json_each(values).table_valued("value").c.value)


def among(values: Iterable[int | str]) -> Select[Any]:
    """Some values, however many, for `column.in_`."""
    return listed(literal(json.dumps(list(values))))


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryDraft:
    """A memory that is ready to be written.

    Attributes:
        row: The columns of `memories` by name.
        words_hash: See `words_hash`.
        wish: What the user asks for in it, if it is theirs; see `discretion`.
    """

    id: str
    row: Mapping[str, Any]
    tags: tuple[str, ...]
    words: lexicon.WordList
    words_hash: str | None = None
    cues: tuple[str, ...] = ()
    wish: DiscretionWish | None = None


def find_space(connection: Connection, user: str, scope: str) -> int | None:
    """The id of a user's scope, or None if it doesn't exist yet."""
    return connection.execute(
        select(spaces.c.id).where(spaces.c.user_id == user, spaces.c.scope == scope)
    ).scalar()


def scopes_of(connection: Connection, user: str) -> Sequence[str]:
    """The user's scopes."""
    return connection.execute(select(spaces.c.scope).where(spaces.c.user_id == user)).scalars().all()


def open_space(connection: Connection, user: str, scope: str) -> int:
    """The id of a user's scope, which is created if it doesn't exist."""
    found = find_space(connection, user, scope)
    if found is None:
        found = connection.execute(
            insert(spaces).values(user_id=user, scope=scope, changed=0).returning(spaces.c.id)
        ).scalar_one()
    return int(found)


def remove_space(connection: Connection, user: str, scope: str) -> None:
    """Delete a user's scope. All that is in it goes with it: the foreign keys cascade."""
    connection.execute(delete(spaces).where(spaces.c.user_id == user, spaces.c.scope == scope))


_REQUESTS = Prepared(select(spaces.c.requests).where(spaces.c.id == bindparam("space")))
_SPACE_CHANGED = Prepared(select(spaces.c.changed).where(spaces.c.id == bindparam("space")))
_COUNT_UP = Prepared(
    update(spaces)
    .where(spaces.c.id == bindparam("space"))
    .values(changed=spaces.c.changed + 1)
    .returning(spaces.c.changed, spaces.c.requests)
)


def requests_so_far(connection: Connection, space: int) -> int:
    """The number of chat requests that were counted in a space."""
    ((requests,),) = _REQUESTS.run(connection, {"space": space})
    return int(requests)


def count_request(connection: Connection, space: int) -> None:
    """Count a chat request. This changes one number and no memory."""
    connection.execute(update(spaces).where(spaces.c.id == space).values(requests=spaces.c.requests + 1))


def space_changed(connection: Connection, space: int) -> int:
    """The number of the last change in a space."""
    ((changed,),) = _SPACE_CHANGED.run(connection, {"space": space})
    return int(changed)


def count_up(connection: Connection, space: int) -> int:
    """Count a change and return its number. As the first statement of a transaction, this serialises the writers."""
    ((changed, _),) = _COUNT_UP.run(connection, {"space": space})
    return int(changed)


_INSERT_MEMORY = Prepared(
    insert(memories).returning(memories.c.rid),
    columns=[column.name for column in memories.c if column.name not in ("rid", "pinned")],
)
_UNSAID = {"discretion": "open", "kept_from": "", "spheres": ""}
_INSERT_WORDS = Prepared(insert(words))
_INSERT_TAG = Prepared(insert(tags))
_INSERT_CUE = Prepared(insert(cues))
_RELEASED = json.dumps({"content_hmac": ""})
"""What `forgetting.release` leaves of a memory in `changes`: it is stored elsewhere, and nobody forgot it."""
_ANY_TOMBSTONE = Prepared(select(literal(1)).where(tombstones.c.space_id == bindparam("space")).limit(1))


def insert_drafts(
    connection: Connection, space: int, drafts: Sequence[MemoryDraft], *, fresh: bool = False
) -> list[str]:
    """Write memories, except those that exist already or were forgotten.

    With `fresh`, the ids are new, so that none of them can exist.

    Returns:
        The ids of the drafts that are in the store now, in order: all but the forgotten ones.
    """
    refused = _refused(connection, space, drafts)
    wanted: dict[str, MemoryDraft] = {}
    for draft in drafts:
        if draft.id not in refused:
            wanted.setdefault(draft.id, draft)
    known = set() if fresh else known_ids(connection, space, list(wanted))
    new = [draft for id, draft in wanted.items() if id not in known]
    if new:
        ((changed, request),) = _COUNT_UP.run(connection, {"space": space})
        common = {"space_id": space, "changed": changed, "request": request}
        written: list[tuple[int, MemoryDraft]] = []
        instead, held = discretion_rows.obey(connection, space, [(one.row, one.wish) for one in new])
        if held:
            mark_changed(connection, held, changed)
        for draft, other in zip(new, instead, strict=True):
            row = {**_UNSAID, **draft.row, **other, "id": draft.id, **common}
            ((rid,),) = _INSERT_MEMORY.run(connection, row)
            written.append((rid, draft))
        _INSERT_WORDS.run_all(connection, [_words_row(rid, draft.words) for rid, draft in written])
        _INSERT_TAG.run_all(
            connection,
            [
                {"rid": rid, "tag": tag, "position": position}
                for rid, draft in written
                for position, tag in enumerate(draft.tags)
            ],
        )
        _INSERT_CUE.run_all(
            connection,
            [
                {"rid": rid, "place": place, "cue": cue}
                for rid, draft in written
                for place, cue in enumerate(draft.cues)
            ],
        )
    return [draft.id for draft in drafts if draft.id in wanted]


def lacking_drafts(connection: Connection, space: int, drafts: Sequence[MemoryDraft]) -> list[str]:
    """The ids of the drafts that `insert_drafts` would store."""
    refused = _refused(connection, space, drafts)
    known = known_ids(connection, space, [draft.id for draft in drafts])
    return [draft.id for draft in drafts if draft.id not in refused and draft.id not in known]


def _refused(connection: Connection, space: int, drafts: Sequence[MemoryDraft]) -> set[str]:
    """The ids of the drafts that were forgotten: those with the same id, the same place, the same words in the same
    turn or, if they have no place, the same words in the same session.
    """
    if not drafts or not _ANY_TOMBSTONE.run(connection, {"space": space}):
        return set()
    places: dict[str, list[str]] = {}
    said: dict[str, list[str]] = {}
    for draft in drafts:
        row = draft.row
        session = row["source_session"]
        if None not in (session, row["source_turn"], row["source_position"]):
            place = place_hash(session, row["source_turn"], row["source_position"])
            places.setdefault(place, []).append(draft.id)
        if draft.words_hash is not None:
            said.setdefault(draft.words_hash, []).append(draft.id)
    # Places of an imported conversation may be counted anew; the ids of its messages are the file's own. What was
    # stored by hand has its id alone: an export of before has it, and the same words, said anew, have another.
    was_forgotten = (changes.c.action == "forget") & (changes.c.before != _RELEASED)
    ids = changes.c.memory_id.in_(among(draft.id for draft in drafts))
    query = select(changes.c.memory_id).where(changes.c.space_id == space, ids, was_forgotten)
    refused = set(connection.execute(query).scalars())
    for table, column, by_hash in (
        (tombstones, tombstones.c.place_hash, places),
        (tombstones, tombstones.c.words_hash, said),
        (earlier_words, earlier_words.c.words_hash, said),
    ):
        found = connection.execute(
            select(column).where(table.c.space_id == space, column.in_(among(by_hash)))
        ).scalars()
        refused.update(id for number in found for id in by_hash[number])
    return refused


def forgotten_words(connection: Connection, space: int, hashes: Collection[str]) -> set[str]:
    """Those of these hashes of words (`WordHasher.words`) whose words were forgotten."""
    return {
        digest
        for table in (tombstones, earlier_words)
        for digest in connection.execute(
            select(table.c.words_hash).where(table.c.space_id == space, table.c.words_hash.in_(among(hashes)))
        ).scalars()
    }


class ChangedMemory(NamedTuple):
    """What an index keeps of a memory, in the order of `_CHANGED_MEMORY`.

    Attributes:
        opening: The beginning of the text of a memory without a speaker, which may be a line of a transcript; else "".
        cued: Whether it has cues.
        words: The number of words; `features` and `stems` are those of `lexicon.WordList`.
    """

    rid: int
    kind: str
    source_session: str | None
    source_turn: int | None
    source_position: int | None
    said_at: int
    said_offset_min: int
    speaker: str
    trust: str
    source_quote: str | None
    opening: str
    cued: bool
    words: int
    features: int
    stems: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The changes in a space since a change number, for `index.Index`.

    Attributes:
        changed: The number of the last change that is included.
        memories: Rows with the columns of `ChangedMemory`. They are read while they are used, within the transaction,
            like those below.
        gone: The rids of forgotten memories.
        vectors: For each model, rows (rid, vectors) of memories, and the same of their cues.
    """

    changed: int
    memories: Iterable[Any]
    gone: Sequence[int]
    vectors: Sequence[tuple[Iterable[Any], Iterable[Any]]] = ()


_OPENING_CHARS = 100
"""Of a text, what tells who speaks in it: "Ann Lee: "."""
_OPENING = func.substr(memories.c.content, 1, _OPENING_CHARS)
_CHANGED_MEMORY = (
    select(
        memories.c.rid,
        memories.c.kind,
        memories.c.source_session,
        memories.c.source_turn,
        memories.c.source_position,
        memories.c.said_at,
        memories.c.said_offset_min,
        memories.c.speaker,
        memories.c.trust,
        memories.c.source_quote,
        # A memory without a speaker may begin like a line of a transcript: "Ann: …".
        case(
            ((memories.c.speaker == "") & (memories.c.kind != "episode"), _OPENING),
            else_="",
        ).label("opening"),
        select(literal(1)).where(cues.c.rid == memories.c.rid).exists().label("cued"),
        words.c.words,
        words.c.features,
        words.c.stems,
    )
    .join(words, words.c.rid == memories.c.rid)
    .where(memories.c.space_id == bindparam("space"), memories.c.changed > bindparam("since"))
    .order_by(memories.c.rid)
)
_CHANGED_MEMORIES = Prepared(_CHANGED_MEMORY)
_GONE = Prepared(
    select(tombstones.c.rid).where(
        tombstones.c.space_id == bindparam("space"), tombstones.c.changed > bindparam("since")
    )
)
# Vectors in any order: sorting them takes twice as long as reading them.
_CHANGED_VECTORS, _CHANGED_CUE_VECTORS = (
    Prepared(
        select(table.c.rid, table.c.vectors).where(
            table.c.space_id == bindparam("space"),
            table.c.model_id == bindparam("model"),
            table.c.changed > bindparam("since"),
        )
    )
    for table in (vectors, cue_vectors)
)


def load_changes(
    connection: Connection, space: int, *, since: int, models: Sequence[tuple[int, int]] = ()
) -> Changes | None:
    """The changes after `since`, or None if there are none; 0 reads everything.

    `models` are those whose vectors are read, each with the number of the last change whose vectors are known.
    """
    changed = space_changed(connection, space)
    if changed == since and all(known == changed for _, known in models):
        return None
    values = {"space": space, "since": since}
    # Tombstones don't matter when everything is read.
    gone = [rid for (rid,) in _GONE.run(connection, values)] if 0 < since < changed else []

    def changed_in(query: Prepared, model: int, known: int) -> Iterable[Any]:
        return query.each(connection, {"space": space, "model": model, "since": known})

    return Changes(
        changed=changed,
        memories=_CHANGED_MEMORIES.each(connection, values),
        gone=gone,
        vectors=[
            (changed_in(_CHANGED_VECTORS, *one), changed_in(_CHANGED_CUE_VECTORS, *one)) for one in models
        ],
    )


_RECORD = (
    select(
        memories,
        spaces.c.user_id,
        spaces.c.scope,
        uses.c.last_accessed,
        uses.c.access_count,
    )
    .join(spaces, spaces.c.id == memories.c.space_id)
    .outerjoin(uses, uses.c.rid == memories.c.rid)
)


_RECORDS = Prepared(_RECORD.where(memories.c.rid.in_(listed(bindparam("rids")))).order_by(memories.c.rid))
_TAGS = Prepared(
    select(tags.c.rid, tags.c.tag)
    .where(tags.c.rid.in_(listed(bindparam("rids"))))
    .order_by(tags.c.rid, tags.c.position)
)


def _records(connection: Connection, rows: Sequence[Any]) -> dict[int, MemoryRecord]:
    """The memories in rows with the columns of `_RECORD`, by rid, in the same order."""
    tagged = tags_of(connection, [row.rid for row in rows])
    return {row.rid: _record(row, tuple(tagged.get(row.rid, ()))) for row in rows}


def tags_of(connection: Connection, rids: Sequence[int]) -> dict[int, list[str]]:
    """The tags of memories in their order, by rid; a memory without tags is left out."""
    tagged: dict[int, list[str]] = {}
    for rid, tag in _TAGS.run(connection, {"rids": json.dumps(list(rids))}):
        tagged.setdefault(rid, []).append(tag)
    return tagged


def _record(row: Any, tagged: tuple[str, ...]) -> MemoryRecord:
    def moment(micros: int | None) -> datetime | None:
        return None if micros is None else from_micros(micros)

    return MemoryRecord(
        id=row.id,
        content=row.content,
        kind=row.kind,
        tier=row.tier,
        memory_type=row.memory_type,
        importance=row.importance,
        priority=row.priority,
        decay_rate=row.decay_rate,
        tags=tagged,
        speaker=row.speaker,
        said_at=from_micros(row.said_at, row.said_offset_min),
        valid_from=moment(row.valid_from),
        valid_to=moment(row.valid_to),
        source=Source(
            session=row.source_session,
            turn=row.source_turn,
            position=row.source_position,
            quote=row.source_quote,
        ),
        trust=row.trust,
        created_at=from_micros(row.created_at),
        last_accessed=moment(row.last_accessed),
        access_count=row.access_count or 0,
        scope=row.scope,
        user=row.user_id,
        pinned=bool(row.pinned),
        time=None if row.time is None else time_from_json(json.loads(row.time)),
        discretion=row.discretion,
        kept_from=row.kept_from,
        spheres=tuple(row.spheres.split()),
    )


def read_records(connection: Connection, space: int, rids: Sequence[int]) -> dict[int, MemoryRecord]:
    """The memories with these rids, by rid."""
    # The statement selects by rid alone: if it had the space, SQLite would scan all its memories by an index.
    rows = _RECORDS.named(connection, {"rids": json.dumps(list(rids))})
    return _records(connection, [row for row in rows if row.space_id == space])


def records_by_id(connection: Connection, space: int, ids: Sequence[str]) -> dict[str, MemoryRecord]:
    """The memories with these ids, by id."""
    query = _RECORD.where(memories.c.space_id == space, memories.c.id.in_(among(ids)))
    records = _records(connection, connection.execute(query).all())
    return {record.id: record for record in records.values()}


def ids_of(connection: Connection, space: int, rids: Sequence[int]) -> list[str]:
    """The ids of the memories with these rids, in the same order; rids that don't exist are left out."""
    rows = connection.execute(
        select(memories.c.rid, memories.c.id).where(
            memories.c.space_id + 0 == space, memories.c.rid.in_(among(rids))
        )
    )
    found = {row.rid: row.id for row in rows}
    return [found[rid] for rid in rids if rid in found]


_RIDS_BY_ID = Prepared(
    select(memories.c.id, memories.c.rid).where(
        memories.c.space_id == bindparam("space"), memories.c.id.in_(listed(bindparam("ids")))
    )
)


def rids_by_id(connection: Connection, space: int, ids: Sequence[str]) -> dict[str, int]:
    """The rids of the memories with these ids, by id; ids that don't exist are left out."""
    return dict(_RIDS_BY_ID.run(connection, {"space": space, "ids": json.dumps(list(ids))}))


def rids_of(connection: Connection, space: int, ids: Sequence[str]) -> list[int]:
    """The rids of the memories with these ids, in no particular order; ids that don't exist are left out."""
    return list(rids_by_id(connection, space, ids).values())


_SESSIONS_WITH_FACTS = Prepared(
    select(memories.c.source_session)
    .distinct()
    .where(
        memories.c.space_id == bindparam("space"),
        memories.c.source_session.in_(listed(bindparam("sessions"))),
        memories.c.kind == "fact",
    )
)


def sessions_with_facts(connection: Connection, space: int, records: Iterable[MemoryRecord]) -> set[str]:
    """The sessions of some memories from which facts were drawn."""
    sessions = {record.source.session for record in records if record.source.session is not None}
    values = {"space": space, "sessions": json.dumps(sorted(sessions))}
    return {session for (session,) in _SESSIONS_WITH_FACTS.run(connection, values)}


def known_ids(connection: Connection, space: int, ids: Sequence[str]) -> set[str]:
    """The ids that exist."""
    return set(rids_by_id(connection, space, ids))


def _filtered(query: Select[Any], space: int, wanted: CheckedFilters) -> Select[Any]:
    query = query.where(memories.c.space_id == space)
    for name in ("kind", "tier", "memory_type", "speaker", "discretion"):
        if name in wanted:
            query = query.where(memories.c[name] == wanted[name])
    if (session := wanted.get("session")) is not None:
        query = query.where(memories.c.source_session == session)
    if (since := wanted.get("since")) is not None:
        query = query.where(memories.c.said_at >= to_micros(since))
    if (until := wanted.get("until")) is not None:
        query = query.where(memories.c.said_at < to_micros(until))
    if (as_of := wanted.get("as_of")) is not None:
        moment = to_micros(as_of)
        query = query.where(
            memories.c.said_at <= moment,
            func.coalesce(memories.c.valid_from, moment) <= moment,
            func.coalesce(memories.c.valid_to, moment + 1) > moment,
        )
    if "faded" in wanted:
        left, query_of = _left(space, wanted["now"], by_request=wanted["by_request"])
        there = memories.c.rid.in_(
            query_of.where(left < FLOOR, _kept.c.importance < LASTING_IMPORTANCE, _kept.c.space_id == space)
        )
        query = query.where(there if wanted["faded"] else not_(there))
    if "tags" in wanted:
        # Counted, because a condition for each of a thousand tags would be too deep for SQLite's parser.
        wanted_tags = list(wanted["tags"])
        having_all = (
            select(tags.c.rid)
            .where(tags.c.tag.in_(wanted_tags))
            .group_by(tags.c.rid)
            .having(func.count() == len(wanted_tags))
        )
        query = query.where(memories.c.rid.in_(having_all))
    if (sphere := wanted.get("sphere")) is not None:
        query = query.where(_in_sphere(sphere))
    if (named := wanted.get("named")) is not None:
        # Both databases read this pattern alike. The plain comparison spares most rows the pattern.
        is_word = memories.c.content.regexp_match(rf"(^|\W){re.escape(named)}($|\W)")
        has_it = and_(memories.c.content.contains(named, autoescape=True), is_word)
        query = query.where(or_(has_it, _in_sphere(person_sphere(named))))
    if "unreviewed" in wanted:
        said = and_(memories.c.source_session.is_not(None), not_(_IS_OF_DOCUMENT))
        query = query.where(memories.c.kind == "fact", said, not_(_IS_REVIEWED))
    # A model's answer that rests on a document or a page has the trust of that.
    by_model = or_(memories.c.trust == "agent", memories.c.speaker == "assistant")
    if "not_by_models" in wanted:
        query = query.where(or_(memories.c.kind != "episode", not_(by_model)))
    if wanted.get("folded") and wanted.get("kind") != "episode":
        said = and_(not_(by_model), not_(_is_evidence(space, wanted)))
        query = query.where(or_(memories.c.kind != "episode", said))
    return query


def _in_sphere(sphere: str) -> ColumnElement[bool]:
    return (" " + memories.c.spheres + " ").contains(f" {sphere} ", autoescape=True)


_IS_OF_DOCUMENT = memories.c.source_session.startswith("document:")
_undoing = changes.alias()
_IS_REVIEWED = exists().where(
    changes.c.space_id == memories.c.space_id,
    changes.c.memory_id == memories.c.id,
    changes.c.who == "user",
    changes.c.action.in_(map(literal, ("keep", "edit", "tier", "supersede"))),
    not_(exists().where(_undoing.c.space_id == memories.c.space_id, _undoing.c.undoes == changes.c.id)),
)


def _is_evidence(space: int, wanted: CheckedFilters) -> ColumnElement[bool]:
    """Whether a fact that matches the filter was drawn from a turn: by its place, or by an edge."""
    plain = _filtered(
        select(memories.c.rid, memories.c.source_session, memories.c.source_turn),
        space,
        {**wanted, "folded": False},
    )
    facts = plain.where(memories.c.kind == "fact").correlate(None).subquery("facts")
    at_place = exists().where(
        facts.c.source_session == memories.c.source_session, facts.c.source_turn == memories.c.source_turn
    )
    by_edge = (
        select(edges.c.target_rid)
        .join(facts, facts.c.rid == edges.c.source_rid)
        .where(edges.c.relation == "derived_from")
    )
    return or_(at_place, memories.c.rid.in_(by_edge))


def list_records(
    connection: Connection,
    space: int,
    wanted: CheckedFilters,
    *,
    limit: int,
    offset: int,
    facts_first: bool = False,
) -> list[MemoryRecord]:
    """The memories that match a filter, latest first by when they were said; facts before all others on request."""
    rank = [case((memories.c.kind == "fact", 0), else_=1)] if facts_first else []
    query = (
        _filtered(_RECORD, space, wanted)
        .order_by(*rank, memories.c.said_at.desc(), memories.c.rid.desc())
        .limit(limit)
        .offset(offset)
    )
    return list(_records(connection, connection.execute(query).all()).values())


def count_rows(connection: Connection, space: int, wanted: CheckedFilters) -> int:
    """The number of memories that match a filter."""
    query = _filtered(select(func.count()).select_from(memories), space, wanted)
    return int(connection.execute(query).scalar_one())


_OF_SESSION = Prepared(
    select(memories.c.rid).where(
        memories.c.space_id == bindparam("space"), memories.c.source_session == bindparam("session")
    )
)


def rids_of_session(connection: Connection, space: int, session: str) -> list[int]:
    """The rids of the memories that come from a session."""
    return [rid for (rid,) in _OF_SESSION.run(connection, {"space": space, "session": session})]


def matching_rids(connection: Connection, space: int, wanted: CheckedFilters) -> list[int]:
    """The rids of the memories that match a filter."""
    return list(connection.execute(_filtered(select(memories.c.rid), space, wanted)).scalars())


_SUPERSEDED = (
    select(literal(1)).where(edges.c.target_rid == memories.c.rid, edges.c.relation == "supersedes").exists()
)
_ENDED = select(memories.c.rid).where(
    memories.c.space_id == bindparam("space"),
    memories.c.valid_to.is_not(None),
    memories.c.valid_to <= bindparam("at"),
)
_EXPIRED = Prepared(
    _ENDED.where(or_(memories.c.time.is_(None), _SUPERSEDED, memories.c.importance < bindparam("over_from")))
)


def expired_rids(connection: Connection, space: int, at: int, *, over_from: int) -> list[int]:
    """The rids of the memories that no longer hold at a time, from a partial index of those with an end.

    What was never replaced, and is over because its time is over, as a trip, is not among them from the importance
    `over_from` on.
    """
    return [rid for (rid,) in _EXPIRED.run(connection, {"space": space, "at": at, "over_from": over_from})]


_HELD_BACK = Prepared(
    select(memories.c.rid).where(
        memories.c.space_id == bindparam("space"),
        memories.c.discretion != "open",
        memories.c.discretion.in_(listed(bindparam("levels"))),
    )
)


def held_back_rids(connection: Connection, space: int, levels: Collection[Discretion]) -> list[int]:
    """The rids of the memories that are held back, by how."""
    values = {"space": space, "levels": json.dumps(sorted(levels))}
    return [rid for (rid,) in _HELD_BACK.run(connection, values)]


_kept = memories.alias()
"""Another name for the table, so that `_left` can be in a condition of a query of it."""


def _left(space: Any, at: Any, *, by_request: bool) -> tuple[ColumnElement[Any], Select[Any]]:
    """The priority of `_kept` that is left, as `decay.priority_now` computes it; and the query that it stands in."""
    passed: ColumnElement[Any]
    if by_request:
        requests = select(spaces.c.requests).where(spaces.c.id == space).scalar_subquery()
        passed = requests - func.coalesce(uses.c.request, _kept.c.request)
    else:
        passed = (at - func.coalesce(uses.c.last_accessed, _kept.c.created_at)) / literal(_DAY_MICROS)
    left = _kept.c.priority - _kept.c.decay_rate * case((passed > 0, passed), else_=0)
    return left, select(_kept.c.rid).outerjoin_from(_kept, uses, uses.c.rid == _kept.c.rid)


def _fading(*, by_request: bool) -> Prepared:
    left, query = _left(bindparam("space"), bindparam("at", type_=BigInteger), by_request=by_request)
    # The sum keeps SQLite from walking the index of a whole space for a few known rows.
    among_them = (_kept.c.space_id + 0 == bindparam("space"), _kept.c.rid.in_(listed(bindparam("rids"))))
    return Prepared(
        query.add_columns(_kept.c.importance, _kept.c.said_at, left.label("left")).where(*among_them)
    )


_FADING = {by_request: _fading(by_request=by_request) for by_request in (False, True)}


def fading(
    connection: Connection, space: int, rids: Sequence[int], *, at: int, by_request: bool
) -> Iterator[tuple[int, int, int, float]]:
    """The rid, the importance, when it was said, and the priority that is left of each of some memories."""
    values = {"space": space, "at": at, "rids": json.dumps(list(rids))}
    for rid, importance, said_at, left in _FADING[by_request].run(connection, values):
        yield rid, importance, said_at, max(0.0, left)


def faded_rids(
    connection: Connection, space: int, among: Sequence[int], *, at: int, by_request: bool
) -> set[int]:
    """The memories among these whose priority, after its decay since they were last used, is below the floor, but for
    those that matter most.
    """
    left = fading(connection, space, among, at=at, by_request=by_request)
    return {
        rid for rid, importance, _, priority in left if priority < FLOOR and importance < LASTING_IMPORTANCE
    }


def note_uses(connection: Connection, space: int, ids: Iterable[str], at: int) -> None:
    """Count that these memories were shown to a model; ids that don't exist are ignored."""
    counted = (
        select(memories.c.rid, literal(at), literal(1), spaces.c.requests)
        .join(spaces, spaces.c.id == memories.c.space_id)
        .where(memories.c.space_id == space, memories.c.id.in_(among(ids)))
    )
    use = upsert(uses).from_select(["rid", "last_accessed", "access_count", "request"], counted)
    again = {
        "last_accessed": use.excluded.last_accessed,
        "access_count": uses.c.access_count + 1,
        "request": use.excluded.request,
    }
    connection.execute(use.on_conflict_do_update(index_elements=["rid"], set_=again))


_OLD_WORDS = (
    select(words.c.rid, memories.c.space_id)
    .join(memories, memories.c.rid == words.c.rid)
    .where(words.c.version < lexicon.VERSION)
)


def has_old_words(connection: Connection) -> bool:
    """Whether `reread_words` has anything to do. This is checked first, so that opening a store needn't write."""
    return connection.execute(_OLD_WORDS.limit(1)).first() is not None


def reread_words(connection: Connection) -> int:
    """Update the lexical index of some memories of any user that an older version of `lexicon` wrote; how many were."""
    old: dict[int, list[int]] = {}
    for rid, space in connection.execute(_OLD_WORDS.limit(_SLICE)):
        old.setdefault(space, []).append(rid)
    for space, rids in old.items():
        index_words(connection, rids, count_up(connection, space))
    return sum(map(len, old.values()))


def index_words(connection: Connection, rids: Sequence[int], changed: int) -> None:
    """Compute the words of memories again, and mark the memories as changed for every process that has an index."""
    tagged = tags_of(connection, rids)
    rows = connection.execute(
        select(memories.c.rid, memories.c.content).where(memories.c.rid.in_(among(rids)))
    ).all()
    connection.execute(delete(words).where(words.c.rid.in_(among(rids))))
    _INSERT_WORDS.run_all(
        connection,
        [_words_row(rid, lexicon.read_text(content, tagged.get(rid, ()))) for rid, content in rows],
    )
    mark_changed(connection, rids, changed)


def holds(connection: Connection, rid: int, *, at: int) -> bool:
    """Whether a memory's validity has not ended by a time, in microseconds since 1970."""
    query = select(literal(1)).where(
        memories.c.rid == rid, or_(memories.c.valid_to.is_(None), memories.c.valid_to > at)
    )
    return connection.execute(query).first() is not None


# Their vectors too, because an index that loads a memory again also loads its vectors again.
_MARK_CHANGED = [
    Prepared(
        update(table).where(table.c.rid.in_(listed(bindparam("rids")))).values(changed=bindparam("number"))
    )
    for table in (memories, vectors, cue_vectors)
]


def mark_changed(connection: Connection, rids: Sequence[int], changed: int) -> None:
    """Let every process that has an index read some memories again."""
    for mark in _MARK_CHANGED:
        mark.run(connection, {"rids": json.dumps(list(rids)), "number": changed})


def _words_row(rid: int, found: lexicon.WordList) -> dict[str, Any]:
    return {
        "rid": rid,
        "version": lexicon.VERSION,
        "words": found.words,
        "features": found.features,
        "stems": found.to_bytes(),
    }


def add_earlier_words(connection: Connection, space: int, hashes: set[str]) -> None:
    """Record hashes of texts that forgotten memories had before they were edited, so that they are refused as well."""
    if hashes:
        rows = [{"space_id": space, "words_hash": one} for one in sorted(hashes)]
        connection.execute(upsert(earlier_words).on_conflict_do_nothing(), rows)


def read_stats(connection: Connection, space: int, embedder: str | None, models: Collection[int]) -> Stats:
    """Count what is in a space; `embedder` is the embedding model in use, and `models` are the numbers of those whose
    vectors serve.
    """

    def by(column: Any) -> dict[str, int]:
        rows = connection.execute(
            select(column, func.count()).where(memories.c.space_id == space).group_by(column).order_by(column)
        )
        return {row[0]: row[1] for row in rows}

    totals = connection.execute(
        select(
            func.count().label("memories"),
            func.count(case((not_(_IS_OF_DOCUMENT), memories.c.source_session)).distinct()).label("sessions"),
            func.min(memories.c.said_at).label("oldest"),
            func.max(memories.c.said_at).label("newest"),
        ).where(memories.c.space_id == space)
    ).one()
    forgotten = connection.execute(
        select(func.count()).select_from(tombstones).where(tombstones.c.space_id == space)
    ).scalar_one()
    embedded = select(func.count(vectors.c.rid.distinct())).where(
        vectors.c.space_id == space, vectors.c.model_id.in_(models)
    )
    return Stats(
        memories=totals.memories,
        by_kind=by(memories.c.kind),
        by_tier=by(memories.c.tier),
        by_type=by(memories.c.memory_type),
        sessions=totals.sessions,
        embedder=embedder,
        embedded=connection.execute(embedded).scalar_one(),
        forgotten=forgotten,
        oldest=None if totals.oldest is None else from_micros(totals.oldest),
        newest=None if totals.newest is None else from_micros(totals.newest),
    )
