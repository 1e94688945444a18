"""Reads a database file without SQLAlchemy: for hooks of other agents, which have no time to load it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from satchel.errors import StorageError
from satchel.storage.schema import HEAD

Rows: TypeAlias = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]
"""Runs a query with its values, and returns its rows."""

_STEPS = 10_000
"""Instructions of SQLite's machine between two looks at the clock: under a millisecond."""


@contextmanager
def reading(path: Path, *, busy_timeout_ms: int, is_late: Callable[[], bool]) -> Iterator[Rows]:
    """Open a database to read it, in one transaction, and change nothing. `is_late` is asked while a query runs; True
    ends it.

    Raises:
        StorageError: There is no database, it is another program's or has another schema, it is locked, or it took too
            long.
    """
    connection = None
    try:
        connection = sqlite3.connect(f"file:{_escaped(path)}?mode=ro", uri=True, isolation_level=None)
        connection.execute(f"PRAGMA busy_timeout={busy_timeout_ms}")
        connection.set_progress_handler(is_late, _STEPS)
        connection.execute("BEGIN")
        row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        if row is None or row[0] != HEAD:
            raise StorageError(f"{path} has another schema than this program; open it with `satchel` once.")
        execute = connection.execute

        def rows(query: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
            return execute(query, values).fetchall()

        yield rows
    except sqlite3.Error as error:
        raise StorageError(f"{path} could not be read: {error}.") from error
    finally:
        if connection is not None:
            connection.close()


def _escaped(path: Path) -> str:
    """The path in a URI: urllib takes three milliseconds to load."""
    return str(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
