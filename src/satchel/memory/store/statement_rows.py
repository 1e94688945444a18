"""What was read out of memories ahead of time, in the database: the statements of memory for `profile` and `agenda`."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any, Final

from sqlalchemy import Connection, and_, bindparam, delete, exists, func, insert, literal, not_, or_, select

from satchel.memory.records import OWN_SPEAKERS, FactTime, MemoryRecord, time_from_json
from satchel.memory.store.graph import read_later
from satchel.memory.store.micros import from_micros
from satchel.memory.store.repository import among, listed, read_records
from satchel.memory.store.tables import distilled, memories, readings, statements
from satchel.memory.text.statements import VERSION, Change, Statement
from satchel.storage import Prepared

MOST_PINS: Final = 100
AGENDA_DAYS: Final = 7
"""After today."""
_MOST_FACTS: Final = 80
_MOST_STATEMENTS: Final = 80
_MOST_LATELY: Final = 60
"""Turns; 600 tokens hold fewer, unless they are of one word."""
_MOST_APPOINTMENTS: Final = 200
_MOST_CHANGES: Final = 50
_READ_CHARS: Final = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """A memory whose statements are not read yet."""

    rid: int
    content: str
    hash: str
    said_at: datetime
    is_own: bool
    time: FactTime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileCandidates:
    """What a profile may consist of.

    Attributes:
        pinned: What the user pinned, the first pinned first.
        facts: What holds, the most important first.
        statements: The user's own statements with their words and how likely they last.
        said: What the user said in the turns that facts of a model come from, by session and turn.
        words: What is shown of pinned memories, where it isn't their beginning, by id.
        over: The statements, by the memory's id and their words, whose day is over or in the agenda.
        later: What a fact of a later day may have replaced, with that fact, by their ids.
        dated: The ids of the facts that speak of a day, with the last one.
        ended: The facts that were drawn from the statements' turns and no longer hold, by session and turn.
    """

    pinned: Sequence[MemoryRecord]
    facts: Sequence[MemoryRecord]
    statements: Sequence[tuple[MemoryRecord, str, float]]
    said: Mapping[tuple[str, int], str] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)
    over: frozenset[tuple[str, str]] = frozenset()
    later: Mapping[str, Sequence[str]] = field(default_factory=dict)
    dated: Mapping[str, date] = field(default_factory=dict)
    ended: Mapping[tuple[str, int], Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Appointment:
    """A day that a memory speaks of, and what it says."""

    rid: int
    memory: MemoryRecord
    words: str
    first: date | None
    last: date | None
    yearly: int
    change: Change
    every: str = ""


_SPACE: Any = bindparam("space")
_RIDS = listed(bindparam("rids"))
_IS_OPEN = memories.c.discretion == "open"
HOLDS = and_(
    _IS_OPEN,
    or_(memories.c.valid_to.is_(None), memories.c.valid_to > bindparam("at")),
    or_(memories.c.valid_from.is_(None), memories.c.valid_from <= bindparam("at")),
)
"""The condition that a memory holds and may be spoken of."""
_IS_OWN = and_(
    memories.c.kind == "episode",
    memories.c.trust == "user",
    func.lower(memories.c.speaker).in_(map(literal, OWN_SPEAKERS)),
)
_IS_READ = or_(_IS_OWN, and_(memories.c.kind == "fact", memories.c.trust != "outside"))


_UNREAD_RIDS = (
    select(memories.c.rid)
    .outerjoin(readings, and_(readings.c.rid == memories.c.rid, readings.c.version == VERSION))
    .where(
        memories.c.space_id == _SPACE,
        memories.c.changed > bindparam("since"),
        memories.c.rid < bindparam("below"),
        readings.c.rid.is_(None),
        _IS_READ,
    )
    .order_by(memories.c.rid.desc())
    .limit(bindparam("limit"))
)
_UNREAD = Prepared(
    select(
        memories.c.rid,
        func.substr(memories.c.content, 1, _READ_CHARS).label("content"),
        memories.c.content_hash,
        memories.c.said_at,
        memories.c.said_offset_min,
        memories.c.kind,
        memories.c.time,
    )
    # Chosen first, so that only their words are sorted.
    .where(memories.c.rid.in_(_UNREAD_RIDS))
    .order_by(memories.c.rid.desc())
)


NO_RID: Final = 1 << 62
"""Above all rids."""


def unread(
    connection: Connection, space: int, *, limit: int, since: int = 0, below: int = NO_RID
) -> list[Unread]:
    """Memories whose statements are not read yet, the newest first.

    `since` leaves out what was stored or changed up to the change with this number, `below` the rids from this one on.
    """
    rows = _UNREAD.named(connection, {"space": space, "since": since, "below": below, "limit": limit})
    return [
        Unread(
            rid=row.rid,
            content=row.content,
            hash=row.content_hash,
            said_at=from_micros(row.said_at, row.said_offset_min),
            is_own=row.kind == "episode",
            time=None if row.time is None else time_from_json(json.loads(row.time)),
        )
        for row in rows
    ]


_HASHES = Prepared(
    select(memories.c.rid, memories.c.content_hash).where(
        memories.c.space_id + 0 == _SPACE, memories.c.rid.in_(_RIDS)
    )
)
_DROP_STATEMENTS = (
    Prepared(delete(statements).where(statements.c.rid.in_(_RIDS))),
    Prepared(delete(readings).where(readings.c.rid.in_(_RIDS))),
)
_INSERT_READING = Prepared(insert(readings))
_INSERT_STATEMENT = Prepared(insert(statements))


def write_readings(
    connection: Connection, space: int, read: Sequence[tuple[Unread, Sequence[Statement]]]
) -> None:
    """Keep what was read; of a memory that was changed or forgotten meanwhile, nothing."""
    current = dict(
        _HASHES.run(connection, {"space": space, "rids": json.dumps([one.rid for one, _ in read])})
    )
    kept = [(one, found) for one, found in read if current.get(one.rid) == one.hash]
    if not kept:
        return
    rids = json.dumps([one.rid for one, _ in kept])
    for drop in _DROP_STATEMENTS:
        drop.run(connection, {"rids": rids})
    _INSERT_READING.run_all(connection, [{"rid": one.rid, "version": VERSION} for one, _ in kept])
    rows_of_all = [
        {
            "rid": one.rid,
            "place": place,
            "space_id": space,
            "start": statement.start,
            "length": statement.end - statement.start,
            "lasting": statement.lasting,
            "first_day": None if statement.first is None else statement.first.toordinal(),
            "last_day": None if statement.last is None else statement.last.toordinal(),
            "yearly": statement.yearly or None,
            "change": statement.change or None,
            "every": statement.every or None,
        }
        for one, found in kept
        for place, statement in enumerate(found)
    ]
    _INSERT_STATEMENT.run_all(connection, rows_of_all)


_PINS = Prepared(
    select(memories.c.rid)
    .where(memories.c.space_id == _SPACE, memories.c.pinned == 1, _IS_OPEN)
    .order_by(memories.c.rid)
    .limit(MOST_PINS)
)
_BEST_FACTS = Prepared(
    select(memories.c.rid)
    .where(memories.c.space_id == _SPACE, memories.c.kind == "fact", memories.c.trust != "outside", HOLDS)
    .order_by(memories.c.importance.desc(), memories.c.said_at.desc(), memories.c.rid.desc())
    .limit(_MOST_FACTS)
)
_LASTING = Prepared(
    select(statements.c.rid, statements.c.start, statements.c.length, statements.c.lasting)
    .join(memories, memories.c.rid == statements.c.rid)
    .where(statements.c.space_id == _SPACE, statements.c.lasting.is_not(None), _IS_OWN, HOLDS)
    .order_by(statements.c.lasting.desc(), statements.c.rid.desc())
    .limit(_MOST_STATEMENTS)
)
_last = (
    select(memories.c.rid, memories.c.said_at, memories.c.source_session, memories.c.source_turn)
    .where(memories.c.space_id == _SPACE, _IS_OWN, HOLDS)
    .order_by(memories.c.said_at.desc(), memories.c.rid.desc())
    .limit(_MOST_LATELY)
    .subquery()
)
_LATELY = Prepared(
    select(_last.c.rid)
    .where(
        # A model found something confidential in it.
        ~exists().where(
            memories.c.space_id == _SPACE,
            memories.c.source_session == _last.c.source_session,
            memories.c.source_turn == _last.c.source_turn,
            memories.c.discretion != "open",
        )
    )
    .order_by(_last.c.said_at.desc(), _last.c.rid.desc())
)
_PAST = Prepared(
    select(statements.c.rid, statements.c.start).where(
        statements.c.rid.in_(_RIDS),
        or_(statements.c.last_day < bindparam("first_after"), statements.c.change.is_not(None)),
    )
)
_DATED = Prepared(
    select(statements.c.rid, func.max(statements.c.last_day).label("last"))
    .where(statements.c.rid.in_(_RIDS), statements.c.last_day.is_not(None))
    .group_by(statements.c.rid)
)


def profile_candidates(connection: Connection, space: int, *, at: int, today: date) -> ProfileCandidates:
    """What a profile may consist of."""
    values: dict[str, Any] = {"space": space, "at": at}
    pins = [rid for (rid,) in _PINS.run(connection, values)]
    facts = [rid for (rid,) in _BEST_FACTS.run(connection, values)]
    lasting = _LASTING.named(connection, values)
    records = read_records(connection, space, [*pins, *facts, *(row.rid for row in lasting)])
    own = [(records[row.rid], _words(records[row.rid].content, row), row) for row in lasting]
    # The likeliest of each comes first.
    chosen = {row.rid: words for _, words, row in reversed(own)}
    past = _PAST.run(
        connection,
        {"rids": json.dumps(list(chosen)), "first_after": today.toordinal() + AGENDA_DAYS + 1},
    )
    starts: dict[int, list[int]] = {}
    for rid, start in past:
        starts.setdefault(rid, []).append(start)
    return ProfileCandidates(
        pinned=[records[rid] for rid in pins],
        facts=[records[rid] for rid in facts],
        statements=[(memory, words, row.lasting) for memory, words, row in own],
        over=frozenset(
            (memory.id, words)
            for memory, words, row in own
            if any(row.start <= start < row.start + row.length for start in starts.get(row.rid, ()))
        ),
        later={
            records[rid].id: [records[one].id for one in found if one in records]
            for rid, found in read_later(connection, facts).items()
        },
        dated={
            records[rid].id: date.fromordinal(last)
            for rid, last in _DATED.run(connection, {"rids": json.dumps(facts)})
        },
        ended=_of_turns(
            connection,
            space,
            {(memory.source.session, memory.source.turn) for memory, _, _ in own},
            (memories.c.kind == "fact") & (memories.c.valid_to <= at),
        ),
        said=said_with(connection, space, [records[rid] for rid in facts]),
        words={records[rid].id: chosen[rid] for rid in pins if rid in chosen},
    )


def lately(connection: Connection, space: int, *, at: int) -> list[MemoryRecord]:
    """The user's own last turns, the newest first."""
    rids = [rid for (rid,) in _LATELY.run(connection, {"space": space, "at": at})]
    records = read_records(connection, space, rids)
    return [records[rid] for rid in rids if rid in records]


def _words(content: str, row: Any) -> str:
    return content[row.start : row.start + row.length]


def said_with(
    connection: Connection, space: int, facts: Iterable[MemoryRecord]
) -> dict[tuple[str, int], str]:
    """What the user said in the turns that a model's facts come from."""
    turns = {
        (fact.source.session, fact.source.turn)
        for fact in facts
        if fact.trust == "agent" and fact.source.session is not None and fact.source.turn is not None
    }
    found = _of_turns(connection, space, turns, _IS_OWN)
    return {place: texts[-1] for place, texts in found.items()}


def _of_turns(
    connection: Connection, space: int, turns: Collection[tuple[str | None, int | None]], wanted: Any
) -> dict[tuple[str, int], list[str]]:
    """The words of the memories that come from some turns and fit a condition, by session and turn."""
    found: dict[tuple[str, int], list[str]] = {}
    if not turns:
        return found
    rows = connection.execute(
        select(
            memories.c.source_session,
            memories.c.source_turn,
            func.substr(memories.c.content, 1, _READ_CHARS),
        ).where(
            memories.c.space_id == space,
            memories.c.source_session.in_(among({session for session, _ in turns if session is not None})),
            wanted,
        )
    )
    for session, turn, content in rows:
        if (session, turn) in turns:
            found.setdefault((session, turn), []).append(content)
    return found


_OF_STATEMENTS = (
    select(statements, memories.c.valid_to, memories.c.source_session, memories.c.source_turn)
    .join(memories, memories.c.rid == statements.c.rid)
    .where(statements.c.space_id == _SPACE, memories.c.trust != "outside", _IS_OPEN)
)
# Where a model has read a turn, its facts say what happens when.
_IS_READ_BY_MODEL = (
    select(literal(1))
    .where(distilled.c.rid == memories.c.rid, distilled.c.chars >= func.length(memories.c.content))
    .exists()
)
_ON_DAYS = Prepared(
    _OF_STATEMENTS.where(
        or_(memories.c.kind != "episode", not_(_IS_READ_BY_MODEL)),
        or_(
            and_(
                statements.c.last_day >= bindparam("first_day"),
                statements.c.first_day <= bindparam("end_day"),
            ),
            statements.c.yearly.in_(listed(bindparam("yearly_days"))),
            statements.c.every.in_(listed(bindparam("rounds"))),
        ),
    )
    # What must not be missed first.
    .order_by(memories.c.importance.desc(), statements.c.rid.desc())
    .limit(_MOST_APPOINTMENTS)
)
_CHANGES = Prepared(
    _OF_STATEMENTS.where(statements.c.change.is_not(None))
    .order_by(statements.c.rid.desc())
    .limit(_MOST_CHANGES)
)


def appointments(
    connection: Connection, space: int, *, at: int, first: date, last: date
) -> tuple[list[Appointment], list[Appointment], set[tuple[str | None, int | None, int]]]:
    """What happens on some days.

    Returns:
        What was said to happen on them; what was said to cancel or move something, the newest first; and the session,
        turn and first day of facts about those days that no longer hold.
    """
    yearly = [100 * day.month + day.day for day in _days(first, last)]
    if 301 in yearly and first.year % 4:
        yearly.append(229)
    found = _ON_DAYS.named(
        connection,
        {
            "space": space,
            "first_day": first.toordinal(),
            "end_day": last.toordinal(),
            "yearly_days": json.dumps(yearly),
            "rounds": json.dumps(sorted({found for day in _days(first, last) for found in rounds_of(day)})),
        },
    )
    over = {
        (row.source_session, row.source_turn, row.first_day)
        for row in found
        if row.valid_to is not None and row.valid_to <= at
    }
    found = [row for row in found if row.valid_to is None or row.valid_to > at]
    changed = _CHANGES.named(connection, {"space": space}) if found else []
    records = read_records(connection, space, list({row.rid for row in [*found, *changed]}))
    return (
        [_appointment(row, records[row.rid]) for row in found],
        [_appointment(row, records[row.rid]) for row in changed],
        over,
    )


def rounds_of(day: date) -> tuple[str, ...]:
    """The rounds of a week and of a month that a day is, as `statements.every` has them. The last day of a month is
    also those that the month lacks.
    """
    is_last = day.month != (day + timedelta(days=1)).month
    days = range(day.day, 32 if is_last else day.day + 1)
    return f"week {day.weekday()}", *(f"month {number}" for number in days)


def _days(first: date, last: date) -> Iterable[date]:
    return (date.fromordinal(day) for day in range(first.toordinal(), last.toordinal() + 1))


def _appointment(row: Any, memory: MemoryRecord) -> Appointment:
    return Appointment(
        rid=row.rid,
        memory=memory,
        words=_words(memory.content, row),
        first=None if row.first_day is None else date.fromordinal(row.first_day),
        last=None if row.last_day is None else date.fromordinal(row.last_day),
        yearly=row.yearly or 0,
        change=row.change or "",
        every=row.every or "",
    )


def shown_of(connection: Connection, space: int, ids: Sequence[str]) -> dict[str, list[str]]:
    """The parts of memories that profiles and agendas may have shown, by id."""
    found: dict[str, list[str]] = {}
    rows = connection.execute(
        select(memories.c.id, memories.c.content, statements.c.start, statements.c.length)
        .join(statements, statements.c.rid == memories.c.rid)
        .where(memories.c.space_id == space, memories.c.id.in_(among(ids)))
    )
    for row in rows:
        found.setdefault(row.id, []).append(_words(row.content, row))
    return found


def find_beginning(connection: Connection, space: int, beginning: str) -> list[str]:
    """The ids that begin so, two at most."""
    return list(
        connection.execute(
            select(memories.c.id)
            .where(
                memories.c.space_id == space,
                memories.c.id >= beginning,
                memories.c.id < beginning + "\U0010ffff",
            )
            .limit(2)
        ).scalars()
    )


def pinned_count(connection: Connection, space: int) -> int:
    """How many memories are pinned."""
    query = select(func.count()).where(memories.c.space_id == space, memories.c.pinned == 1)
    return int(connection.execute(query).scalar_one())
