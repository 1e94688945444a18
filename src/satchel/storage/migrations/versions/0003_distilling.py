"""Distilling: how far each episode was read, what a window came to, and what background work cost.

A migration is a record of what was done: it imports nothing of the program, and is never changed once
released. Times are microseconds since 1970 in UTC, given by the program.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003_distilling"
down_revision = "0002_sessions"
branch_labels = None
depends_on = None

# SQLite numbers rows by itself only where the key is declared INTEGER.
_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    # An episode that is not in here, or not whole, is yet to be distilled.
    op.create_table(
        "memory_distilled",
        sa.Column(
            "rid",
            sa.BigInteger,
            sa.ForeignKey("memories.rid", name="fk_memory_distilled_memory", ondelete="CASCADE"),
            primary_key=True,
            autoincrement=False,
        ),
        sa.Column("chars", sa.BigInteger, nullable=False),
        sa.Column("distilled_at", sa.BigInteger, nullable=False),
    )
    # What windows came to, by counts and by Satchel's own words: none of the conversation's.
    op.create_table(
        "memory_distill_windows",
        sa.Column("id", _KEY, primary_key=True, autoincrement=True),
        sa.Column(
            "space_id",
            sa.BigInteger,
            sa.ForeignKey("memory_spaces.id", name="fk_memory_distill_windows_space", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("place", sa.Text, nullable=False),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("facts", sa.Integer, nullable=False),
        sa.Column("dropped", sa.Integer, nullable=False),
        sa.Column("error", sa.Text, nullable=False),
        sa.CheckConstraint(
            "outcome IN ('facts', 'nothing', 'failed', 'given_up')", name="ck_memory_distill_windows_outcome"
        ),
    )
    op.create_index("ix_memory_distill_windows_place", "memory_distill_windows", ["space_id", "place"])
    op.create_table(
        "memory_usage",
        sa.Column("id", _KEY, primary_key=True, autoincrement=True),
        sa.Column(
            "space_id",
            sa.BigInteger,
            sa.ForeignKey("memory_spaces.id", name="fk_memory_usage_space", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("day", sa.Text, nullable=False),
        sa.Column("purpose", sa.Text, nullable=False),
        sa.Column("provider", sa.Text, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("calls", sa.Integer, nullable=False),
        sa.Column("input_tokens", sa.BigInteger, nullable=False),
        sa.Column("output_tokens", sa.BigInteger, nullable=False),
        sa.Column("cache_read_tokens", sa.BigInteger, nullable=False),
        sa.Column("cache_write_tokens", sa.BigInteger, nullable=False),
        sa.Column("cost_usd", sa.Float(53)),
        sa.Column("estimated", sa.Integer, nullable=False),
        sa.UniqueConstraint("space_id", "day", "purpose", "provider", "model", name="uq_memory_usage"),
    )
