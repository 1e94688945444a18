"""Copies builds and their messages between the file of a home and its server."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, delete, func, select, update

from satchel.builder.records import ENDED
from satchel.builder.tables import build_messages, builds
from satchel.storage.rows import OwnedRows, last_number, start_after

_BUILDS: Final = OwnedRows(table=builds, owner="id")


def copy_builds(here: Connection, there: Connection) -> None:
    """Copy the builds that the target does not have. Messages keep their numbers, which conversations know, if it has
    none; otherwise they get new ones, and no conversation is told again of builds that have ended.
    """
    known = set(there.execute(select(builds.c.id)).scalars())
    new = [id for id in here.execute(select(builds.c.id)).scalars() if id not in known]
    _BUILDS.copy(here, there, new)
    is_first = there.execute(select(build_messages.c.number).limit(1)).first() is None
    given = last_number(there, build_messages)
    numbered = "" if is_first else "number"
    OwnedRows(table=build_messages, owner="build_id", numbered=numbered).copy(here, there, new)
    if is_first:
        start_after(there, build_messages, max(given, last_number(here, build_messages)))
    else:
        ended = builds.c.id.in_(new) & builds.c.status.in_(ENDED)
        there.execute(update(builds).where(ended).values(asked_by=""))


def digest_builds(connection: Connection) -> tuple[int, int]:
    """What changes whenever a build does: how many there are, and the newest message."""
    count = connection.execute(select(func.count()).select_from(builds)).scalar_one()
    return count, last_number(connection, build_messages)


def has_builds(connection: Connection) -> bool:
    """Whether there are any."""
    return connection.execute(select(builds.c.id).limit(1)).first() is not None


def clear_builds(connection: Connection) -> None:
    """Remove all of them from a database."""
    for table in (build_messages, builds):
        connection.execute(delete(table))
