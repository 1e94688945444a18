"""Forgetting, as transactions: which memories are meant, what would go with them, and that they go."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import Connection

from satchel.memory import history, repository
from satchel.memory.filters import Filter
from satchel.memory.records import Forgotten

__all__ = ["forget_now", "ids_to_forget", "preview"]


def ids_to_forget(
    connection: Connection, space: int, wanted: Filter, having: Collection[int] | None
) -> list[str]:
    """The ids of the memories that fit a filter, and are among the rids given where some are."""
    rids = repository.matching_rids(connection, space, wanted)
    if having is not None:
        rids = [rid for rid in rids if rid in having]
    return repository.ids_of(connection, space, rids)


def forget_now(
    connection: Connection, space: int, ids: Sequence[str], at: int
) -> tuple[list[Forgotten], list[str]]:
    """Remove memories with all that is known of them, their changes included.

    Returns:
        What was removed, and which ids were not there.
    """
    gone, missing = repository.remove(connection, space, ids, at)
    if gone:
        history.drop_changes(connection, space, gone, at)
    return gone, missing


def preview(
    connection: Connection, space: int, ids: Sequence[str], at: int
) -> tuple[list[Forgotten], list[str]]:
    """What `forget_now` would remove: it is done, and taken back before anybody sees it."""
    undone = connection.begin_nested()
    try:
        return forget_now(connection, space, ids, at)
    finally:
        undone.rollback()
