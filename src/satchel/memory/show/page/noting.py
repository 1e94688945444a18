"""What a reader of a conversation says of the page, written to it. Every function runs in a transaction."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Final

from sqlalchemy import Connection, func, select

from satchel.memory.records import OWN_SPEAKERS, MemoryRecord
from satchel.memory.show.page.rendering import FILLED, FRAME_TOKENS, section_for, tokens_of_line
from satchel.memory.show.profile import is_own
from satchel.memory.store import statement_rows
from satchel.memory.store.page_lines import MOST_CHARS, PageLine, PageVersion, Section, State
from satchel.memory.store.page_rows import ended, holding, insert_version, newest, set_changed, words_of
from satchel.memory.store.repository import read_records
from satchel.memory.store.tables import memories, spaces

_MOST_FACTS: Final = 200
"""That are looked at for a place at once: three times what a page has room for."""
_LEAST_IMPORTANCE: Final = 3
"""What is trivial or minor is found by search, and gets no place that nobody gave it."""
_MOST_RESTING: Final = 60
"""That left a full page and may come back: more than it has room for."""
_URGENT: Final = 5
"""The importance of a fact that gets a place whatever room there is."""
_OLD: Final = timedelta(days=1)
"""A home whose first page can be made of facts older than that had them before it had a page."""


def _is_users_own(fact: MemoryRecord) -> bool:
    """Whether a fact is in words that the user said: only such a one can say how the user wants to be answered."""
    return fact.trust == "user" and fact.speaker.casefold() in OWN_SPEAKERS


def note(
    connection: Connection,
    space: int,
    sections: Mapping[str, Section | None],
    off: Collection[str],
    *,
    replaced: Collection[str] = (),
    budget_tokens: int,
    at: int,
) -> PageVersion | None:
    """Take facts to the page in their own words, by the section of each id, None for none, and those of `off` and
    `replaced` off it; the user's own lines stay. Facts that nobody gave a place or no place, such as those that were
    stored by hand, get one by their words while the whole page has room. If with all of `off` the page would be too
    full, these rest: they are shown where there is room. None where nothing changed.
    """
    base = newest(connection, space)
    before = base.lines if base is not None else ()
    resting = {id: line for line in (base.rested if base is not None else ()) for id in line.facts}
    there = {id for line in before for id in line.facts} - resting.keys()
    given = [id for id, section in sections.items() if section is not None and id not in there]
    held = holding(connection, space, {*there, *given, *resting}, at=at)
    # What ended stands on the page as over; a version that is written meanwhile keeps it.
    told = ended(connection, space, before, at=at) | held
    standing: list[PageLine] = []
    gone: dict[str, PageLine] = {}
    for line in before:
        if line.by == "user":
            standing.append(line)
        if line.by == "user" or not line.text:
            continue
        leaving = [id for id in line.facts if id in off or id in replaced]
        gone |= {id: replace(line, text="", facts=(id,), until=None) for id in leaving}
        standing += [
            replace(line, text=words_of(told[id]), facts=(id,))
            for id in line.facts
            if id in told and id not in gone
        ]
    fresh = {fact.id: fact for fact in _waiting(connection, space, base, there, at=at)}
    fresh |= {id: fact for id, fact in held.items() if id in given}
    new: list[PageLine] = []
    taken = [line.text for line in standing if line.by == "user" or not held.keys().isdisjoint(line.facts)]
    taken += [words_of(held[id]) for id in given if id in held]
    left = budget_tokens * FILLED - FRAME_TOKENS - sum(map(tokens_of_line, taken))
    for fact in fresh.values():
        if fact.id in sections:
            new += _noted(fact, sections[fact.id])
        elif (cost := tokens_of_line(words_of(fact))) <= left or fact.importance >= _URGENT:
            new += _noted(fact, section_for(fact.content))
            left -= cost
    left -= sum(tokens_of_line(words_of(held[id])) for id in gone if id in held)
    if left < 0:
        resting |= gone
    placed = {id for line in new for id in line.facts}
    waits = [held[id] for id in resting if id in held and id not in replaced and id not in placed]
    waits.sort(key=lambda one: (-one.importance, -one.said_at.timestamp()))
    rest = [resting[one.id] for one in waits[:_MOST_RESTING]]
    changed = connection.execute(select(spaces.c.changed).where(spaces.c.id == space)).scalar_one()
    if not gone and all(line in before for line in (*standing, *new)) and len(rest) == len(resting):
        if base is not None:
            set_changed(connection, space, base.number, changed)
        return None
    state = base.state if base is not None else _first_state(connection, space, at)
    return insert_version(
        connection,
        space,
        [*standing, *new, *rest],
        last=base,
        by="model",
        state=state,
        changed=changed,
        at=at,
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
            statement_rows.HOLDS,
        )
        .order_by(memories.c.importance.desc(), memories.c.said_at.desc(), memories.c.rid.desc())
        .limit(_MOST_FACTS),
        {"at": at},
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
