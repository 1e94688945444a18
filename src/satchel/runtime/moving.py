"""Moves the memories and conversations of a home from its files to a PostgreSQL server, and back."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
from anyio.to_thread import run_sync
from sqlalchemy import Connection

from satchel.capabilities.catalogue import Catalogue
from satchel.capabilities.joining import count_capabilities
from satchel.clock import Clock, SystemClock
from satchel.config import Settings, set_value
from satchel.config.home import replace_file
from satchel.errors import Refused, StorageError, UsageError
from satchel.memory.text.hashing import KEY_FILE, WordHasher
from satchel.memory.transfer.moving import clear_rows, copy_rows, count_rows, digest_rows, has_rows
from satchel.runtime.agreed import Agreed
from satchel.runtime.made import clear_made, copy_made, digest_made, has_made, take_in_made
from satchel.runtime.memory_work import LOCK
from satchel.runtime.person_homes import leave_server
from satchel.runtime.serving import HOOKS_FILE, SERVE_FILE, serving
from satchel.sandbox.detached import ask_to_end, is_working
from satchel.sessions.moving import (
    NO_CONVERSATIONS,
    clear_conversations,
    copy_conversations,
    digest_conversations,
    store_beside,
    take_in,
)
from satchel.storage import Database, is_server
from satchel.storage.copies import is_in_use

_ENDS_S: Final = 20.0
"""How long the process that does memory's work may take to end."""
_LOOK_S: Final = 0.1
_BEGUN: Final = "moving.json"
"""In the home while a move is under way: where to, the server, and the hash of what is moved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """What was moved.

    Attributes:
        rows: The number of rows of each table that has any; empty if a killed move had copied them before.
        conversations, capabilities: How many were moved by this call.
        left: Ids of conversations that stay files, because another process or another machine has them.
        source: Where they were: a path, or a URL without its password. They are not there any more.
        is_clean: Whether what deleted rows leave at the source is gone too. If not, moving again tries it again.
    """

    rows: dict[str, int]
    conversations: int
    capabilities: int
    left: tuple[str, ...]
    source: str
    target: str
    is_clean: bool


async def check_place(settings: Settings, where: str) -> str:
    """Check that the setting `database` can become this, without changing anything.

    Returns:
        What the user loses sight of, or "".

    Raises:
        ConfigError: The URL is wrong.
        Refused: The home has memories, which only `migrate` takes along.
        StorageError: The server can't be reached, or has tables of another program there.
    """
    if not is_server(where):  # a server that is gone must not keep anybody from using the file
        return _NOT_SHOWN if is_server(settings.database_location) else ""
    from satchel.storage.postgresql import look  # noqa: PLC0415 - the driver takes 0.3 s of CPU

    look(where)
    file = settings.home_database
    if not is_server(settings.database_location) and file.exists():
        async with Database.open(file) as database:
            if await database.read(has_rows):
                raise Refused("The home has memories. `satchel migrate-database --to URL` moves them there.")
    return ""


async def migrate(settings: Settings, to: str) -> Moved:
    """Move every row of memory and all conversations, compare them, change the setting `database`, and remove what was
    copied.

    What describes the folders of the home stays in its file. The process that does memory's work is ended. `to` is
    "postgresql://…", or "sqlite" for the home's file.

    Raises:
        UsageError: `to` is neither, or something besides the settings file says where the memories are.
        Refused: They are there already, there are others, or another process uses the home. Nothing was changed.
        StorageError: A row is not the same on both sides, or a database failed.
    """
    if not is_server(to) and to != "sqlite":
        raise UsageError("--to takes postgresql://… or sqlite.")
    marker = settings.home / _BEGUN
    begun = json.loads(marker.read_text(encoding="utf-8")) if marker.exists() else {}
    if begun and begun["to"] != to:
        raise Refused("Another move was begun and not finished. Start that one again first.")
    location, file = settings.database_location, settings.home_database
    has_switched = is_server(location) == is_server(to)
    if has_switched and not begun:
        raise Refused("The memories are in a file already." if to == "sqlite" else _ON_A_SERVER)
    if settings.environ.get("SATCHEL_DATABASE"):
        raise UsageError(
            "SATCHEL_DATABASE says where the memories are. Unset it, so that the settings file does."
        )
    if file != settings.home / "satchel.db":
        raise UsageError(f"The setting `database` names {file}. Only satchel.db in the home can be moved.")
    if is_in_use(file) and not await _end_work(settings.home, file):
        raise Refused(_who_uses(settings))
    url = begun["server"] if begun else to if is_server(to) else str(location)
    async with AsyncExitStack() as stack:
        local = await stack.enter_async_context(Database.open(file, clock=SystemClock()))
        server = await stack.enter_async_context(Database.open(url, clock=SystemClock()))
        source, target = (local, server) if is_server(to) else (server, local)
        await server.bind(WordHasher(settings.home / KEY_FILE).mark)
        root, clock = settings.home / "sessions", SystemClock()
        rows = {name: count for name, count in (await source.read(count_rows)).items() if count}
        capabilities = await source.read(count_capabilities)
        digest = begun.get("digest") if has_switched else await source.read(digest_rows)
        logs, count = begun.get("logs", ""), 0
        if not has_switched:
            if not begun and await target.read(has_rows):
                raise Refused(f"{target.place} has other memories. Nothing was changed.")
            if target is local:
                await store_beside(root, server, clock=clock)
                await take_in_made(settings, local, server)  # of a move that was killed
                await (await _catalogue(settings, server)).version()  # for the folders
            logs = "" if target is server else await server.read(_digest)
            replace_file(marker, json.dumps({"to": to, "server": url, "digest": digest, "logs": logs}))
            if target is local:
                count = await copy_conversations(root, server, local, clock=clock)
            await target.write(lambda there: _copy(source, there), durable=True)
            if target is local:
                await target.write(lambda there: copy_made(source, there), durable=True)
            if await target.read(digest_rows) != digest:
                await target.write(clear_rows)
                raise StorageError(
                    f"{source.place} changed while it was copied. Nothing was moved; try again."
                )

        def leave(here: Connection) -> None:
            if has_rows(here) and digest_rows(here) != digest:
                raise Refused(f"{source.place} changed after it was copied. Nothing was removed there.")
            if target is local and _digest(here) not in (logs, NO_CONVERSATIONS):
                raise Refused(
                    f"A conversation or a capability in {source.place} changed after it was copied. Nothing was "
                    "removed."
                )
            if not has_switched:
                set_value(settings.config_path, "database", to if is_server(to) else "")
            clear_rows(here)
            if target is local:
                clear_conversations(here)
                clear_made(here)

        if target is local and not has_switched:
            await run_sync(leave_server, settings)
            await Agreed(settings, server).look()
        left: list[str] = []
        await source.expect_scrub()
        await source.write(leave, durable=True)
        if target is server:
            count = sum(1 for _ in root.glob("*/*.jsonl"))
            left = await take_in(root, local, server, clock=clock)
            await take_in_made(settings, local, server)
        is_clean = await source.scrub()
        if is_clean:
            if target is local:
                await server.release()
            marker.unlink()
        return Moved(
            rows=rows,
            conversations=count - len(left),
            capabilities=capabilities,
            left=tuple(left),
            source=source.place,
            target=target.place,
            is_clean=is_clean,
        )


_NOT_SHOWN: Final = (
    "Memories, conversations and people on the server stay there and are not shown. To move them, set the URL again, "
    "and use `satchel migrate-database --to sqlite`."
)
_ON_A_SERVER: Final = "The memories are on a server already; move them to sqlite first."


async def _end_work(home: Path, file: Path) -> bool:
    """End the process that does memory's work. Returns whether nobody uses the home's file then."""
    with anyio.move_on_after(_ENDS_S if ask_to_end(home, LOCK) else 0):
        while await run_sync(is_in_use, file):  # noqa: ASYNC110 - another process
            await anyio.sleep(_LOOK_S)
    return not is_in_use(file)


def _who_uses(settings: Settings) -> str:
    if is_working(settings.home, LOCK):
        return (
            "The process that does memory's work in the background uses the home, and could not be ended. It ends by "
            f"itself after {settings.memory.worker_idle_s:g} s without work; try again then. Nothing was changed."
        )
    known = (serving(settings.home, file=file) for file in (SERVE_FILE, HOOKS_FILE))
    who = next(
        (f"Process {other.pid} ({other.url})" for other in known if other is not None), "Another process"
    )
    return f"{who} uses {settings.home_database}. End it, and try again. Nothing was changed."


def _digest(connection: Connection) -> str:
    conversations = digest_conversations(connection)
    return f"{conversations} {digest_made(connection)}" if has_made(connection) else conversations


async def _catalogue(settings: Settings, server: Database) -> Catalogue:
    seal = WordHasher(settings.home / KEY_FILE)
    return await Catalogue.open(server, home=settings.home, clock=server.clock, seal=seal)


def _copy(source: Database, there: Connection) -> None:
    if has_rows(there):
        clear_rows(there)  # of a move that was killed
    source.read_blocking(lambda here: copy_rows(here, there))


async def copy_from_server(settings: Settings, file: Path, sessions: Path, *, clock: Clock) -> None:
    """Add the memories, capabilities and builds that are on a server to a copy of the home's file, and write the
    conversations that are there to a folder, so that a backup holds them.

    Raises:
        StorageError: The server, or the file, can't be used, or the memories are another home's.
    """
    async with (
        Database.open(str(settings.database_location), clock=clock) as server,
        Database.open(file) as copy,
    ):
        await server.bind(WordHasher(settings.home / KEY_FILE).mark)
        await copy.write(lambda there: _copy(server, there))
        await copy.write(lambda there: copy_made(server, there))
        await store_beside(settings.home / "sessions", server, clock=clock)
        await copy_conversations(sessions, server, copy, clock=clock)


async def rows_left(local: Database) -> int:
    """How many memories are in the home's file, where those that are used are on a server."""
    return (await local.read(count_rows))["memories"]
