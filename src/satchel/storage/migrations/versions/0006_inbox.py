"""Sessions: what was posted into them and waits for their next turn.

A migration is a record of what was done: it imports nothing of the program, and is never changed once
released. Times are microseconds since 1970 in UTC, given by the program.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006_inbox"
down_revision = "0005_token_vectors"
branch_labels = None
depends_on = None

# SQLite numbers rows by itself only where the key is declared INTEGER.
_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "session_inbox",
        sa.Column("number", _KEY, primary_key=True, autoincrement=True),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("session_id", sa.Text, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("untrusted", sa.Integer, nullable=False),
        sa.Column("posted_at", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("id", name="uq_session_inbox_id"),
        sa.CheckConstraint("untrusted IN (0, 1)", name="ck_session_inbox_untrusted"),
        # Numbers are never given twice: other processes tell by them that something arrived.
        sqlite_autoincrement=True,
    )
    op.create_index("ix_session_inbox_session", "session_inbox", ["session_id", "number"])
