"""Where in its turn an episode stands, when its writer did not say."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, select

from satchel.memory.store.history import earlier_contents
from satchel.memory.store.repository import MemoryDraft, among, content_hash, place_hash
from satchel.memory.store.tables import memories, tombstones
from satchel.memory.text.discretion import GUEST

__all__ = ["settle"]


def settle(
    connection: Connection,
    space: int,
    drafts: Sequence[MemoryDraft],
    unplaced: Collection[int],
    id_at: Callable[[Mapping[str, Any], int], str],
) -> list[MemoryDraft]:
    """Give episodes that were counted from 0, in a turn that has others already, the next free place.

    A question is stored when it is asked and its answer when it is there: both are the first of their turn to whoever
    stores them. Words that stand in the turn already, or did before they were edited, keep their place, so that
    a repeat changes nothing.

    `unplaced` are those whose place was counted, by their number in `drafts`. `id_at` gives the id of an episode by its
    columns and its place.
    """
    known = _words_at(connection, space, [drafts[at].id for at in unplaced])
    full = {
        _turn(drafts[at])
        for at in unplaced
        if drafts[at].id in known and known[drafts[at].id] != _words(drafts[at].row)
    }
    settled = list(drafts)
    for turn in full:
        taken = _taken(connection, space, *turn)
        used: set[int] = set()
        for at, draft in enumerate(drafts):
            if _turn(draft) != turn:
                continue
            position, words = draft.row["source_position"], _words(draft.row)
            while at in unplaced and (
                position in used
                or (
                    words not in taken[position]
                    if position in taken
                    else _gone(connection, space, *turn, position)
                )
            ):
                position += 1
            used.add(position)
            row = {**draft.row, "source_position": position}
            settled[at] = replace(draft, id=id_at(row, position), row=row)
    return settled


def _turn(draft: MemoryDraft) -> tuple[str, int]:
    return draft.row["source_session"], draft.row["source_turn"]


def _words(row: Mapping[str, Any]) -> tuple[str, str]:
    return _who(row["speaker"]), row["content_hash"]


def _who(speaker: str) -> str:
    """Who said something, as its writer knows them: that it was a guest is found out when it is stored."""
    return "user" if speaker == GUEST else speaker


def _words_at(connection: Connection, space: int, ids: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Who said what, by the ids that are there."""
    rows = connection.execute(
        select(memories.c.id, memories.c.speaker, memories.c.content_hash).where(
            memories.c.space_id == space, memories.c.id.in_(among(ids))
        )
    )
    return {id: (_who(speaker), words) for id, speaker, words in rows}


def _taken(connection: Connection, space: int, session: str, turn: int) -> dict[int, set[tuple[str, str]]]:
    """Who said what at each place of a turn, now and before it was edited."""
    rows = connection.execute(
        select(memories.c.id, memories.c.source_position, memories.c.speaker, memories.c.content_hash).where(
            memories.c.space_id == space,
            memories.c.source_session == session,
            memories.c.source_turn == turn,
            memories.c.kind == "episode",
            memories.c.source_position.is_not(None),
        )
    ).all()
    earlier = earlier_contents(connection, space, [row.id for row in rows])
    return {
        row.source_position: {(_who(row.speaker), row.content_hash)}
        | {(_who(row.speaker), content_hash(text)) for text in earlier.get(row.id, ())}
        for row in rows
    }


def _gone(connection: Connection, space: int, session: str, turn: int, position: int) -> bool:
    """Whether what stood at a place was forgotten: nothing else is stored there."""
    return (
        connection.execute(
            select(tombstones.c.rid).where(
                tombstones.c.space_id == space,
                tombstones.c.place_hash == place_hash(session, turn, position),
            )
        ).first()
        is not None
    )
