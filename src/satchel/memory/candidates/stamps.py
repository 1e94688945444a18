"""The statements about the stamp that the database and the file of a space's arrays share; see `shelf`."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, literal, select, update

from satchel.memory.repository import slices
from satchel.memory.tables import memories, spaces, tombstones

__all__ = ["Stamped", "Stale", "publish_stamp", "read_stamp", "read_stale", "renew_stamp", "speakers_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamped:
    """What the database says about the arrays of a space.

    Attributes:
        stamp: That of the file that is to be believed; None where none was written yet.
        changed: The change that the space has come to.
    """

    stamp: str | None
    changed: int


def read_stamp(connection: Connection, space: int) -> Stamped:
    """What the database says about the arrays of a space."""
    row = connection.execute(select(spaces.c.arrays, spaces.c.changed).where(spaces.c.id == space)).one()
    return Stamped(stamp=row.arrays, changed=row.changed)


def renew_stamp(connection: Connection, space: int, stamp: str | None = None) -> str | None:
    """Give a space another stamp, so that a file with the present one is not believed any more.

    Returns:
        The present one. Where there is none, no file was written, and there stays none unless one is given.
    """
    present: str | None = connection.execute(select(spaces.c.arrays).where(spaces.c.id == space)).scalar_one()
    if present is not None or stamp is not None:
        connection.execute(
            update(spaces).where(spaces.c.id == space).values(arrays=stamp or secrets.token_hex(16))
        )
    return present


def publish_stamp(connection: Connection, space: int, stamp: str, *, changed: int) -> bool:
    """Let a file with this stamp be believed, unless something was forgotten after the change that it goes up to."""
    forgotten_since = connection.execute(
        select(literal(1)).where(tombstones.c.space_id == space, tombstones.c.changed > changed).limit(1)
    ).first()
    if forgotten_since is not None:
        return False
    renew_stamp(connection, space, stamp)
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Stale:
    """What arrays that go up to an earlier change must not hold.

    Attributes:
        stamp: As in `Stamped`.
        since: That earlier change.
        rids: The memories that were forgotten or changed after it, each with the count of its last change.
    """

    stamp: str | None
    since: int
    rids: Mapping[int, int]


def read_stale(connection: Connection, space: int, since: int) -> Stale:
    """What was forgotten or changed after a change."""
    rids: dict[int, int] = {}
    for table in (memories, tombstones):
        query = select(table.c.rid, table.c.changed).where(table.c.space_id == space, table.c.changed > since)
        rids.update((rid, changed) for rid, changed in connection.execute(query))
    stamp = connection.execute(select(spaces.c.arrays).where(spaces.c.id == space)).scalar()
    return Stale(stamp=stamp, since=since, rids=rids)


def speakers_of(connection: Connection, rids: Sequence[int]) -> set[str]:
    """The names of those who speak in some memories."""
    names: set[str] = set()
    for part in slices(rids):
        names.update(connection.execute(select(memories.c.speaker).where(memories.c.rid.in_(part))).scalars())
    return names - {""}
