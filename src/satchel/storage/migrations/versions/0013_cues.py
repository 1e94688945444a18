"""Memory: the cues of facts, the situations in which they matter, and their vectors.

A migration is a record of what was done: it imports nothing of the program, and is never changed once released.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013_cues"
down_revision = "0012_statements"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "memory_cues",
        _memory("fk_memory_cues_memory"),
        sa.Column("place", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("cue", sa.Text, nullable=False),
        sa.CheckConstraint("length(cue) > 0", name="ck_memory_cues_cue"),
    )
    op.create_table(
        "memory_cue_vectors",
        _memory("fk_memory_cue_vectors_memory"),
        sa.Column(
            "model_id",
            sa.BigInteger,
            sa.ForeignKey("embedding_models.id", name="fk_memory_cue_vectors_model", ondelete="CASCADE"),
            primary_key=True,
            autoincrement=False,
        ),
        sa.Column("space_id", sa.BigInteger, nullable=False),
        sa.Column("changed", sa.BigInteger, nullable=False),
        sa.Column("vectors", sa.LargeBinary, nullable=False),
    )
    op.create_index(
        "ix_memory_cue_vectors_changed", "memory_cue_vectors", ["space_id", "model_id", "changed"]
    )


def _memory(name: str) -> sa.Column[int]:
    return sa.Column(
        "rid",
        sa.BigInteger,
        sa.ForeignKey("memories.rid", name=name, ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    )
