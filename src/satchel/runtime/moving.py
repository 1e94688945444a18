"""Moves the memories of a home from its file to a PostgreSQL server, and back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection

from satchel.clock import Clock, SystemClock
from satchel.config import Settings, set_value
from satchel.errors import Refused, StorageError, UsageError
from satchel.memory.transfer.moving import clear_rows, copy_rows, count_rows, digest_rows, has_rows
from satchel.runtime.memory_work import LOCK
from satchel.sandbox.detached import is_working
from satchel.storage import Database, is_server
from satchel.storage.copies import is_in_use

__all__ = ["Moved", "check_place", "copy_from_server", "migrate", "rows_left"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """What was moved.

    Attributes:
        rows: The number of rows of each table that has any; empty if they had been moved before.
        source: Where they were: a path, or a URL without its password. They are not there any more.
        target: Where they are.
    """

    rows: dict[str, int]
    source: str
    target: str


def check_place(where: str) -> None:
    """Check that memories can be kept on a server, without changing anything. Any other place is right.

    Raises:
        ConfigError: The URL or the driver is wrong.
        StorageError: The server can't be reached, or has tables of another program there.
    """
    if is_server(where):
        from satchel.storage.postgresql import look  # noqa: PLC0415 - the driver takes 0.3 s of CPU

        look(where)


async def migrate(settings: Settings, to: str, *, clock: Clock | None = None) -> Moved:
    """Move every row of memory, compare all of them, change the setting `database`, and remove them where they were.

    What describes the folders of the home, such as the index of its conversations, stays in its file.

    Args:
        settings: The home's.
        to: "postgresql://…", or "sqlite" for the home's file.
        clock: For the databases.

    Raises:
        UsageError: `to` is neither.
        Refused: Another process uses the home, or there are other memories at `to`. Nothing was changed.
        StorageError: A row is not the same on both sides, or a database failed. What was copied is removed again.
    """
    location, file = settings.database_location, settings.home_database
    if not is_server(to) and to != "sqlite":
        raise UsageError("--to takes postgresql://… or sqlite.")
    has_moved = str(location) == to
    if not has_moved and is_server(str(location)) == is_server(to):
        raise Refused(
            f"The memories are in {file if to == 'sqlite' else 'another server'}; move them to sqlite first."
        )
    if is_in_use(file):
        if is_working(settings.home, LOCK):
            raise Refused(
                "The process that does memory's work in the background uses the home. It ends after "
                f"{settings.memory.worker_idle_s:g} s without work; try again then. Nothing was changed."
            )
        raise Refused(f"Another process uses {file}. End it, and try again. Nothing was changed.")
    async with AsyncExitStack() as stack:
        local = await stack.enter_async_context(Database.open(file, clock=clock or SystemClock()))
        url = to if is_server(to) else str(location)
        server = await stack.enter_async_context(Database.open(url, clock=clock or SystemClock()))
        source, target = (local, server) if is_server(to) else (server, local)
        rows = {name: count for name, count in (await source.read(count_rows)).items() if count}
        digest = await source.read(digest_rows)
        if has_moved:
            # It was killed before it removed what it had moved.
            if rows and await server.note("moved") != digest:
                raise Refused(
                    f"{file} has memories that are not those that were moved to {server.place}. Nothing was changed."
                )
        else:
            await _copy(source, target, digest)
            await server.note("moved", digest)
            set_value(settings.config_path, "database", to if is_server(to) else "")
        await source.expect_scrub()
        await source.write(clear_rows)
        await source.scrub()
        if target is local:
            await server.note("home", "")  # so that another home may have it
        return Moved(rows=rows, source=source.place, target=target.place)


async def _copy(source: Database, target: Database, digest: str) -> None:
    if not await target.read(has_rows):
        await target.write(
            lambda there: source.read_blocking(lambda here: copy_rows(here, there)), durable=True
        )
        if await target.read(digest_rows) != digest:
            await target.write(clear_rows)
            raise StorageError(
                f"What was read from {target.place} is not what {source.place} has, so it was removed there again. "
                "Please report this."
            )
    elif await target.read(digest_rows) != digest:
        raise Refused(f"{target.place} has other memories. Nothing was changed.")


async def copy_from_server(settings: Settings, file: Path, *, clock: Clock) -> None:
    """Add the memories that are on a server to a copy of the home's file, so that a backup holds them.

    Raises:
        StorageError: The server, or the file, can't be used.
    """
    async with (
        Database.open(str(settings.database_location), clock=clock) as server,
        Database.open(file) as copy,
    ):

        def write(there: Connection) -> None:
            clear_rows(there)
            server.read_blocking(lambda here: copy_rows(here, there))

        await copy.write(write)


async def rows_left(local: Database) -> int:
    """How many memories are in the home's file, where those that are used are on a server."""
    counts: Callable[[Connection], dict[str, int]] = count_rows
    return (await local.read(counts))["memories"]
