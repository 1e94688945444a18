"""The versions of the page in the database, and the facts that it is made of. Every function runs in a transaction."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from sqlalchemy import Connection, and_, bindparam, delete, exists, func, insert, select, update

from satchel.memory.records import MemoryRecord
from satchel.memory.store.decay import LASTING_IMPORTANCE
from satchel.memory.store.micros import from_micros
from satchel.memory.store.page_lines import (
    Author,
    PageLine,
    PageVersion,
    Section,
    State,
    lines_from_json,
    lines_to_json,
    shortened,
)
from satchel.memory.store.repository import among, content_hash, known_ids, read_records, records_by_id
from satchel.memory.store.statement_rows import HOLDS, MOST_PINS
from satchel.memory.store.tables import memories, pages, spaces
from satchel.storage import Prepared

_MOST_VERSIONS: Final = 60
"""That are kept: a month or two."""
_WHOLE: Final = ("limits", "confidential")
"""The sections where a part that is left out could cost a life, or a secret."""
_WHOLE_IMPORTANCE: Final = 5


def words_of(fact: MemoryRecord) -> str:
    """What a fact says, on one line."""
    return " ".join(fact.content.split())


def short_of(fact: MemoryRecord, text: str, section: Section) -> str:
    """A fact as `text` shortens it; "" where it doesn't, or may not."""
    if section in _WHOLE or fact.importance >= _WHOLE_IMPORTANCE:
        return ""
    return shortened(text, words_of(fact))


def words_on(line: PageLine, fact: MemoryRecord) -> str:
    """What a line says of a fact now: its shorter form only while the fact has the words that it was made of."""
    words = words_of(fact)
    return (line.of == content_hash(words) and short_of(fact, line.text, line.section)) or words


def newest(connection: Connection, space: int) -> PageVersion | None:
    """The newest version, or None."""
    found = versions(connection, space, limit=1)
    return found[0] if found else None


def versions(connection: Connection, space: int, *, limit: int) -> list[PageVersion]:
    """Versions, the newest first."""
    rows = connection.execute(
        select(pages).where(pages.c.space_id == space).order_by(pages.c.number.desc()).limit(limit)
    )
    return [_version(row) for row in rows]


def read_version(connection: Connection, space: int, number: int) -> PageVersion | None:
    """One version, or None."""
    row = connection.execute(select(pages).where(_is(space, number))).first()
    return None if row is None else _version(row)


def _version(row: Any) -> PageVersion:
    return PageVersion(
        number=row.number,
        written_at=from_micros(row.written_at),
        by=row.by,
        model=row.model,
        state=row.state,
        changed=row.changed,
        lines=lines_from_json(json.loads(row.lines)),
    )


def write(
    connection: Connection, space: int, lines: Sequence[PageLine], *, base: PageVersion | None, at: int
) -> PageVersion | None:
    """Write a version of the user's, without lines that stand on what was forgotten meanwhile; None if another one was
    written since `base`.
    """
    last = newest(connection, space)
    if (last.number if last else 0) != (base.number if base else 0):
        return None
    there = known_ids(connection, space, list({id for line in lines for id in line.facts}))
    kept = [line for line in lines if not line.text or there.issuperset(line.facts)]
    # What nobody has taken to the page yet can still be.
    changed = last.changed if last is not None else -1
    return insert_version(connection, space, kept, last=last, by="user", state="used", changed=changed, at=at)


def insert_version(
    connection: Connection,
    space: int,
    lines: Sequence[PageLine],
    *,
    last: PageVersion | None,
    by: Author,
    state: State,
    changed: int,
    at: int,
) -> PageVersion | None:
    """Write a version after `last`, and remove the oldest."""
    number = (last.number if last is not None else 0) + 1
    connection.execute(
        insert(pages).values(
            space_id=space,
            number=number,
            written_at=at,
            by=by,
            model="",
            state=state,
            changed=changed,
            lines=lines_to_json(lines),
        )
    )
    connection.execute(
        delete(pages).where(pages.c.space_id == space, pages.c.number <= number - _MOST_VERSIONS)
    )
    return read_version(connection, space, number)


def set_changed(connection: Connection, space: int, number: int, changed: int) -> None:
    """ChangeNote up to which change of a space facts were taken to a version."""
    connection.execute(update(pages).where(_is(space, number)).values(changed=changed))


def _is(space: int, number: int) -> Any:
    return and_(pages.c.space_id == space, pages.c.number == number)


def accept(connection: Connection, space: int) -> bool:
    """Let a proposed page be shown. False if there is none."""
    done = connection.execute(
        update(pages).where(pages.c.space_id == space, pages.c.state == "proposed").values(state="used")
    )
    return done.rowcount > 0


def take_in(
    connection: Connection, space: int, lines: Sequence[PageLine], *, number: int, **columns: Any
) -> None:
    """Store a version of an export, with the other columns as they are, unless there is one with its number or a later
    one. Lines that stand on what is not here are left out.
    """
    last = newest(connection, space)
    if last is not None and last.number >= number:
        return
    there = known_ids(connection, space, list({id for line in lines for id in line.facts}))
    connection.execute(
        insert(pages).values(
            **columns,
            space_id=space,
            number=number,
            changed=connection.execute(select(spaces.c.changed).where(spaces.c.id == space)).scalar_one(),
            lines=lines_to_json([line for line in lines if there.issuperset(line.facts)]),
        )
    )


# ---- What forgetting takes


def texts_of(connection: Connection, space: int, ids: Collection[str]) -> dict[str, list[str]]:
    """The lines of all versions that stand on memories, by the memories' ids."""
    found: dict[str, list[str]] = {}
    wanted = set(ids)
    named = among(wanted).subquery()
    # Most versions name none of them, and need not be parsed.
    naming = exists().where(func.instr(pages.c.lines, named.c.value) > 0)
    for lines in connection.execute(select(pages.c.lines).where(pages.c.space_id == space, naming)).scalars():
        for line in json.loads(lines):
            for id in wanted.intersection(line["facts"]) if line["text"] else ():
                if line["text"] not in found.setdefault(id, []):
                    found[id].append(line["text"])
    return found


def drop_facts(connection: Connection, space: int, gone: Collection[str], changed: Collection[str]) -> None:
    """Take the words that stand on facts that are `gone` out of every version. Those in `changed` lost words or a
    quote: their lines say what they say now.
    """
    lost = {*gone, *changed}
    rows = connection.execute(select(pages.c.id, pages.c.lines).where(pages.c.space_id == space)).all()
    for row in rows:
        before = lines_from_json(json.loads(row.lines))
        touched = {id for line in before if not lost.isdisjoint(line.facts) for id in line.facts}
        if not touched:
            continue
        left = records_by_id(connection, space, sorted(touched.difference(gone)))
        after = [
            line
            for one in before
            for line in (
                [one]
                if lost.isdisjoint(one.facts)
                else [
                    replace(one, text=one.text and words_of(left[id]), facts=(id,), of="")
                    for id in one.facts
                    if id in left
                ]
            )
        ]
        connection.execute(update(pages).where(pages.c.id == row.id).values(lines=lines_to_json(after)))


# ---- The facts

_CARE: Final = timedelta(days=182)
"""For so long, what ended and mattered most for somebody's health is told as past."""
_NEWEST_SAID = Prepared(
    select(memories.c.said_at)
    .where(
        memories.c.space_id == bindparam("space"), memories.c.kind == "episode", memories.c.trust == "user"
    )
    .order_by(memories.c.rid.desc())
    .limit(1)
)


def holding(connection: Connection, space: int, ids: Iterable[str], *, at: int) -> dict[str, MemoryRecord]:
    """Those of some memories that hold now and did not come from outside, by id; also what is confidential, which
    stands in the section of that name alone.
    """
    # Sorted, so that the same store asks a model for the same page in the same words.
    found = records_by_id(connection, space, sorted(ids))
    return {
        id: record
        for id, record in found.items()
        if record.trust != "outside"
        and record.discretion != "withheld"
        and (record.valid_to is None or record.valid_to > from_micros(at))
        and (record.valid_from is None or record.valid_from <= from_micros(at))
    }


def ended(
    connection: Connection, space: int, lines: Sequence[PageLine], *, at: int
) -> dict[str, MemoryRecord]:
    """The facts of some lines whose own time ended since the user last spoke, by id; not what was replaced.

    Of health, what mattered most stays for half a year: after an operation, there is something to take care of.
    """
    said = _NEWEST_SAID.named(connection, {"space": space})
    now = from_micros(at)
    ids = {id for line in lines for id in line.facts}
    held = holding(connection, space, ids, at=said[0].said_at) if said else {}
    health = {id for line in lines if line.section == "limits" and line.text for id in line.facts}
    records = records_by_id(connection, space, sorted(held.keys() | health))
    return {
        id: record
        for id, record in records.items()
        if record.is_over(now)
        and record.valid_to is not None
        and record.time is not None
        and record.time.last is not None
        # Replaced before its day, it would have ended then.
        and record.valid_to.astimezone(record.said_at.tzinfo).date() > record.time.last
        and (id in held or (record.importance >= LASTING_IMPORTANCE and now < record.valid_to + _CARE))
        and record.trust != "outside"
        and record.discretion != "withheld"
    }


def pinned(connection: Connection, space: int, *, at: int) -> list[MemoryRecord]:
    """What the user pinned and holds, the first pinned first."""
    rids = connection.execute(
        select(memories.c.rid)
        .where(
            memories.c.space_id == space,
            memories.c.pinned == 1,
            memories.c.trust != "outside",
            HOLDS,
        )
        .order_by(memories.c.rid)
        .limit(MOST_PINS),
        {"at": at},
    ).scalars()
    return list(read_records(connection, space, list(rids)).values())


def said_by_user(connection: Connection, space: int, words: str) -> dict[int, MemoryRecord]:
    """The facts that hold and were noted by the user's own hand in these words."""
    rids = connection.execute(
        select(memories.c.rid).where(
            memories.c.space_id == space,
            memories.c.content_hash == content_hash(words),
            memories.c.kind == "fact",
            memories.c.trust == "user",
            memories.c.source_session.is_(None),
            memories.c.valid_to.is_(None),
        )
    ).scalars()
    return read_records(connection, space, list(rids))
