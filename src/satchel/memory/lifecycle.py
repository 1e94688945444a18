"""What can be done to a memory that is stored: edit, link, supersede. Each is one transaction, kept in its history."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection

from satchel.errors import UsageError
from satchel.memory.graph import is_superseded_by
from satchel.memory.history import (
    apply_fields,
    find_row,
    own_supersession,
    put_edge,
    state_of,
    undo_change,
    write_change,
)

__all__ = ["COMPARE", "checked_weight", "edit", "link", "supersede"]

COMPARE = "compare"
"""Who changes what by comparing, without having been told."""


def checked_weight(weight: float) -> float:
    """The weight of an edge.

    Raises:
        UsageError: It is not from 0 to 1.
    """
    if not math.isfinite(weight) or not 0 <= weight <= 1:
        raise UsageError(f"The weight is {weight:g}; it goes from 0 (no tie) to 1.")
    return float(weight)


def edit(
    connection: Connection, space: int, id: str, fields: Mapping[str, Any], *, at: int, who: str, why: str
) -> str | None:
    """Change fields of a memory.

    Args:
        connection: In a transaction that writes.
        space: Where it is.
        id: Which one.
        fields: By the names of `history.state_of`, checked.
        at: When.
        who: Who wants it.
        why: What for.

    Returns:
        The change's id, or None where everything was so already.

    Raises:
        NotFound: There is no such memory.
        UsageError: It would end to hold before it begins.
    """
    row = find_row(connection, space, id)
    now = state_of(connection, row)
    before = {name: now[name] for name, value in fields.items() if now[name] != value}
    if not before:
        return None
    after = {name: fields[name] for name in before}
    whole = {**now, **after}
    if None not in (whole["valid_from"], whole["valid_to"]) and whole["valid_to"] < whole["valid_from"]:
        raise UsageError(f"Memory {id} would cease to hold before it begins to; give it other times.")
    apply_fields(connection, space, row, after)
    return write_change(
        connection,
        space,
        memory_id=id,
        action="tier" if before.keys() <= {"tier", "priority", "decay_rate"} and "tier" in before else "edit",
        at=at,
        who=who,
        why=why,
        before=before,
        after=after,
    )


def link(
    connection: Connection,
    space: int,
    source: str,
    target: str,
    relation: str,
    weight: float | None,
    *,
    at: int,
    who: str,
    why: str,
) -> str | None:
    """Set the weight of an edge, or take the edge away with a weight of None.

    Returns:
        The change's id, or None where everything was so already.

    Raises:
        NotFound: One of the two is not there.
        UsageError: They are one and the same.
    """
    if source == target:
        raise UsageError(f"Memory {source} can't be tied to itself; nothing was changed.")
    begin, end = find_row(connection, space, source), find_row(connection, space, target)
    before = put_edge(connection, begin, end, relation, weight, at)
    if before == weight:
        return None
    edge = {"source": source, "target": target, "relation": relation}
    return write_change(
        connection,
        space,
        memory_id=source,
        other_id=target,
        action="unlink" if weight is None else "link",
        at=at,
        who=who,
        why=why,
        before={"edge": {**edge, "weight": before}},
        after={"edge": {**edge, "weight": weight}},
    )


def supersede(
    connection: Connection,
    space: int,
    older: str,
    newer: str,
    *,
    valid_to: int | None,
    at: int,
    who: str,
    why: str,
) -> str | None:
    """Let a newer memory take the place of an older one: an edge, and an end to the older one's validity.

    Args:
        connection: In a transaction that writes.
        space: Where both are.
        older: What no longer holds.
        newer: What holds instead.
        valid_to: Until when the older one held; None takes the time from which the newer one does: its
            `valid_from`, else when it was said, where that is later than the older one, else `at`.
        at: When.
        who: Who says so.
        why: What for.

    Returns:
        The change's id; undoing it undoes both. None where it was so already.

    Raises:
        NotFound: One of the two is not there.
        UsageError: They are the same, or somebody said before that it is the other way round. What comparing made
            of them by itself is taken back for it.
    """
    if older == newer:
        raise UsageError(f"Memory {older} can't supersede itself; nothing was changed.")
    old, new = find_row(connection, space, older), find_row(connection, space, newer)
    own = own_supersession(connection, space, newer, older)
    if own is not None and who != COMPARE:
        undo_change(connection, space, own, at=at, who=who, why=why)
        old, new = find_row(connection, space, older), find_row(connection, space, newer)
    if is_superseded_by(connection, new.rid, old.rid):
        raise UsageError(f"{older} supersedes {newer} already; undo that first (memory history {newer}).")
    if valid_to is None:
        valid_to = new.said_at if new.valid_from is None else new.valid_from
        if valid_to < old.said_at or valid_to > at:
            valid_to = at
    if old.valid_from is not None and valid_to < old.valid_from:
        valid_to = old.valid_from
    # What had ended before does not live longer for it.
    if old.valid_to is not None and old.valid_to < valid_to:
        valid_to = old.valid_to
    edge = {"source": newer, "target": older, "relation": "supersedes"}
    before = put_edge(connection, new, old, "supersedes", 1.0, at)
    if before == 1.0 and old.valid_to == valid_to:
        return None
    apply_fields(connection, space, old, {"valid_to": valid_to})
    return write_change(
        connection,
        space,
        memory_id=older,
        other_id=newer,
        action="supersede",
        at=at,
        who=who,
        why=why,
        before={"valid_to": old.valid_to, "edge": {**edge, "weight": before}},
        after={"valid_to": valid_to, "edge": {**edge, "weight": 1.0}},
    )
