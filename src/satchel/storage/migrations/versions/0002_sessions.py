"""Sessions: the derived index over their logs, and the full-text index over what was said.

A migration is a record of what was done: it imports nothing of the program, and is never changed once
released. Everything in these tables can be made again from the files.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002_sessions"
down_revision = "0001_memory"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "session_log",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("session_id", sa.Text, nullable=False),
        sa.Column("inode", sa.Integer, nullable=False),
        sa.Column("mtime_ns", sa.Integer, nullable=False),
        sa.Column("size", sa.Integer, nullable=False),
        sa.Column("offset", sa.Integer, nullable=False),
        sa.Column("lines", sa.Integer, nullable=False),
        sa.Column("summary", sa.Text, nullable=False),
    )
    op.create_table(
        "session_settled",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("inode", sa.Integer, nullable=False),
        sa.Column("mtime_ns", sa.Integer, nullable=False),
        sa.Column("size", sa.Integer, nullable=False),
    )
    op.create_table(
        "session_passage",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("seq", sa.Integer, nullable=False),
        sa.Column("turn", sa.Integer, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("at", sa.Text, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
    )
    op.create_index("ix_session_passage_name", "session_passage", ["name"])
    op.execute(
        "CREATE VIRTUAL TABLE session_fts USING fts5(text, content='session_passage', content_rowid='id', "
        "tokenize='unicode61 remove_diacritics 2')"
    )
    op.execute(
        "CREATE TRIGGER session_passage_insert AFTER INSERT ON session_passage BEGIN "
        "INSERT INTO session_fts (rowid, text) VALUES (new.id, new.text); END"
    )
    op.execute(
        "CREATE TRIGGER session_passage_delete AFTER DELETE ON session_passage BEGIN "
        "INSERT INTO session_fts (session_fts, rowid, text) VALUES ('delete', old.id, old.text); END"
    )
