"""Conversations on a server: their lines as rows, who writes them, and the tables that a file has had all along.

A file stays as it is. A migration is a record of what was done: it imports nothing of the program, and is never changed
once released.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0022_conversations"
down_revision = "0021_times"
branch_labels = None
depends_on = None


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=False)


def _number(name: str, kind: type[sa.Integer] = sa.Integer) -> sa.Column[int]:
    return sa.Column(name, kind, nullable=False)


def _key(name: str, kind: type[sa.Text] | type[sa.Integer]) -> sa.Column[Any]:
    return sa.Column(name, kind, primary_key=True, nullable=False)


def upgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        return
    op.create_table(
        "conversations",
        _key("session_id", sa.Text),
        _text("name"),
        _number("generation"),
        _number("last_seq"),
        _text("writer"),
        _number("epoch"),
        _number("until", sa.BigInteger),
    )
    op.create_table(
        "conversation_lines",
        _key("session_id", sa.Text),
        _key("seq", sa.Integer),
        sa.Column("line", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "session_client_place",
        _key("key", sa.Text),
        _text("session_id"),
        _number("number", sa.BigInteger),
        _text("block"),
        _text("memory_ids"),
        _number("written_at", sa.BigInteger),
    )
    op.create_index("ix_session_client_place_session", "session_client_place", ["session_id", "number"])
    op.create_index("ix_session_client_place_written", "session_client_place", ["written_at"])
    op.create_table(
        "session_inbox",
        _key("number", sa.Integer),
        sa.Column("id", sa.Text, nullable=False, unique=True),
        _text("session_id"),
        _text("source"),
        _text("kind"),
        _text("text"),
        _number("untrusted"),
        _number("posted_at", sa.BigInteger),
    )
    op.create_index("ix_session_inbox_session", "session_inbox", ["session_id", "number"])
    op.create_table(
        "session_log",
        _key("name", sa.Text),
        _text("session_id"),
        *map(_number, ("inode", "mtime_ns", "size", "offset", "lines")),
        _text("summary"),
    )
    op.create_table(
        "session_passage",
        _key("id", sa.Integer),
        _text("name"),
        *map(_number, ("seq", "turn")),
        *map(_text, ("kind", "at", "text")),
    )
    op.create_index("ix_session_passage_name", "session_passage", ["name"])
    op.create_table(
        "session_settled",
        _key("name", sa.Text),
        *map(_number, ("inode", "mtime_ns", "size")),
    )
    # The planner's statistics quote what was said.
    for table, columns in {
        "conversations": ("session_id", "name", "writer"),
        "conversation_lines": ("session_id", "line"),
        "session_client_place": ("key", "session_id", "block", "memory_ids"),
        "session_inbox": ("id", "session_id", "source", "kind", "text"),
        "session_log": ("name", "session_id", "summary"),
        "session_passage": ("name", "kind", "at", "text"),
        "session_settled": ("name",),
    }.items():
        without = ", ".join(f'ALTER COLUMN "{name}" SET STATISTICS 0' for name in columns)
        op.execute(f"ALTER TABLE {table} {without}")
    op.execute("ALTER TABLE session_passage ADD COLUMN words TSVECTOR")
    op.execute("ALTER TABLE session_passage ALTER COLUMN words SET STATISTICS 0")
    op.execute("CREATE INDEX ix_session_passage_words ON session_passage USING gin (words)")
