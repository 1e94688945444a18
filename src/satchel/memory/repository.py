"""The statements of memory: rows in, rows out. Every function runs inside a transaction of
`storage.Database`.
"""

from __future__ import annotations

import hashlib
import json
from collections import namedtuple
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, TypeVar

from sqlalchemy import BindParameter, Connection, bindparam, case, func, insert, literal, select, update
from sqlalchemy.sql import Select

from satchel.memory import lexicon
from satchel.memory.candidates.sittings import OPENING_CHARS
from satchel.memory.filters import Filter
from satchel.memory.records import MemoryRecord, Source, Stats
from satchel.memory.tables import (
    earlier_words,
    memories,
    spaces,
    tags,
    tombstones,
    uses,
    vectors,
    words,
)
from satchel.storage import Prepared

__all__ = [
    "Changes",
    "Draft",
    "count_request",
    "count_rows",
    "count_up",
    "expired_rids",
    "faded_rids",
    "find_space",
    "has_old_words",
    "ids_of",
    "insert_drafts",
    "listed",
    "matching_rids",
    "list_records",
    "load_changes",
    "note_uses",
    "open_space",
    "place_hash",
    "read_records",
    "read_stats",
    "records_by_id",
    "requests_since",
    "requests_so_far",
    "reread_words",
    "rids_of",
    "slices",
    "space_changed",
    "to_micros",
]

T = TypeVar("T")
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - local wall time is computed with it, year 1 included
_FIRST, _LAST = datetime.min - _EPOCH, datetime.max - _EPOCH  # noqa: DTZ901 - wall time too
_EPOCH_UTC = datetime(1970, 1, 1, tzinfo=UTC)
# SQLite takes 32,766 parameters in one statement (older ones 999): lists are asked for in slices.
_SLICE = 500
_DAY_MICROS = 86_400_000_000.0


def to_micros(moment: datetime) -> int:
    """Microseconds since 1970 of an aware time; exact from year 1 to 9999."""
    return (moment - _EPOCH_UTC) // timedelta(microseconds=1)


def from_micros(micros: int, offset_min: int = 0) -> datetime:
    """The time again, with its offset."""
    offset = timedelta(minutes=offset_min)
    # Counted on the local clock: 0001-01-01 00:00+05:00 has no date in UTC. Without its offset such
    # a time is shown as the end of the calendar.
    local = min(max(timedelta(microseconds=micros) + offset, _FIRST), _LAST)
    return (_EPOCH + local).replace(tzinfo=timezone(offset))


def offset_minutes(moment: datetime) -> int:
    """The offset of an aware time from UTC, in minutes."""
    offset = moment.utcoffset()
    return 0 if offset is None else int(offset.total_seconds() // 60)


def content_hash(content: str) -> str:
    """SHA-256 of the words, in hexadecimal digits."""
    return hashlib.sha256(content.encode()).hexdigest()


def _digest(*parts: object) -> str:
    """A hash of a list; no two lists give the same text to hash."""
    text = "".join(f"{len(str(part))}:{part};" for part in parts)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def place_hash(session: str, turn: int, position: int) -> str:
    """What a tombstone keeps of a place in a conversation; also what an episode's id is made of."""
    return _digest("place", session, turn, position)


def slices(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """A list in parts that one statement can ask for."""
    for at in range(0, len(items), _SLICE):
        yield items[at : at + _SLICE]


def listed(numbers: BindParameter[str]) -> Select[Any]:
    """The numbers of a JSON list, for `column.in_`: one parameter, so that the statement need not be made anew for
    each length.
    """
    return select(func.json_each(numbers).table_valued("value").c.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A memory that is about to be written: its columns, its tags, its words.

    Attributes:
        words_hash: `WordHasher.words` of one that has a session, within its turn if it has a place there; None for
            others.
    """

    id: str
    row: Mapping[str, Any]
    tags: tuple[str, ...]
    words: lexicon.WordList
    words_hash: str | None = None


def find_space(connection: Connection, user: str, scope: str) -> int | None:
    """The id of a user's scope, or None where there is none yet."""
    return connection.execute(
        select(spaces.c.id).where(spaces.c.user_id == user, spaces.c.scope == scope)
    ).scalar()


def open_space(connection: Connection, user: str, scope: str) -> int:
    """The id of a user's scope; made where it is new."""
    found = find_space(connection, user, scope)
    if found is None:
        found = connection.execute(
            insert(spaces).values(user_id=user, scope=scope, changed=0).returning(spaces.c.id)
        ).scalar_one()
    return int(found)


_REQUESTS = select(spaces.c.requests).where(spaces.c.id == bindparam("space"))
_SPACE_CHANGED = select(spaces.c.changed).where(spaces.c.id == bindparam("space"))
_COUNT_UP = Prepared(
    update(spaces)
    .where(spaces.c.id == bindparam("space"))
    .values(changed=spaces.c.changed + 1)
    .returning(spaces.c.changed, spaces.c.requests)
)


def requests_so_far(connection: Connection, space: int) -> int:
    """How many chat requests were counted in a space."""
    return int(connection.execute(_REQUESTS, {"space": space}).scalar_one())


def count_request(connection: Connection, space: int) -> None:
    """Count one more chat request: one number, and no row of any memory."""
    connection.execute(update(spaces).where(spaces.c.id == space).values(requests=spaces.c.requests + 1))


def requests_since(connection: Connection, space: int, ids: Sequence[str]) -> dict[str, int]:
    """How many chat requests went by since each memory was last used or, where it never was, stored; by id."""
    now = requests_so_far(connection, space)
    found: dict[str, int] = {}
    for part in slices(ids):
        rows = connection.execute(
            select(memories.c.id, func.coalesce(uses.c.request, memories.c.request))
            .select_from(memories.outerjoin(uses, uses.c.rid == memories.c.rid))
            .where(memories.c.space_id == space, memories.c.id.in_(part))
        )
        found.update((id, now - since) for id, since in rows)
    return found


def space_changed(connection: Connection, space: int) -> int:
    """The count of the last change in a space."""
    return int(connection.execute(_SPACE_CHANGED, {"space": space}).scalar_one())


def count_up(connection: Connection, space: int) -> int:
    """Count one more change. Taken first in a transaction, it orders the writers of a space."""
    ((changed, _),) = _COUNT_UP.run(connection, {"space": space})
    return int(changed)


_INSERT_MEMORY = Prepared(
    insert(memories).returning(memories.c.rid),
    columns=[column.name for column in memories.c if column is not memories.c.rid],
)
_INSERT_WORDS = Prepared(insert(words))
_INSERT_TAG = Prepared(insert(tags))
_ANY_TOMBSTONE = select(literal(1)).where(tombstones.c.space_id == bindparam("space")).limit(1)


def insert_drafts(
    connection: Connection, space: int, drafts: Sequence[Draft], *, fresh: bool = False
) -> list[str]:
    """Write memories that are not there yet and were not forgotten.

    Args:
        connection: In a transaction.
        space: Whose they are.
        drafts: The memories.
        fresh: Their ids were made just now, so that none of them can be there.

    Returns:
        The ids of those that are in the store now, in the order of `drafts`.
    """
    refused = _refused(connection, space, drafts)
    wanted: dict[str, Draft] = {}
    for draft in drafts:
        if draft.id not in refused:
            wanted.setdefault(draft.id, draft)
    known = set() if fresh else _known(connection, space, list(wanted))
    new = [draft for id, draft in wanted.items() if id not in known]
    if new:
        ((changed, request),) = _COUNT_UP.run(connection, {"space": space})
        common = {"space_id": space, "changed": changed, "request": request}
        rids: list[int] = []
        for draft in new:
            ((rid,),) = _INSERT_MEMORY.run(connection, {**draft.row, "id": draft.id, **common})
            rids.append(rid)
        _INSERT_WORDS.run_all(
            connection,
            [
                {
                    "rid": rid,
                    "version": lexicon.VERSION,
                    "words": draft.words.words,
                    "features": draft.words.features,
                    "stems": draft.words.to_bytes(),
                }
                for rid, draft in zip(rids, new, strict=True)
            ],
        )
        _INSERT_TAG.run_all(
            connection,
            [
                {"rid": rid, "tag": tag, "position": position}
                for rid, draft in zip(rids, new, strict=True)
                for position, tag in enumerate(draft.tags)
            ],
        )
    return [draft.id for draft in drafts if draft.id in wanted]


def _known(connection: Connection, space: int, ids: Sequence[str]) -> set[str]:
    """Which of the ids are there."""
    known: set[str] = set()
    for part in slices(ids):
        known.update(
            connection.execute(
                select(memories.c.id).where(memories.c.space_id == space, memories.c.id.in_(part))
            ).scalars()
        )
    return known


def _refused(connection: Connection, space: int, drafts: Sequence[Draft]) -> set[str]:
    """The ids of the drafts whose source was forgotten: the same place, the same words in the same turn or, for what
    has no place of its own, the same words in the same session.
    """
    sourced = [draft for draft in drafts if draft.row["source_session"] is not None]
    if not sourced or connection.execute(_ANY_TOMBSTONE, {"space": space}).first() is None:
        return set()
    places: dict[str, list[str]] = {}
    said: dict[str, list[str]] = {}
    for draft in sourced:
        row = draft.row
        session = row["source_session"]
        if row["source_turn"] is not None and row["source_position"] is not None:
            place = place_hash(session, row["source_turn"], row["source_position"])
            places.setdefault(place, []).append(draft.id)
        if draft.words_hash is not None:
            said.setdefault(draft.words_hash, []).append(draft.id)
    refused: set[str] = set()
    for table, column, by_hash in (
        (tombstones, tombstones.c.place_hash, places),
        (tombstones, tombstones.c.words_hash, said),
        (earlier_words, earlier_words.c.words_hash, said),
    ):
        for part in slices(list(by_hash)):
            found = connection.execute(
                select(column).where(table.c.space_id == space, column.in_(part))
            ).scalars()
            refused.update(id for number in found for id in by_hash[number])
    return refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What happened in a space since a count: for `index.Index`.

    Attributes:
        changed: The count up to which this is complete.
        memories: Rows (rid, kind, session or None, turn, position, said_at, said_offset_min, speaker, quote, opening
            or "", words, features, stems).
        gone: The rids of what was forgotten.
        vectors: Rows (rid, vectors) of one model.
        vectors_changed: The count up to which the vectors are complete.
    """

    changed: int
    memories: Sequence[Any]
    gone: Sequence[int]
    vectors: Sequence[Any]


_OPENING = func.substr(memories.c.content, 1, OPENING_CHARS)
_CHANGED_MEMORIES = (
    select(
        memories.c.rid,
        memories.c.kind,
        memories.c.source_session,
        memories.c.source_turn,
        memories.c.source_position,
        memories.c.said_at,
        memories.c.said_offset_min,
        memories.c.speaker,
        memories.c.source_quote,
        # The beginning may say whose words they are where nothing else does.
        case(
            ((memories.c.speaker == "") & (memories.c.kind != "episode"), _OPENING),
            else_="",
        ).label("opening"),
        words.c.words,
        words.c.features,
        words.c.stems,
    )
    .join(words, words.c.rid == memories.c.rid)
    .where(memories.c.space_id == bindparam("space"), memories.c.changed > bindparam("since"))
    .order_by(memories.c.rid)
)
_GONE = select(tombstones.c.rid).where(
    tombstones.c.space_id == bindparam("space"), tombstones.c.changed > bindparam("since")
)
_CHANGED_VECTORS = (
    select(vectors.c.rid, vectors.c.vectors)
    .where(
        vectors.c.space_id == bindparam("space"),
        vectors.c.model_id == bindparam("model"),
        vectors.c.changed > bindparam("since"),
    )
    .order_by(vectors.c.rid)
)


def load_changes(
    connection: Connection, space: int, *, since: int, model: int | None, vectors_since: int
) -> Changes | None:
    """What changed since `since`, or None where nothing did.

    Args:
        connection: In a transaction.
        space: Whose changes.
        since: The count up to which the rows are known.
        model: Whose vectors to read, or None for none.
        vectors_since: The count up to which the vectors are known.
    """
    changed = space_changed(connection, space)
    if changed == since and (model is None or vectors_since == changed):
        return None
    values = {"space": space, "since": since}
    rows = connection.execute(_CHANGED_MEMORIES, values).all() if changed > since else []
    # A first reading has nothing to take away.
    gone = connection.execute(_GONE, values).scalars().all() if 0 < since < changed else []
    found: Sequence[Any] = []
    if model is not None and changed > vectors_since:
        found = connection.execute(
            _CHANGED_VECTORS, {"space": space, "model": model, "since": vectors_since}
        ).all()
    return Changes(changed=changed, memories=rows, gone=gone, vectors=found)


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
_RecordRow = namedtuple("_RecordRow", [column.key for column in _RECORD.selected_columns])  # type: ignore[misc]
_TAGS = Prepared(
    select(tags.c.rid, tags.c.tag)
    .where(tags.c.rid.in_(listed(bindparam("rids"))))
    .order_by(tags.c.rid, tags.c.position)
)


def _records(connection: Connection, rows: Sequence[Any]) -> dict[int, MemoryRecord]:
    """The memories of rows that have the columns of `_RECORD`, by rid, in their order."""
    tagged: dict[int, list[str]] = {}
    for rid, tag in _TAGS.run(connection, {"rids": json.dumps([row.rid for row in rows])}):
        tagged.setdefault(rid, []).append(tag)
    return {row.rid: _record(row, tuple(tagged.get(row.rid, ()))) for row in rows}


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
    )


def read_records(connection: Connection, space: int, rids: Sequence[int]) -> dict[int, MemoryRecord]:
    """The memories with these rids, by rid."""
    # By rid alone: given the space too, SQLite walks all of its memories by an index of the space.
    rows: Iterator[Any] = map(_RecordRow._make, _RECORDS.run(connection, {"rids": json.dumps(list(rids))}))
    return _records(connection, [row for row in rows if row.space_id == space])


def records_by_id(connection: Connection, space: int, ids: Sequence[str]) -> dict[str, MemoryRecord]:
    """The memories with these ids, by id."""
    found: dict[str, MemoryRecord] = {}
    for some in slices(ids):
        query = _RECORD.where(memories.c.space_id == space, memories.c.id.in_(some))
        records = _records(connection, connection.execute(query).all())
        found.update((record.id, record) for record in records.values())
    return found


def ids_of(connection: Connection, space: int, rids: Sequence[int]) -> list[str]:
    """The ids of the memories with these rids, in their order, of those that are there."""
    found: dict[int, str] = {}
    for part in slices(rids):
        rows = connection.execute(
            select(memories.c.rid, memories.c.id).where(
                memories.c.space_id + 0 == space, memories.c.rid.in_(part)
            )
        )
        found.update((row.rid, row.id) for row in rows)
    return [found[rid] for rid in rids if rid in found]


def rids_of(connection: Connection, space: int, ids: Sequence[str]) -> list[int]:
    """The rids of the memories with these ids, of those that are there."""
    found: list[int] = []
    for part in slices(ids):
        query = select(memories.c.rid).where(memories.c.space_id == space, memories.c.id.in_(part))
        found.extend(connection.execute(query).scalars())
    return found


def _filtered(query: Select[Any], space: int, wanted: Filter) -> Select[Any]:
    query = query.where(memories.c.space_id == space)
    for column, value in (
        (memories.c.kind, wanted.kind),
        (memories.c.tier, wanted.tier),
        (memories.c.memory_type, wanted.memory_type),
        (memories.c.speaker, wanted.speaker),
        (memories.c.source_session, wanted.session),
    ):
        if value is not None:
            query = query.where(column == value)
    if wanted.since is not None:
        query = query.where(memories.c.said_at >= to_micros(wanted.since))
    if wanted.until is not None:
        query = query.where(memories.c.said_at < to_micros(wanted.until))
    if wanted.as_of is not None:
        moment = to_micros(wanted.as_of)
        query = query.where(
            memories.c.said_at <= moment,
            func.coalesce(memories.c.valid_from, moment) <= moment,
            func.coalesce(memories.c.valid_to, moment + 1) > moment,
        )
    if wanted.tags:
        # Counted, not one condition each: a thousand of those are too deep for SQLite.
        having_all = (
            select(tags.c.rid)
            .where(tags.c.tag.in_(wanted.tags))
            .group_by(tags.c.rid)
            .having(func.count() == len(wanted.tags))
        )
        query = query.where(memories.c.rid.in_(having_all))
    return query


def list_records(
    connection: Connection, space: int, wanted: Filter, *, limit: int, offset: int
) -> list[MemoryRecord]:
    """The memories that a filter lets through, those said last first."""
    query = (
        _filtered(_RECORD, space, wanted)
        .order_by(memories.c.said_at.desc(), memories.c.rid.desc())
        .limit(limit)
        .offset(offset)
    )
    return list(_records(connection, connection.execute(query).all()).values())


def count_rows(connection: Connection, space: int, wanted: Filter) -> int:
    """How many memories a filter lets through."""
    query = _filtered(select(func.count()).select_from(memories), space, wanted)
    return int(connection.execute(query).scalar_one())


def matching_rids(connection: Connection, space: int, wanted: Filter) -> list[int]:
    """The rids of the memories that a filter lets through."""
    return list(connection.execute(_filtered(select(memories.c.rid), space, wanted)).scalars())


def expired_rids(connection: Connection, space: int, at: int) -> list[int]:
    """The rids of the memories that have ceased to hold; read from an index that holds only what has an end."""
    return list(
        connection.execute(
            select(memories.c.rid).where(
                memories.c.space_id == space, memories.c.valid_to.is_not(None), memories.c.valid_to <= at
            )
        ).scalars()
    )


def faded_rids(
    connection: Connection, space: int, among: Sequence[int], *, at: int, floor: float, by_request: bool
) -> set[int]:
    """Which of these memories have a priority below the floor, less what it lost since they were last used."""
    if by_request:
        passed = requests_so_far(connection, space) - func.coalesce(uses.c.request, memories.c.request)
    else:
        since = func.coalesce(uses.c.last_accessed, memories.c.created_at)
        passed = (at - since) / literal(_DAY_MICROS)
    left = memories.c.priority - memories.c.decay_rate * case((passed > 0, passed), else_=0)
    faded: set[int] = set()
    for part in slices(among):
        faded.update(
            connection.execute(
                select(memories.c.rid)
                .select_from(memories.outerjoin(uses, uses.c.rid == memories.c.rid))
                .where(memories.c.space_id + 0 == space, memories.c.rid.in_(part), left < floor)
            ).scalars()
        )
    return faded


def note_uses(connection: Connection, rids: Sequence[int], at: int) -> None:
    """Count that these memories were shown to a model; a few hundred at most."""
    known = set(connection.execute(select(uses.c.rid).where(uses.c.rid.in_(rids))).scalars())
    found = connection.execute(
        select(memories.c.rid, spaces.c.requests)
        .join(spaces, spaces.c.id == memories.c.space_id)
        .where(memories.c.rid.in_(rids))
    ).all()
    requests = {row.rid: row.requests for row in found}
    there = set(requests)
    if known:
        connection.execute(
            update(uses)
            .where(uses.c.rid.in_(known))
            .values(
                last_accessed=at,
                access_count=uses.c.access_count + 1,
                request=max((requests[rid] for rid in known if rid in requests), default=0),
            )
        )
    new = [
        {"rid": rid, "last_accessed": at, "access_count": 1, "request": requests[rid]}
        for rid in rids
        if rid in there - known
    ]
    if new:
        connection.execute(insert(uses), new)


def count_vectors(connection: Connection, space: int, model: int) -> int:
    """How many memories have a vector of a model."""
    query = select(func.count()).where(vectors.c.space_id == space, vectors.c.model_id == model)
    return int(connection.execute(query).scalar_one())


def has_old_words(connection: Connection) -> bool:
    """Whether `reread_words` has anything to do. Asked first, so that opening a store writes nothing."""
    # Joined as there: words of no memory are never read again, and `doctor` removes them.
    found = connection.execute(
        select(words.c.rid)
        .join(memories, memories.c.rid == words.c.rid)
        .where(words.c.version < lexicon.VERSION)
        .limit(1)
    )
    return found.first() is not None


def reread_words(connection: Connection, *, limit: int) -> int:
    """Read again the words of memories that an older reading left; of any user, since what is derived is no
    secret.

    Returns:
        How many were read; 0 when all are up to date.
    """
    old = connection.execute(
        select(words.c.rid, memories.c.space_id, memories.c.content)
        .join(memories, memories.c.rid == words.c.rid)
        .where(words.c.version < lexicon.VERSION)
        .limit(limit)
    ).all()
    changed: dict[int, int] = {}
    for rid, space, content in old:
        if space not in changed:
            changed[space] = count_up(connection, space)
        tagged = connection.execute(
            select(tags.c.tag).where(tags.c.rid == rid).order_by(tags.c.position)
        ).scalars()
        read = lexicon.read_text(content, tagged)
        connection.execute(
            update(words)
            .where(words.c.rid == rid)
            .values(version=lexicon.VERSION, words=read.words, features=read.features, stems=read.to_bytes())
        )
        connection.execute(update(memories).where(memories.c.rid == rid).values(changed=changed[space]))
    return len(old)


def read_stats(connection: Connection, space: int, model: tuple[int, str] | None) -> Stats:
    """Counts over a space.

    Args:
        connection: In a transaction.
        space: Whose counts.
        model: Id and name of the embedding model in use, or None.
    """

    def by(column: Any) -> dict[str, int]:
        rows = connection.execute(
            select(column, func.count()).where(memories.c.space_id == space).group_by(column).order_by(column)
        )
        return {row[0]: row[1] for row in rows}

    totals = connection.execute(
        select(
            func.count().label("memories"),
            func.count(memories.c.source_session.distinct()).label("sessions"),
            func.min(memories.c.said_at).label("oldest"),
            func.max(memories.c.said_at).label("newest"),
        ).where(memories.c.space_id == space)
    ).one()
    forgotten = connection.execute(
        select(func.count()).select_from(tombstones).where(tombstones.c.space_id == space)
    ).scalar_one()
    return Stats(
        memories=totals.memories,
        by_kind=by(memories.c.kind),
        by_tier=by(memories.c.tier),
        by_type=by(memories.c.memory_type),
        sessions=totals.sessions,
        embedder=None if model is None else model[1],
        embedded=0 if model is None else count_vectors(connection, space, model[0]),
        forgotten=forgotten,
        oldest=None if totals.oldest is None else from_micros(totals.oldest),
        newest=None if totals.newest is None else from_micros(totals.newest),
    )
