"""Copies the rows of memory between two databases as they are, compares them, and removes them where they were."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

from sqlalchemy import Connection, Table, delete, func, insert, select

from satchel.memory.store.tables import metadata, spaces
from satchel.storage.rows import last_number, start_after

_AT_ONCE: Final = 500
"""Rows that are in memory at a time; each may have a vector of 1.5 kB."""


def has_rows(connection: Connection) -> bool:
    """Whether somebody's memories are there."""
    return connection.execute(select(spaces.c.id).limit(1)).first() is not None


def count_rows(connection: Connection) -> dict[str, int]:
    """The number of rows of each table."""
    return {
        table.name: connection.execute(select(func.count()).select_from(table)).scalar_one()
        for table in metadata.sorted_tables
    }


def copy_rows(source: Connection, target: Connection) -> None:
    """Write all rows into tables that have none. Numbers that were given out once are not given out again."""
    for table in metadata.sorted_tables:
        for rows in _rows(source, table):
            target.execute(insert(table), [dict(row._mapping) for row in rows])
        start_after(target, table, last_number(source, table))


def digest_rows(connection: Connection) -> str:
    """A hash of every value of every row, the same on each database."""
    found = hashlib.sha256()
    for table in metadata.sorted_tables:
        found.update(table.name.encode())
        for rows in _rows(connection, table):
            for row in rows:
                found.update(repr(tuple(map(_plain, row))).encode())
    return found.hexdigest()


def clear_rows(connection: Connection) -> None:
    """Delete all rows."""
    for table in reversed(metadata.sorted_tables):
        connection.execute(delete(table))


def _plain(value: Any) -> Any:
    # SQLite keeps a whole number in a column of fractions as it was given.
    return (
        float(value) if isinstance(value, int) else bytes(value) if isinstance(value, memoryview) else value
    )


def _rows(connection: Connection, table: Table) -> Iterator[Sequence[Any]]:
    query = select(table).order_by(*table.primary_key.columns)
    yield from connection.execute(query, execution_options={"yield_per": _AT_ONCE}).partitions()
