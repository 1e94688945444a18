"""A home as older programs left it."""

from __future__ import annotations

import sqlite3


def go_back_to_0016(database: sqlite3.Connection) -> None:
    """Take back what migrations have changed in a database since 0016; its vectors stay as they are."""
    database.execute("CREATE TABLE memory_compared (rid BIGINT PRIMARY KEY, compared_at BIGINT NOT NULL)")
    database.execute("DROP TABLE memory_pages")
    database.execute("DROP INDEX ix_memory_statements_every")
    database.execute("ALTER TABLE memory_statements DROP COLUMN every")
    database.execute("DROP INDEX ix_memories_discretion")
    for column in ("time", "discretion", "kept_from", "spheres"):
        database.execute(f"ALTER TABLE memories DROP COLUMN {column}")
    for column in ("changed", "proof"):
        database.execute(f"ALTER TABLE capabilities DROP COLUMN {column}")
    database.execute("DROP INDEX ix_session_log_entry")
    database.execute("ALTER TABLE session_log DROP COLUMN entry")
    for table in ("capability_removals", "session_entry", "session_folder"):
        database.execute(f"DROP TABLE {table}")
    database.execute("UPDATE alembic_version SET version_num = '0016_journal'")
