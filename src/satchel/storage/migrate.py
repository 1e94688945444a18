"""Brings a database to the newest schema: backup first, one transaction, rows counted before and after.

Only imported when there is something to migrate: Alembic costs a quarter of a second of CPU.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, func, select, table

from satchel.errors import StorageError

__all__ = ["alembic_config", "upgrade"]

_ONE_AT_A_TIME = threading.Lock()

MIGRATIONS = Path(__file__).parent / "migrations"


def alembic_config(connection: Connection) -> Config:
    """Alembic's configuration for the one tree of migrations, bound to an open connection."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    # The separator of the list of version folders; without it Alembic warns and guesses.
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


def _row_counts(connection: Connection) -> Mapping[str, int]:
    """Rows of every ordinary table; indexes, virtual tables and their shadows are derived and do not
    count.
    """
    tables = [
        row.name
        for row in connection.exec_driver_sql("PRAGMA main.table_list")
        if row.type == "table" and not row.name.startswith(("sqlite_", "alembic_"))
    ]
    return {
        name: connection.execute(select(func.count()).select_from(table(name))).scalar_one()
        for name in tables
    }


def _emptied(connection: Connection, config: Config) -> frozenset[str]:
    """Tables whose rows a migration that is still to come says it drops: derived ones, made again (`EMPTIES` in it)."""
    current = MigrationContext.configure(connection).get_current_revision()
    found: set[str] = set()
    for script in ScriptDirectory.from_config(config).walk_revisions():
        if script.revision == current:
            break
        found.update(getattr(script.module, "EMPTIES", ()))
    return frozenset(found)


def upgrade(connection: Connection, *, to: str, place: str) -> None:
    """Apply what is missing, inside the transaction that the caller began; the caller commits.

    Args:
        connection: In a transaction that holds the write lock, foreign keys off.
        to: The revision to reach.
        place: The database as the user knows it.

    Raises:
        StorageError: A table lost rows or a foreign key points nowhere. The caller rolls back.
    """
    config = alembic_config(connection)
    emptied = _emptied(connection, config)
    before = _row_counts(connection)
    # Alembic keeps the migration that it is at in globals: two databases of one process are upgraded in turn.
    with _ONE_AT_A_TIME:
        command.upgrade(config, to)
    after = _row_counts(connection)
    lost = {
        name: count - after.get(name, 0)
        for name, count in before.items()
        if after.get(name, 0) < count and name not in emptied
    }
    if lost:
        tables = ", ".join(f"{name} {count}" for name, count in sorted(lost.items()))
        raise StorageError(
            f"Upgrading the database {place} to {to} would have lost rows ({tables}), so nothing was "
            "changed. "
            "Please report this; the program that wrote the database still opens it."
        )
    if connection.exec_driver_sql("PRAGMA foreign_key_check").first() is not None:
        raise StorageError(
            f"Upgrading the database {place} to {to} would have left references that point nowhere, so "
            "nothing was "
            "changed. Please report this; the program that wrote the database still opens it."
        )
