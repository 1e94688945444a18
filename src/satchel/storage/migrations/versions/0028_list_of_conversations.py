"""The list of conversations as rows. They are derived: the first look at the list fills them.

A migration is a record of what was done: it imports nothing of the program, and is never changed once released.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0028_list_of_conversations"
down_revision = "0027_capabilities_on_server"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("session_log", sa.Column("entry", sa.Text, nullable=False, server_default=""))
    op.create_index("ix_session_log_entry", "session_log", ["entry"])
    op.create_table(
        "session_entry",
        sa.Column("entry", sa.Text, primary_key=True, nullable=False),
        sa.Column("place", sa.Text, nullable=False),
        sa.Column("pinned", sa.Integer, nullable=False),
        sa.Column("last_at", sa.BigInteger, nullable=False),
        sa.Column("spent_day", sa.Text, nullable=False),
    )
    op.create_index("ix_session_entry_place", "session_entry", ["place", "pinned", "last_at", "entry"])
    op.create_index("ix_session_entry_spent_day", "session_entry", ["spent_day"])
    op.create_table(
        "session_folder",
        sa.Column("name", sa.Text, primary_key=True, nullable=False),
        sa.Column("mtime_ns", sa.BigInteger, nullable=False),
    )
    if op.get_bind().dialect.name == "sqlite":
        return
    # The planner's statistics quote what is in columns.
    for table, columns in {
        "session_log": ("entry",),
        "session_entry": ("entry", "place", "spent_day"),
        "session_folder": ("name",),
    }.items():
        without = ", ".join(f'ALTER COLUMN "{name}" SET STATISTICS 0' for name in columns)
        op.execute(f"ALTER TABLE {table} {without}")
