"""Memory: what kind of time a fact has, and what comes round every week or month.

A migration is a record of what was done: it imports nothing of the program, and is never changed once released.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021_times"
down_revision = "0020_discretion"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("memories", sa.Column("time", sa.Text))
    op.add_column("memory_statements", sa.Column("every", sa.Text))
    where = sa.text("every IS NOT NULL")
    op.create_index(
        "ix_memory_statements_every",
        "memory_statements",
        ["space_id", "every"],
        sqlite_where=where,
        postgresql_where=where,
    )
