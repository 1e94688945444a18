"""Moves conversations between the files of a home and the rows of a server, with the files beside them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

import anyio.to_thread
from sqlalchemy import Connection, delete, insert, select

from satchel.clock import Clock
from satchel.sessions.files import FileLogs
from satchel.sessions.index import clear_index
from satchel.sessions.journal import Lanes
from satchel.sessions.rows import RowLogs
from satchel.sessions.tables import (
    conversation_costs,
    conversation_files,
    conversation_lines,
    conversation_parts,
    conversation_requests,
    conversation_uploads,
    conversations,
    session_client_place,
    session_inbox,
    session_log,
    session_passage,
    session_settled,
)
from satchel.storage import Database

NO_CONVERSATIONS: Final = hashlib.sha256(b"[]").hexdigest()
"""What `digest_conversations` returns where there are none."""
_BESIDE = ((session_inbox, "id"), (session_client_place, "key"))
"""What is in the database in any case and no index, and by what a row is known."""


async def take_in(root: Path, local: Database | None, server: Database, *, clock: Clock) -> list[str]:
    """Move the conversations in files to a server, and remove what the home's database has of them.

    Killed at any moment, it can be called again.

    Returns:
        The ids of those that stay files; see `RowLogs.take_in`.

    Raises:
        StorageError: Some can't be moved; they are still files.
    """
    files = FileLogs(root, clock=clock, lanes=Lanes())
    has_files = bool(await anyio.to_thread.run_sync(files.paths))
    # A call that was killed after the last file was removed left what the home's database has of them.
    if not has_files and (local is None or not (local.is_scrub_due or await local.read(_has_local))):
        return []
    if local is not None:
        await _copy_beside(local, server)
    left = await anyio.to_thread.run_sync(RowLogs(root, server, clock=clock, lanes=Lanes()).take_in, files)
    if local is not None:
        await local.expect_scrub()
        await local.write(_clear_local)
        await local.scrub()
    return left


async def copy_conversations(root: Path, server: Database, local: Database, *, clock: Clock) -> int:
    """Write the conversations on a server as files, and what waits for them into a home's database. Returns how many
    there are.

    Raises:
        StorageError: One can't be read or written. They are on the server as before.
    """
    await _copy_beside(server, local)
    return await anyio.to_thread.run_sync(RowLogs(root, server, clock=clock, lanes=Lanes()).write_out, root)


async def store_beside(root: Path, server: Database, *, clock: Clock) -> None:
    """See `RowLogs.store_beside`."""
    await anyio.to_thread.run_sync(RowLogs(root, server, clock=clock, lanes=Lanes()).store_beside)


def digest_conversations(connection: Connection) -> str:
    """What changes whenever a conversation on a server does."""
    state = select(conversations.c.session_id, conversations.c.generation, conversations.c.last_seq)
    rows = [*connection.execute(state.order_by(conversations.c.session_id)).all()]
    beside = select(conversation_files).order_by(conversation_files.c.session_id, conversation_files.c.name)
    rows += connection.execute(beside).all()
    return hashlib.sha256(repr([tuple(row) for row in rows]).encode()).hexdigest()


def clear_conversations(connection: Connection) -> None:
    """Remove all conversations from a server."""
    clear_index(connection)
    own = conversation_parts, conversation_files, conversation_costs, conversation_lines, conversations
    passing = conversation_requests, conversation_uploads
    for table in (*own, *passing, *(table for table, _ in _BESIDE)):
        connection.execute(delete(table))


def _has_local(connection: Connection) -> bool:
    tables = (session_log, session_passage, session_settled, *(table for table, _ in _BESIDE))
    return any(connection.execute(select(table).limit(1)).first() is not None for table in tables)


def _clear_local(connection: Connection) -> None:
    clear_index(connection)
    for table, _ in _BESIDE:
        connection.execute(delete(table))


async def _copy_beside(source: Database, target: Database) -> None:
    """Copy what the target doesn't have. It numbers the entries of inboxes anew, in their order."""
    for table, key in _BESIDE:
        query = select(table).order_by(table.c.number)
        rows = await source.read(lambda connection: connection.execute(query).mappings().all())  # noqa: B023
        own = [
            column.name for column in table.columns if table is not session_inbox or column.name != "number"
        ]

        def write(connection: Connection) -> None:
            there = set(connection.execute(select(table.c[key])).scalars())  # noqa: B023
            new = [{name: row[name] for name in own} for row in rows if row[key] not in there]  # noqa: B023
            if new:
                connection.execute(insert(table), new)  # noqa: B023

        if rows:
            await target.write(write)
