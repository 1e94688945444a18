"""Capabilities and builds are where the home's database is; this moves them when that changes."""

from __future__ import annotations

import hashlib

from sqlalchemy import Connection

from satchel.builder.joining import clear_builds, copy_builds, digest_builds, has_builds
from satchel.capabilities import kept
from satchel.capabilities.joining import clear_capabilities, copy_capabilities, count_capabilities, join
from satchel.capabilities.kept import Returned
from satchel.config import Settings
from satchel.memory.text.hashing import KEY_FILE, WordHasher
from satchel.storage import Database


async def take_in_made(settings: Settings, local: Database, server: Database) -> tuple[Returned, ...]:
    """Move capabilities and builds of the home's file to its server. Killed at any moment, it can be called again.

    Returns:
        Which capabilities were changed here and there.

    Raises:
        StorageError: Some can't be moved; they are still in the file.
    """
    if await local.read(has_builds):
        await server.write(
            lambda there: local.read_blocking(lambda here: copy_builds(here, there)), durable=True
        )
        await local.expect_scrub()
        await local.write(clear_builds, durable=True)
        await local.scrub()
    seal = WordHasher(settings.home / KEY_FILE)
    return await join(local, server, home=settings.home, clock=server.clock, seal=seal)


def copy_made(source: Database, there: Connection) -> None:
    """Copy what the target does not have. `there` is in a transaction."""

    def copy(here: Connection) -> None:
        copy_capabilities(here, there)
        copy_builds(here, there)

    source.read_blocking(copy)


def digest_made(connection: Connection) -> str:
    """What changes whenever a capability or a build does."""
    state = sorted(kept.changes(connection).items()), digest_builds(connection)
    return hashlib.sha256(repr(state).encode()).hexdigest()


def has_made(connection: Connection) -> bool:
    """Whether there are any."""
    return bool(count_capabilities(connection)) or has_builds(connection)


def clear_made(connection: Connection) -> None:
    """Remove all of them from a database. The folders stay."""
    clear_capabilities(connection)
    clear_builds(connection)
