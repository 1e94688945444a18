"""Sessions: places in conversations whose history a client holds.

A migration is a record of what was done: it imports nothing of the program, and is never changed once released.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015_client_places"
down_revision = "0014_verdicts"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "session_client_place",
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("session_id", sa.Text, nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("block", sa.Text, nullable=False),
        sa.Column("memory_ids", sa.Text, nullable=False),
        sa.Column("written_at", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_session_client_place_session", "session_client_place", ["session_id", "number"])
    op.create_index("ix_session_client_place_written", "session_client_place", ["written_at"])
