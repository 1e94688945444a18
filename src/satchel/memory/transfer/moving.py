"""Copies the rows of memory between two databases as they are, compares them, and removes them where they were."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

from sqlalchemy import Connection, Table, delete, func, insert, select, text

from satchel.memory.store.tables import metadata, spaces

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
        _start_after(target, table, _last_number(source, table))


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


def _counts(table: Table) -> str | None:
    """The column whose numbers the database gives out; None if there is none."""
    column = table.autoincrement_column
    return None if column is None else column.name


def _last_number(connection: Connection, table: Table) -> int:
    name = _counts(table)
    if name is None:
        return 0
    if connection.dialect.name == "sqlite":
        query, values = "SELECT seq FROM sqlite_sequence WHERE name = :table", {"table": table.name}
    else:
        query = "SELECT pg_sequence_last_value(CAST(pg_get_serial_sequence(:table, :column) AS regclass))"
        values = {"table": table.name, "column": name}
    given = connection.execute(text(query), values).scalar()
    return given or connection.execute(select(func.max(table.c[name]))).scalar() or 0


def _start_after(connection: Connection, table: Table, number: int) -> None:
    name = _counts(table)
    if name is None or number == 0:
        return
    if connection.dialect.name == "sqlite":
        # Of tables that it doesn't number so, SQLite ignores it.
        values: dict[str, Any] = {"table": table.name, "number": number}
        connection.execute(text("DELETE FROM sqlite_sequence WHERE name = :table"), {"table": table.name})
        connection.execute(text("INSERT INTO sqlite_sequence VALUES (:table, :number)"), values)
    else:
        connection.execute(select(func.setval(func.pg_get_serial_sequence(table.name, name), number)))
