"""Records that several machines share: JSON texts by name in a table of a PostgreSQL server, read when they changed."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

import psycopg
from psycopg.sql import SQL, Identifier
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from satchel.errors import ConfigError, StorageError, StorageUnreachable

_CONNECT: Final = {"autocommit": True, "connect_timeout": 10, "tcp_user_timeout": 10_000}
"""A server that is cut off is given up after ten seconds (tcp_user_timeout is in milliseconds)."""
_MADE_BY_ANOTHER: Final = (
    psycopg.errors.UniqueViolation,
    psycopg.errors.DuplicateObject,
    psycopg.errors.DuplicateTable,
)
"""What CREATE TABLE IF NOT EXISTS says of a table that somebody else makes at the same time."""
_COLUMNS: Final = "(name TEXT PRIMARY KEY, value TEXT, version BIGINT NOT NULL UNIQUE)"


class Records:
    """A table of records. It is made with the first change; threads may use one object at the same time."""

    def __init__(self, url: str, table: str) -> None:
        """Nothing is connected before something is asked.

        Raises:
            ConfigError: The URL can't be read.
        """
        self._connection: psycopg.Connection | None = None
        try:
            address = make_url(url).set(drivername="postgresql")
        except (ArgumentError, ValueError):
            raise ConfigError("The URL of the database can't be read.") from None
        self._url = address.render_as_string(hide_password=False)
        self._table = Identifier(table)
        self._lock = threading.Lock()
        self._known: dict[str, Any] = {}
        self._version = 0

    def __del__(self) -> None:
        """Close the connection with the object, which needs no closing of its own then."""
        if self._connection is not None:
            self._connection.close()

    def read(self) -> tuple[int, Mapping[str, Any]]:
        """All records as they are now, which nobody may change, and a number that is another one when they changed.

        Raises:
            StorageUnreachable: The server doesn't answer.
            StorageError: It refused.
        """
        with self._lock:
            try:
                self._newest()
            except StorageUnreachable:
                self._newest()  # an old connection ends with a restart of the server
            return self._version, self._known

    def change(self, change: Callable[[dict[str, Any]], object]) -> None:
        """Let a function change what is there now, alone among all machines. Errors as in `read`, and its own."""
        self.read()
        with self._lock, self._connected() as connection:
            run = SQL("CREATE TABLE IF NOT EXISTS {} " + _COLUMNS).format(self._table)
            with suppress(*_MADE_BY_ANOTHER):
                connection.execute(run)
            with connection.transaction():
                connection.execute(SQL("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE").format(self._table))
                before = self._newest()
                content = json.loads(json.dumps(before))
                change(content)
                version = self._version
                for name in sorted(before.keys() | content.keys()):
                    if before.get(name) != (value := content.get(name)):
                        # One that is removed stays as a name, so that others see that it is gone.
                        version += 1
                        connection.execute(
                            SQL(
                                "INSERT INTO {} AS old VALUES (%s, %s, %s) ON CONFLICT (name) "
                                "DO UPDATE SET value = excluded.value, version = excluded.version"
                            ).format(self._table),
                            (name, None if value is None else json.dumps(value), version),
                        )
            self._newest()

    def drop(self) -> None:
        """Remove the table. Errors as in `read`."""
        with self._lock, self._connected() as connection:
            connection.execute(SQL("DROP TABLE IF EXISTS {}").format(self._table))
            self._known, self._version = {}, 0

    def _newest(self) -> dict[str, Any]:
        asked = SQL("SELECT name, value, version FROM {} WHERE version > %s").format(self._table)
        with self._connected() as connection:
            try:
                rows = connection.execute(asked, (self._version,)).fetchall()
            except psycopg.errors.UndefinedTable:
                rows = []
        if rows:
            changed = {name: None if value is None else json.loads(value) for name, value, _ in rows}
            self._known = {
                name: value for name, value in (self._known | changed).items() if value is not None
            }
            self._version = max(version for *_, version in rows)
        return self._known

    @contextmanager
    def _connected(self) -> Iterator[psycopg.Connection]:
        try:
            if self._connection is None or self._connection.closed:
                self._connection = psycopg.connect(self._url, **_CONNECT)  # type: ignore[arg-type]
            yield self._connection
        except psycopg.Error as error:
            words = (error.diag.message_primary or str(error).strip().partition("\n")[0]).rstrip(".")
            if self._connection is None or self._connection.closed:
                raise StorageUnreachable(f"The database server can't be reached ({words}).") from error
            raise StorageError(f"The database server refused: {words}.") from error
