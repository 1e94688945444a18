"""Memory: the versions of the standing page.

A migration is a record of what was done: it imports nothing of the program, and is never changed once released.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019_pages"
down_revision = "0018_relations"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "memory_pages",
        sa.Column(
            "id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True, autoincrement=True
        ),
        sa.Column("space_id", sa.BigInteger, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("written_at", sa.BigInteger, nullable=False),
        sa.Column("by", sa.Text, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("changed", sa.BigInteger, nullable=False),
        sa.Column("lines", sa.Text, nullable=False),
        sa.ForeignKeyConstraint(
            ["space_id"], ["memory_spaces.id"], name="fk_memory_pages_space", ondelete="CASCADE"
        ),
        sa.UniqueConstraint("space_id", "number", name="uq_memory_pages_number"),
        sa.CheckConstraint("\"by\" IN ('model', 'user')", name="ck_memory_pages_by"),
        sa.CheckConstraint("state IN ('used', 'proposed')", name="ck_memory_pages_state"),
        sqlite_autoincrement=True,
    )
