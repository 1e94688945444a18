"""Upgrades a database to the newest schema in one transaction, and compares row counts before and after.

The caller makes a backup first. This module is imported only if there is something to migrate, because Alembic costs a
quarter of a second of CPU.
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

_ONE_AT_A_TIME = threading.Lock()

MIGRATIONS = Path(__file__).parent / "migrations"


def alembic_config(connection: Connection) -> Config:
    """Alembic's configuration for the one tree of migrations, bound to an open connection."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    # The separator in the list of version folders; without it, Alembic warns and guesses.
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


def _row_counts(connection: Connection) -> Mapping[str, int]:
    """The number of rows in each ordinary table; virtual tables and their shadow tables are derived and left out."""
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
    """Derived tables whose rows a pending migration says it deletes (`EMPTIES` in the migration); they are rebuilt."""
    current = MigrationContext.configure(connection).get_current_revision()
    found: set[str] = set()
    for script in ScriptDirectory.from_config(config).walk_revisions():
        if script.revision == current:
            break
        found.update(getattr(script.module, "EMPTIES", ()))
    return frozenset(found)


def upgrade(connection: Connection, *, to: str, place: str) -> None:
    """Apply the missing migrations in the caller's transaction; the caller commits. The transaction holds the write
    lock, with foreign keys off.

    Raises:
        StorageError: A table lost rows, or a foreign key has no target. The caller rolls back.
    """
    config = alembic_config(connection)
    emptied = _emptied(connection, config)
    before = _row_counts(connection)
    # Alembic keeps the current migration in globals, so databases of one process are upgraded one after the other.
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
            f"Upgrading the database {place} to {to} would have left dangling references, so "
            "nothing was "
            "changed. Please report this; the program that wrote the database still opens it."
        )


def upgrade_server(connection: Connection, *, to: str) -> None:
    """The same for a database on a server, whose backups are its administrator's."""
    with _ONE_AT_A_TIME:
        command.upgrade(alembic_config(connection), to)
