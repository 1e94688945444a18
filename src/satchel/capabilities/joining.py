"""Moves capabilities between the file of a home and its server."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import anyio.to_thread
from sqlalchemy import Connection, delete, func, select

from satchel.capabilities import kept
from satchel.capabilities.catalogue import FOLDER, Catalogue
from satchel.capabilities.kept import Returned, Seal
from satchel.capabilities.tables import (
    capabilities,
    capability_approvals,
    capability_changes,
    capability_removals,
    capability_runs,
    capability_vectors,
    capability_versions,
)
from satchel.clock import Clock
from satchel.storage import Database
from satchel.storage.rows import OwnedRows

_OF_CAPABILITIES: Final = (
    OwnedRows(table=capabilities, owner="id"),
    OwnedRows(table=capability_versions, owner="capability_id"),
    OwnedRows(table=capability_approvals, owner="capability_id"),
    OwnedRows(table=capability_runs, owner="capability_id", numbered="number"),
    OwnedRows(table=capability_vectors, owner="capability_id"),
)


async def join(
    local: Database, server: Database, *, home: Path, clock: Clock, seal: Seal
) -> tuple[Returned, ...]:
    """Move the capabilities of a home's file to its server. What was changed here and there, or has there the name of
    another one, stays as it is there; its folder is moved aside. Killed at any moment, it can be called again.

    Returns:
        What was changed here and there.

    Raises:
        StorageError: A database or a folder is unusable. What was not moved is in the file.
    """
    if not await local.read(count_capabilities):
        return ()
    await Catalogue.open(local, home=home, clock=clock)  # makes the records that it lacks
    folder = home / FOLDER

    def copy(here: Connection, there: Connection) -> tuple[list[str], list[Path]]:
        new, same, changed = kept.match(here, there, folder, seal)
        for rows in _OF_CAPABILITIES:
            rows.copy(here, there, new)
        for user in kept.changes(here):
            kept.count(there, folder, user)  # so that the catalogue looks, and proves them
        return same, changed

    same, changed = await server.write(
        lambda there: local.read_blocking(lambda here: copy(here, there)), durable=True
    )

    def settle() -> tuple[Returned, ...]:
        for id in same:
            kept.drop_record(folder, id)
        there = [path for path in changed if path.is_dir()]
        return tuple(
            Returned(name=kept.name_in(path), elsewhere=True, place=kept.move_aside(folder, path))
            for path in there
        )

    returned = await anyio.to_thread.run_sync(settle)
    await local.expect_scrub()
    await local.write(clear_capabilities, durable=True)
    await local.scrub()
    return returned


def copy_capabilities(here: Connection, there: Connection) -> None:
    """Copy what the target does not have, with its numbers and proofs."""
    known = set(there.execute(select(capabilities.c.id)).scalars())
    new = [id for id in here.execute(select(capabilities.c.id)).scalars() if id not in known]
    for rows in _OF_CAPABILITIES:
        rows.copy(here, there, new)
    for user, number in kept.changes(here).items():
        kept.count_up(there, user, number)


def count_capabilities(connection: Connection) -> int:
    """How many there are."""
    return int(connection.execute(select(func.count()).select_from(capabilities)).scalar_one())


def clear_capabilities(connection: Connection) -> None:
    """Remove all of them from a database. Their folders stay."""
    for table in (capabilities, capability_changes, capability_removals):
        connection.execute(delete(table))
