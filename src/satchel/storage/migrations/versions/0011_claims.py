"""Memory: which process is doing which piece of work (embedding, comparing, distilling).

A migration is a record of what was done: it imports nothing of the program, and is never changed once released. Times
are microseconds since 1970 in UTC, given by the program.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011_claims"
down_revision = "0010_arrays"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "memory_claims",
        sa.Column("work", sa.Text, primary_key=True),
        sa.Column("piece", sa.Text, primary_key=True),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("until", sa.BigInteger, nullable=False),
    )
