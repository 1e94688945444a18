"""The versions of the page in the database, and the facts that it is made of. Every function runs in a transaction."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, Protocol

from sqlalchemy import Connection, and_, bindparam, delete, func, insert, or_, select, update

from satchel.memory import statement_rows
from satchel.memory.micros import from_micros
from satchel.memory.page.records import (
    MOST_CHARS,
    Author,
    PageLine,
    PageVersion,
    Section,
    State,
    lines_from_json,
    lines_to_json,
)
from satchel.memory.page.rendering import FILLED, FRAME_TOKENS, section_for, tokens_of_line, words_of
from satchel.memory.profile import is_own
from satchel.memory.records import OWN_SPEAKERS, MemoryRecord
from satchel.memory.repository import content_hash, known_ids, read_records, records_by_id, slices
from satchel.memory.tables import memories, pages, spaces
from satchel.storage import Prepared

__all__ = [
    "accept",
    "drop_facts",
    "ended_since",
    "holding",
    "newest",
    "note",
    "pinned",
    "read_version",
    "said_by_user",
    "take_in",
    "texts_of",
    "versions",
    "write",
]

_MOST_FACTS: Final = 200
"""That are looked at for a place at once: three times what a page has room for."""
_LEAST_IMPORTANCE: Final = 3
"""What is trivial or minor is found by search, and gets no place that nobody gave it."""
_URGENT: Final = 5
"""The importance of a fact that gets a place whatever room there is."""
_MOST_VERSIONS: Final = 60
"""That are kept: a month or two."""
_OLD: Final = timedelta(days=1)
"""A home whose first page can be made of facts older than that had them before it had a page."""


def _is_users_own(fact: MemoryRecord) -> bool:
    """Whether a fact is in words that the user said: only such a one can say how the user wants to be answered."""
    return fact.trust == "user" and fact.speaker.casefold() in OWN_SPEAKERS


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
    """Write a version of the user's.

    Args:
        connection: In a transaction that writes.
        space: Whose.
        lines: Of the page; those that stand on what was forgotten meanwhile are left out.
        base: The version that it was made from.
        at: Now, in microseconds since 1970.

    Returns:
        The version; None if another one was written since `base`.
    """
    last = newest(connection, space)
    if (last.number if last else 0) != (base.number if base else 0):
        return None
    there = known_ids(connection, space, list({id for line in lines for id in line.facts}))
    kept = [line for line in lines if not line.text or there.issuperset(line.facts)]
    # What nobody has taken to the page yet can still be.
    changed = last.changed if last is not None else -1
    return _insert(connection, space, kept, last=last, by="user", state="used", changed=changed, at=at)


def _insert(
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


def note(
    connection: Connection,
    space: int,
    sections: Mapping[str, Section | None],
    off: Collection[str],
    *,
    budget_tokens: int,
    at: int,
) -> PageVersion | None:
    """Take facts to the page in their own words, and others off it. Facts that nobody gave a place or no place, such as
    those that were stored by hand, get one by their words while there is room.

    Args:
        connection: In a transaction that writes.
        space: Whose.
        sections: Of new facts by their ids; None for what need not stand there.
        off: The ids of facts that leave it. The user's own lines stay.
        budget_tokens: Of the whole page.
        at: Now, in microseconds since 1970.

    Returns:
        The version; None where nothing was changed.
    """
    base = newest(connection, space)
    before = base.lines if base is not None else ()
    there = {id for line in before for id in line.facts}
    given = [id for id, section in sections.items() if section is not None and id not in there]
    held = holding(connection, space, {*there, *given}, at=at)
    standing: list[PageLine] = []
    gone: set[str] = set()
    for line in before:
        if line.by == "user":
            standing.append(line)
            continue
        gone.update(id for id in line.facts if id in off)
        standing += [
            replace(line, text=words_of(held[id]), facts=(id,))
            for id in line.facts
            if line.text and id in held and id not in off
        ]
    fresh = {fact.id: fact for fact in _waiting(connection, space, base, there, at=at)}
    fresh |= {id: fact for id, fact in held.items() if id in given}
    new: list[PageLine] = []
    taken = [line.text for line in standing] + [words_of(held[id]) for id in given if id in held]
    left = budget_tokens * FILLED - FRAME_TOKENS - sum(map(tokens_of_line, taken))
    for fact in fresh.values():
        if fact.id in sections:
            new += _noted(fact, sections[fact.id])
        elif (cost := tokens_of_line(words_of(fact))) <= left or fact.importance >= _URGENT:
            new += _noted(fact, section_for(fact.content))
            left -= cost
    changed = connection.execute(select(spaces.c.changed).where(spaces.c.id == space)).scalar_one()
    if not gone and all(line in before for line in (*standing, *new)):
        if base is not None:
            connection.execute(update(pages).where(_is(space, base.number)).values(changed=changed))
        return None
    state = base.state if base is not None else _first_state(connection, space, at)
    return _insert(
        connection, space, [*standing, *new], last=base, by="model", state=state, changed=changed, at=at
    )


def _noted(fact: MemoryRecord, section: Section | None) -> list[PageLine]:
    """A fact as a line of its own; none for what may not stand in the section, or is too long."""
    text = words_of(fact)
    if section is None or len(text) > MOST_CHARS or (section == "answers" and not _is_users_own(fact)):
        return []
    if fact.discretion != "open":
        section = "confidential"
    return [PageLine(section=section, text=text, facts=(fact.id,))]


def _waiting(
    connection: Connection, space: int, base: PageVersion | None, placed: Collection[str], *, at: int
) -> list[MemoryRecord]:
    """Facts in the user's own words that are new or were changed and have no place, the most important first."""
    rids = connection.execute(
        select(memories.c.rid)
        .where(
            memories.c.space_id == space,
            memories.c.kind == "fact",
            memories.c.trust != "outside",
            memories.c.changed > (-1 if base is None else base.changed),
            memories.c.importance >= _LEAST_IMPORTANCE,
            _is_live(at),
        )
        .order_by(memories.c.importance.desc(), memories.c.said_at.desc(), memories.c.rid.desc())
        .limit(_MOST_FACTS)
    ).scalars()
    found = [one for one in read_records(connection, space, list(rids)).values() if one.id not in placed]
    said = statement_rows.said_with(connection, space, found)
    return sorted(
        (one for one in found if is_own(one, said)),
        key=lambda one: (-one.importance, -one.said_at.timestamp()),
    )


def _first_state(connection: Connection, space: int, at: int) -> State:
    """A first page is only proposed where some fact was stored before there could be one."""
    query = select(func.min(memories.c.created_at)).where(
        memories.c.space_id == space, memories.c.kind == "fact", memories.c.trust != "outside"
    )
    oldest = int(connection.execute(query).scalar_one() or 0)
    return "proposed" if oldest < at - _OLD // timedelta(microseconds=1) else "used"


def _is(space: int, number: int) -> Any:
    return and_(pages.c.space_id == space, pages.c.number == number)


def accept(connection: Connection, space: int) -> bool:
    """Let a proposed page be shown. False if there is none."""
    done = connection.execute(
        update(pages).where(pages.c.space_id == space, pages.c.state == "proposed").values(state="used")
    )
    return done.rowcount > 0


class Written(Protocol):
    """A version as an export has it; `written_at` is in microseconds since 1970."""

    @property
    def number(self) -> int: ...
    @property
    def written_at(self) -> int: ...
    @property
    def by(self) -> Author: ...
    @property
    def model(self) -> str: ...
    @property
    def state(self) -> State: ...
    @property
    def lines(self) -> Sequence[PageLine]: ...


def take_in(connection: Connection, space: int, version: Written) -> None:
    """Store a version of an export, unless there is one with its number or a later one. Lines that stand on what is not
    here are left out.
    """
    last = newest(connection, space)
    if last is not None and last.number >= version.number:
        return
    there = known_ids(connection, space, list({id for line in version.lines for id in line.facts}))
    connection.execute(
        insert(pages).values(
            space_id=space,
            number=version.number,
            written_at=version.written_at,
            by=version.by,
            model=version.model,
            state=version.state,
            changed=connection.execute(select(spaces.c.changed).where(spaces.c.id == space)).scalar_one(),
            lines=lines_to_json([line for line in version.lines if there.issuperset(line.facts)]),
        )
    )


# ---- What forgetting takes


def texts_of(connection: Connection, space: int, ids: Collection[str]) -> dict[str, list[str]]:
    """The lines of all versions that stand on memories, by the memories' ids."""
    found: dict[str, list[str]] = {}
    wanted = set(ids)
    for part in slices(sorted(wanted)):
        # Most versions name none of them, and need not be parsed.
        naming = or_(*(func.instr(pages.c.lines, id) > 0 for id in part))
        rows = connection.execute(select(pages.c.lines).where(pages.c.space_id == space, naming))
        for row in rows:
            for line in json.loads(row.lines):
                for id in wanted.intersection(line["facts"]) if line["text"] else ():
                    if line["text"] not in found.setdefault(id, []):
                        found[id].append(line["text"])
    return found


def drop_facts(connection: Connection, space: int, gone: Collection[str], changed: Collection[str]) -> None:
    """Take the words that stand on some facts out of every version.

    Args:
        connection: In a transaction that writes.
        space: Whose.
        gone: The facts that were forgotten.
        changed: Facts that stay, and lost words or a quote: their lines say what they say now.
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
                    replace(one, text=one.text and words_of(left[id]), facts=(id,))
                    for id in one.facts
                    if id in left
                ]
            )
        ]
        connection.execute(update(pages).where(pages.c.id == row.id).values(lines=lines_to_json(after)))


# ---- The facts

_NEWEST_SAID = Prepared(
    select(memories.c.said_at)
    .where(
        memories.c.space_id == bindparam("space"), memories.c.kind == "episode", memories.c.trust == "user"
    )
    .order_by(memories.c.rid.desc())
    .limit(1)
)


def _is_live(at: int) -> Any:
    return and_(
        memories.c.discretion == "open",
        or_(memories.c.valid_to.is_(None), memories.c.valid_to > at),
        or_(memories.c.valid_from.is_(None), memories.c.valid_from <= at),
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


def ended_since(
    connection: Connection, space: int, ids: Iterable[str], *, at: int
) -> dict[str, MemoryRecord]:
    """Those of some memories whose own time ended since the user last spoke, by id; not what was replaced."""
    found = _NEWEST_SAID.named(connection, {"space": space})
    if not found:
        return {}
    now = from_micros(at)
    held = holding(connection, space, ids, at=found[0].said_at)
    return {
        id: record
        for id, record in held.items()
        if record.is_over(now)
        and record.valid_to is not None
        and record.time is not None
        and record.time.last is not None
        # Replaced before its day, it would have ended then.
        and record.valid_to.astimezone(record.said_at.tzinfo).date() > record.time.last
    }


def pinned(connection: Connection, space: int, *, at: int) -> list[MemoryRecord]:
    """What the user pinned and holds, the first pinned first."""
    rids = connection.execute(
        select(memories.c.rid)
        .where(
            memories.c.space_id == space,
            memories.c.pinned == 1,
            memories.c.trust != "outside",
            _is_live(at),
        )
        .order_by(memories.c.rid)
        .limit(statement_rows.MOST_PINS)
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
