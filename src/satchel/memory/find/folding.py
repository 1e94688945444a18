"""Facts once in a list: the turns that a fact rests on, and the answers to them, are its evidence, not rows of their
own. They stay stored word for word, and a search for their words finds them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from satchel.memory.store.graph import facts_and_turns
from satchel.memory.store.repository import read_records, rids_of

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from satchel.memory.records import Hit, MemoryRecord


def read_evidence(
    connection: Connection, space: int, ids: Sequence[str]
) -> dict[str, tuple[MemoryRecord, ...]]:
    """The turns that each of some facts rests on, by its id, in the order in which they were said."""
    facts = read_records(connection, space, rids_of(connection, space, list(ids)))
    found: dict[int, set[int]] = {}
    for fact, turn in facts_and_turns(connection, list(facts), are_facts=True):
        found.setdefault(fact, set()).add(turn)
    turns = read_records(connection, space, sorted({turn for some in found.values() for turn in some}))
    return {
        facts[fact].id: tuple(
            sorted(
                (turns[turn] for turn in some if turn in turns and turns[turn].kind == "episode"),
                key=lambda one: (one.said_at, one.source.position or 0),
            )
        )
        for fact, some in found.items()
    }


def folded_hits(
    hits: Sequence[Hit], evidence: Mapping[str, Sequence[MemoryRecord]], *, limit: int
) -> tuple[Hit, ...]:
    """The first hits without those that another one rests on, which stands where the better of them stood."""
    facts = {turn.id: id for id, turns in evidence.items() for turn in turns}
    by_id = {hit.memory.id: hit for hit in hits}
    shown = dict.fromkeys(
        hit.memory.id if facts.get(hit.memory.id) not in by_id else facts[hit.memory.id] for hit in hits
    )
    return tuple(by_id[id] for id in list(shown)[:limit])
