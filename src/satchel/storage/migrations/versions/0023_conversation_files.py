"""What is beside a conversation on a server, and what it cost on each day.

A file stays as it is. A migration is a record of what was done: it imports nothing of the program, and is never changed
once released.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0023_conversation_files"
down_revision = "0022_conversations"
branch_labels = None
depends_on = None


def _key(name: str, kind: type[sa.Text] | type[sa.Integer] = sa.Text) -> sa.Column[Any]:
    return sa.Column(name, kind, primary_key=True, nullable=False, autoincrement=False)


def upgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        return
    op.create_table(
        "conversation_files",
        _key("session_id"),
        _key("name"),
        sa.Column("sha256", sa.Text, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "conversation_parts",
        _key("session_id"),
        _key("name"),
        _key("part", sa.Integer),
        sa.Column("content", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "conversation_costs", _key("day"), _key("session_id"), sa.Column("cost", sa.Float, nullable=False)
    )
    # The planner's statistics quote what was said.
    for table, columns in {
        "conversation_files": ("session_id", "name", "sha256"),
        "conversation_parts": ("session_id", "name", "content"),
        "conversation_costs": ("day", "session_id"),
    }.items():
        without = ", ".join(f'ALTER COLUMN "{name}" SET STATISTICS 0' for name in columns)
        op.execute(f"ALTER TABLE {table} {without}")
