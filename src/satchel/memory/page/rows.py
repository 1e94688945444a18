"""The versions of the page in the database, and the facts that it is made of. Every function runs in a transaction."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Protocol

from sqlalchemy import Connection, and_, bindparam, delete, func, insert, or_, select, update

from satchel.memory import statement_rows
from satchel.memory.micros import from_micros
from satchel.memory.page.checking import stands
from satchel.memory.page.records import Author, PageLine, PageVersion, State, lines_from_json, lines_to_json
from satchel.memory.profile import is_own
from satchel.memory.records import OWN_SPEAKERS, MemoryRecord
from satchel.memory.repository import content_hash, known_ids, read_records, records_by_id, slices
from satchel.memory.spending import Asked, add_usage
from satchel.memory.tables import distill_windows, edges, memories, pages, spaces
from satchel.storage import Prepared

__all__ = [
    "PLACE",
    "News",
    "accept",
    "drop_facts",
    "failing_since",
    "holding",
    "is_users_own",
    "news_of",
    "newest",
    "note_seen",
    "pinned",
    "read_version",
    "said_by_user",
    "texts_of",
    "trouble",
    "versions",
    "write",
    "write_failure",
]

PLACE: Final = "page"
"""In the table of windows: a writing of the page that failed."""
_MOST_FACTS: Final = 200
"""That a writer is shown at once: 5,000 tokens, three times what a page has room for."""
_LEAST_IMPORTANCE: Final = 3
"""What is trivial or minor is found by search, and no reason to write the page."""
_URGENT: Final = 5
"""The importance of a fact for which the page is written at once."""
_MOST_VERSIONS: Final = 60
"""That are kept: a month or two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """What a writer of the page has to know.

    Attributes:
        base: The newest version; None before the first.
        held: The facts of its lines that hold, by id.
        fresh: Facts that are not on it, and are new or were changed since, or lost their line; the most important
            first.
        replaced: By the ids of facts of its lines that no longer hold, the ids of what superseded them.
        changed: The number of the space's last change.
        oldest: Before the first version, when the oldest fact was stored, in microseconds since 1970; otherwise 0.
        orphans: The ids of those of `fresh` whose line was taken away with something that was forgotten.
        asked_at: When a model last wrote a version, in microseconds since 1970; None before the first time.
    """

    base: PageVersion | None
    held: Mapping[str, MemoryRecord]
    fresh: Sequence[MemoryRecord]
    replaced: Mapping[str, Sequence[str]]
    changed: int
    oldest: int
    orphans: frozenset[str] = frozenset()
    asked_at: datetime | None = None

    @property
    def is_urgent(self) -> bool:
        """Whether the page should not wait for another day."""
        return self.base is None or any(
            fact.importance >= _URGENT or fact.id in self.orphans for fact in self.fresh
        )


def is_users_own(fact: MemoryRecord) -> bool:
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
    row = connection.execute(select(pages).where(pages.c.space_id == space, pages.c.number == number)).first()
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
    connection: Connection,
    space: int,
    lines: Sequence[PageLine],
    *,
    base: int,
    by: Author,
    model: str = "",
    state: State = "used",
    changed: int,
    at: int,
    spent: Sequence[Asked] = (),
    day: str = "",
) -> PageVersion | None:
    """Write a version.

    Args:
        connection: In a transaction that writes.
        space: Whose.
        lines: Of the page. What was forgotten meanwhile is left out, and lines of the model whose facts were changed.
        base: The number of the version that it was made from; 0 for none.
        by: Who made it.
        model: The model's name.
        state: Whether it may be shown.
        changed: What the writer had seen.
        at: Now, in microseconds since 1970.
        spent: What it cost.
        day: The local day.

    Returns:
        The version; None if another one was written since `base`, and then only the cost is counted.
    """
    add_usage(connection, space, spent, day)
    last = newest(connection, space)
    if (last.number if last else 0) != base:
        return None
    ids = {id for line in lines for id in line.facts}
    held = holding(connection, space, ids, at=at)
    there = known_ids(connection, space, list(ids))
    kept = [
        line
        for line in lines
        if not line.text or (there.issuperset(line.facts) if line.by == "user" else stands(line, held))
    ]
    number = base + 1
    connection.execute(
        insert(pages).values(
            space_id=space,
            number=number,
            written_at=at,
            by=by,
            model=model,
            state=state,
            changed=changed,
            lines=lines_to_json(kept),
        )
    )
    connection.execute(
        delete(pages).where(pages.c.space_id == space, pages.c.number <= number - _MOST_VERSIONS)
    )
    return read_version(connection, space, number)


def note_seen(connection: Connection, space: int, number: int, changed: int) -> None:
    """Note that nothing up to a change has to be taken to the page, if this version is still the newest."""
    last = select(func.max(pages.c.number)).where(pages.c.space_id == space).scalar_subquery()
    connection.execute(
        update(pages)
        .where(pages.c.space_id == space, pages.c.number == number, pages.c.number == last)
        .values(changed=changed)
    )


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
        changed: Facts that stay, and lost words or a quote.
    """
    lost = {*gone, *changed}
    rows = connection.execute(select(pages.c.id, pages.c.lines).where(pages.c.space_id == space)).all()
    for row in rows:
        before = lines_from_json(json.loads(row.lines))
        after = [
            line
            if lost.isdisjoint(line.facts)
            else replace(line, text="", checked="", facts=tuple(id for id in line.facts if id not in gone))
            for line in before
        ]
        after = [line for line in after if line.text or line.facts]
        if after != list(before):
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


def news_of(connection: Connection, space: int, *, at: int) -> News:
    """What has changed since the newest version, or all that the first one may be made of."""
    base = newest(connection, space)
    lines = base.lines if base is not None else ()
    named = {id for line in lines for id in line.facts}
    shown = {id for line in lines if line.text or line.by == "user" for id in line.facts}
    waiting = named - shown
    since = -1 if base is None else base.changed
    off = {id for line in lines if not line.text and line.by == "user" for id in line.facts}
    held = holding(connection, space, named - off, at=at)
    changed = connection.execute(select(spaces.c.changed).where(spaces.c.id == space)).scalar_one()
    rids = connection.execute(
        select(memories.c.rid)
        .where(
            memories.c.space_id == space,
            memories.c.kind == "fact",
            memories.c.trust != "outside",
            memories.c.changed > since,
            memories.c.importance >= _LEAST_IMPORTANCE,
            _is_live(at),
        )
        .order_by(memories.c.importance.desc(), memories.c.said_at.desc(), memories.c.rid.desc())
        .limit(_MOST_FACTS)
    ).scalars()
    found = {record.id: record for record in read_records(connection, space, list(rids)).values()}
    # What stood on a line that is no longer shown waits for another one.
    lost = {
        id
        for line in lines
        if line.text and line.by == "model" and not stands(line, held)
        for id in line.facts
    }
    found |= {id: held[id] for id in sorted(waiting | lost) if id in held}
    said = statement_rows.said_with(connection, space, found.values())
    fresh = [
        record
        for id, record in found.items()
        if id not in off and is_own(record, said) and (id not in shown or id in lost)
    ]
    fresh.sort(key=lambda one: (-one.importance, -one.said_at.timestamp()))
    return News(
        base=base,
        held=held,
        fresh=fresh,
        replaced=_replaced(connection, space, [id for id in named if id not in held]),
        changed=int(changed),
        oldest=_oldest(connection, space) if base is None else 0,
        orphans=frozenset(waiting),
        asked_at=_asked_at(connection, space),
    )


_BY_MODEL = and_(pages.c.by == "model", pages.c.model != "")
"""The versions for which a model was asked; others of the model's were noted in the words of facts."""


def _asked_at(connection: Connection, space: int) -> datetime | None:
    query = select(func.max(pages.c.written_at)).where(pages.c.space_id == space, _BY_MODEL)
    at = connection.execute(query).scalar_one()
    return None if at is None else from_micros(int(at))


def _oldest(connection: Connection, space: int) -> int:
    """When the oldest fact that a page may stand on was stored, in microseconds; 0 without one."""
    query = select(func.min(memories.c.created_at)).where(
        memories.c.space_id == space, memories.c.kind == "fact", memories.c.trust != "outside"
    )
    return int(connection.execute(query).scalar_one() or 0)


def _replaced(connection: Connection, space: int, ids: Sequence[str]) -> dict[str, list[str]]:
    old, new = memories.alias("old"), memories.alias("new")
    found: dict[str, list[str]] = {}
    for part in slices(ids):
        rows = connection.execute(
            select(old.c.id, new.c.id.label("by"))
            .select_from(edges)
            .join(old, old.c.rid == edges.c.target_rid)
            .join(new, new.c.rid == edges.c.source_rid)
            .where(old.c.space_id == space, old.c.id.in_(part), edges.c.relation == "supersedes")
        )
        for row in rows:
            found.setdefault(row.id, []).append(row.by)
    return found


# ---- Failures


def _failures(space: int) -> Any:
    """What failed since a model wrote the newest of its versions."""
    written = (
        select(func.coalesce(func.max(pages.c.written_at), -1))
        .where(pages.c.space_id == space, _BY_MODEL)
        .scalar_subquery()
    )
    return select(distill_windows).where(
        distill_windows.c.space_id == space, distill_windows.c.place == PLACE, distill_windows.c.at > written
    )


def failing_since(connection: Connection, space: int) -> tuple[int, int]:
    """How often writing failed since the page was written, and when the last time, in microseconds; 0 for never."""
    query = _failures(space).with_only_columns(func.count(), func.max(distill_windows.c.at))
    count, at = connection.execute(query).one()
    return int(count), int(at or 0)


def trouble(connection: Connection, space: int) -> str:
    """Why writing failed the last time, or ""."""
    query = _failures(space).with_only_columns(distill_windows.c.error).order_by(distill_windows.c.id.desc())
    return connection.execute(query.limit(1)).scalar() or ""


def write_failure(
    connection: Connection, space: int, error: str, *, at: int, spent: Sequence[Asked], day: str
) -> None:
    """Note that the page could not be written."""
    add_usage(connection, space, spent, day)
    connection.execute(
        insert(distill_windows).values(
            space_id=space, at=at, place=PLACE, outcome="failed", facts=0, dropped=0, error=error[:500]
        )
    )
