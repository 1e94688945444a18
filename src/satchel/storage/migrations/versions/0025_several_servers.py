"""What several servers with one database tell each other: requests, log-ins of browsers, files that were sent.

A file stays as it is. A migration is a record of what was done: it imports nothing of the program, and is never changed
once released.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025_several_servers"
down_revision = "0024_handover"
branch_labels = None
depends_on = None


def upgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        return
    op.add_column("conversations", sa.Column("chosen", sa.Text, nullable=False, server_default=""))
    op.create_table(
        "conversation_requests",
        sa.Column("number", sa.BigInteger, primary_key=True, nullable=False),
        sa.Column("session_id", sa.Text, nullable=False),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("last_seq", sa.Integer, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("content", sa.LargeBinary),
        sa.Column("answer", sa.LargeBinary),
    )
    op.create_table(
        "browser_logins",
        sa.Column("digest", sa.Text, primary_key=True, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("token", sa.Text, nullable=False),
        sa.Column("until", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "conversation_uploads",
        sa.Column("sha256", sa.Text, primary_key=True, nullable=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
    )
    # The planner's statistics quote what is in columns.
    for table, columns in {
        "conversations": ("chosen",),
        "conversation_requests": ("session_id", "content", "answer"),
        "conversation_uploads": ("sha256", "content"),
        "browser_logins": ("digest", "kind", "token"),
    }.items():
        without = ", ".join(f'ALTER COLUMN "{name}" SET STATISTICS 0' for name in columns)
        op.execute(f"ALTER TABLE {table} {without}")
