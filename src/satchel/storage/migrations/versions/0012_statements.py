"""Memory: pins, and what was read out of memories for the profile and the agenda.

A migration is a record of what was done: it imports nothing of the program, and is never changed once released.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012_statements"
down_revision = "0011_claims"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("memories", sa.Column("pinned", sa.Integer, nullable=False, server_default=sa.text("0")))
    _partial("ix_memories_pinned", "memories", ["space_id"], "pinned = 1")
    _partial("ix_memories_importance", "memories", ["space_id", "importance", "said_at"], "kind = 'fact'")
    op.create_table(
        "memory_readings",
        sa.Column(
            "rid",
            sa.BigInteger,
            sa.ForeignKey("memories.rid", name="fk_memory_readings_memory", ondelete="CASCADE"),
            primary_key=True,
            autoincrement=False,
        ),
        sa.Column("version", sa.Integer, nullable=False),
    )
    op.create_table(
        "memory_statements",
        sa.Column(
            "rid",
            sa.BigInteger,
            sa.ForeignKey("memories.rid", name="fk_memory_statements_memory", ondelete="CASCADE"),
            primary_key=True,
            autoincrement=False,
        ),
        sa.Column("place", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("space_id", sa.BigInteger, nullable=False),
        sa.Column("start", sa.Integer, nullable=False),
        sa.Column("length", sa.Integer, nullable=False),
        sa.Column("lasting", sa.Float(53)),
        sa.Column("first_day", sa.Integer),
        sa.Column("last_day", sa.Integer),
        sa.Column("yearly", sa.Integer),
        sa.Column("change", sa.Text),
    )
    for name, columns, where in (
        ("lasting", ["space_id", "lasting"], "lasting IS NOT NULL"),
        ("days", ["space_id", "last_day"], "last_day IS NOT NULL"),
        ("yearly", ["space_id", "yearly"], "yearly IS NOT NULL"),
        ("change", ["space_id"], "change IS NOT NULL"),
    ):
        _partial(f"ix_memory_statements_{name}", "memory_statements", columns, where)


def _partial(name: str, table: str, columns: list[str], where: str) -> None:
    op.create_index(name, table, columns, sqlite_where=sa.text(where), postgresql_where=sa.text(where))
