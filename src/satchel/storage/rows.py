"""Copies rows between two databases as they are."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, LargeBinary, Table, func, insert, select, text

from satchel.errors import StorageError
from satchel.plain import storable


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedRows:
    """The rows of a table that belong to something.

    Attributes:
        owner: The column with the id of what they belong to.
        numbered: The column whose numbers the target gives out anew, in their order; "" if it gives out none.
    """

    table: Table
    owner: str
    numbered: str = ""

    def copy(self, source: Connection, target: Connection, ids: Collection[str]) -> None:
        """Write the rows of these owners into a table that has none of theirs, and compare them.

        Raises:
            StorageError: They are not the same there.
        """
        columns = [column for column in self.table.c if column.name != self.numbered]
        sorts = [self.table.c[self.numbered]] if self.numbered else columns
        query = (
            select(*columns)
            .where(self.table.c[self.owner].in_(ids))
            .order_by(*(column for column in sorts if not isinstance(column.type, LargeBinary)))
        )
        rows = _plain(source.execute(query).mappings())
        if rows:
            target.execute(insert(self.table), rows)
        if _plain(target.execute(query).mappings()) != rows:
            raise StorageError(f"Rows of {self.table.name} are not the same after they were copied.")


def _plain(rows: Iterable[Any]) -> list[dict[str, Any]]:
    return [{name: _value(value) for name, value in row.items()} for row in rows]


def _value(value: Any) -> Any:
    if isinstance(value, str):
        return storable(value)  # an older version kept what only a file takes
    return bytes(value) if isinstance(value, memoryview) else value


def last_number(connection: Connection, table: Table) -> int:
    """The last number that the database gave out for a table; 0 if it gives out none."""
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


def start_after(connection: Connection, table: Table, number: int) -> None:
    """Let no number up to this one be given out again."""
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


def _counts(table: Table) -> str | None:
    """The column whose numbers the database gives out; None if there is none."""
    column = table.autoincrement_column
    return None if column is None else column.name
