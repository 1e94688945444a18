"""Token vectors beside the vectors of whole passages, and when an embedding model was put aside.

A migration is a record of what was done: it imports nothing of the program, and is never changed once
released.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005_token_vectors"
down_revision = "0004_lifecycle"
branch_labels = None
depends_on = None

EMPTIES = ("memory_vectors",)
"""Derived from the memories, and made again."""


def upgrade() -> None:
    # Apart from the vectors, which are all read when a store is opened; of these a search reads some hundreds.
    op.create_table(
        "memory_tokens",
        sa.Column("rid", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("model_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("tokens", sa.LargeBinary, nullable=False),
        sa.ForeignKeyConstraint(
            ["rid", "model_id"],
            ["memory_vectors.rid", "memory_vectors.model_id"],
            name="fk_memory_tokens_vectors",
            ondelete="CASCADE",
        ),
    )
    op.add_column("embedding_models", sa.Column("retired_at", sa.BigInteger))
    # What is there was made from longer passages and has no tokens. It is derived, and made again.
    op.execute("DELETE FROM memory_vectors")
