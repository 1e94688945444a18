"""The life of a memory: its changes, what it was compared with, and the requests that decay may count.

A migration is a record of what was done: it imports nothing of the program, and is never changed once
released. Times are microseconds since 1970 in UTC, given by the program.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004_lifecycle"
down_revision = "0003_distilling"
branch_labels = None
depends_on = None

# SQLite numbers rows by itself only where the key is declared INTEGER.
_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    for table, column in (
        ("memory_spaces", "requests"),
        ("memories", "request"),
        ("memory_uses", "request"),
    ):
        op.add_column(table, sa.Column(column, sa.BigInteger, nullable=False, server_default=sa.text("0")))
    op.create_index(
        "ix_memories_valid_to",
        "memories",
        ["space_id", "valid_to"],
        sqlite_where=sa.text("valid_to IS NOT NULL"),
        postgresql_where=sa.text("valid_to IS NOT NULL"),
    )
    op.create_table(
        "memory_changes",
        sa.Column("id", _KEY, primary_key=True, autoincrement=True),
        sa.Column(
            "space_id",
            sa.BigInteger,
            sa.ForeignKey("memory_spaces.id", name="fk_memory_changes_space", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("memory_id", sa.Text, nullable=False),
        sa.Column("other_id", sa.Text),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("who", sa.Text, nullable=False),
        sa.Column("why", sa.Text, nullable=False),
        sa.Column("before", sa.Text, nullable=False),
        sa.Column("after", sa.Text, nullable=False),
        sa.Column("undoes", sa.BigInteger),
        # Ids are never given twice: an id that was told stands for one change for ever.
        sqlite_autoincrement=True,
    )
    op.create_index("ix_memory_changes_memory", "memory_changes", ["space_id", "memory_id"])
    op.create_index("ix_memory_changes_other", "memory_changes", ["space_id", "other_id"])
    # A fact that is not in here is yet to be compared with those that were there before it.
    op.create_table(
        "memory_compared",
        sa.Column(
            "rid",
            sa.BigInteger,
            sa.ForeignKey("memories.rid", name="fk_memory_compared_memory", ondelete="CASCADE"),
            primary_key=True,
            autoincrement=False,
        ),
        sa.Column("compared_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "memory_earlier_words",
        sa.Column(
            "space_id",
            sa.BigInteger,
            sa.ForeignKey("memory_spaces.id", name="fk_memory_earlier_words_space", ondelete="CASCADE"),
            primary_key=True,
            autoincrement=False,
        ),
        sa.Column("words_hash", sa.Text, primary_key=True),
    )
