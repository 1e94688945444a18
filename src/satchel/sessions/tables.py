"""The derived index over the logs: everything in it can be made again from the files, and is when it is
missing.

The full-text table `session_fts` has no metadata here, since SQLAlchemy knows no virtual tables; the
migration
`0002_sessions` makes it over `session_passage`, with triggers that keep both alike.
"""

from __future__ import annotations

from sqlalchemy import Column, Integer, MetaData, Table, Text

__all__ = ["metadata", "session_log", "session_passage", "session_settled"]

metadata = MetaData()

session_log = Table(
    "session_log",
    metadata,
    # The path below the sessions folder, ASCII.
    Column("name", Text, primary_key=True),
    Column("session_id", Text, nullable=False),
    # The state of the file when it was read: another state means that it must be read (on).
    Column("inode", Integer, nullable=False),
    Column("mtime_ns", Integer, nullable=False),
    Column("size", Integer, nullable=False),
    # How far it was read.
    Column("offset", Integer, nullable=False),
    Column("lines", Integer, nullable=False),
    # `Summary` as JSON.
    Column("summary", Text, nullable=False),
)

session_passage = Table(
    "session_passage",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", Text, nullable=False, index=True),
    Column("seq", Integer, nullable=False),
    Column("turn", Integer, nullable=False),
    Column("kind", Text, nullable=False),
    Column("at", Text, nullable=False),
    Column("text", Text, nullable=False),
)

# Up to which state of a log what was said in it is known to be in memory (see `SessionStore.unsettled`).
session_settled = Table(
    "session_settled",
    metadata,
    Column("name", Text, primary_key=True),
    Column("inode", Integer, nullable=False),
    Column("mtime_ns", Integer, nullable=False),
    Column("size", Integer, nullable=False),
)
