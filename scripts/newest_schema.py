"""Writes `storage/newest.sql` and `storage/newest_postgresql.sql`, with which a new database begins.

Run it after adding a migration.
"""

from __future__ import annotations

from sqlalchemy import Connection

from satchel.builder import tables as builder
from satchel.capabilities import tables as capabilities
from satchel.memory.store.tables import metadata
from satchel.runtime import shared_browsers as browsers
from satchel.sessions import tables as sessions
from satchel.storage import HEAD, migrate, sqlite
from satchel.storage.dialect import create_statements, policy_statements
from satchel.storage.schema import NEWEST

NEWEST_POSTGRESQL = NEWEST.with_name("newest_postgresql.sql")
"""On a server are memory, conversations, capabilities and builds."""
_OF_USERS = (metadata, capabilities.metadata, builder.metadata)


def newest_sql() -> str:
    """The statements, each followed by a semicolon and, except for the last one, an empty line."""
    engine = sqlite.make_engine(sqlite.MEMORY, busy_timeout_ms=1000)
    with engine.connect() as connection, connection.begin():
        migrate.upgrade(connection, to=HEAD, place=sqlite.MEMORY)
        statements = _statements(connection)
    engine.dispose()
    statements.append(f"INSERT INTO alembic_version VALUES ('{HEAD}')")  # noqa: S608 - a constant of the program
    return ";\n\n".join(statements) + ";\n"


def _statements(connection: Connection) -> list[str]:
    derived = {
        row.name for row in connection.exec_driver_sql("PRAGMA main.table_list") if row.type == "shadow"
    }
    rows = connection.exec_driver_sql("SELECT name, sql FROM sqlite_master ORDER BY rowid")
    # SQLite makes the rest itself: indexes of primary keys, the tables below a virtual one, its own ones.
    return [sql for name, sql in rows if sql and name not in derived and not name.startswith("sqlite_")]


def newest_postgresql() -> str:
    """The same for PostgreSQL."""
    tables = [
        each
        for some in (*_OF_USERS, sessions.rows, sessions.metadata, browsers.rows)
        for each in create_statements(some)
    ]
    policies = [each for some in _OF_USERS for each in policy_statements(some)]
    return ";\n\n".join([*tables, *sessions.SERVER_ONLY, *policies]) + ";\n"


if __name__ == "__main__":
    NEWEST.write_text(newest_sql(), encoding="utf-8")
    NEWEST_POSTGRESQL.write_text(newest_postgresql(), encoding="utf-8")
