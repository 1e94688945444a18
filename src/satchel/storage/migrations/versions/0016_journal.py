"""Memory: how far the journal, the copy of a space outside of the database, has got.

A migration is a record of what was done: it imports nothing of the program, and is never changed once released.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016_journal"
down_revision = "0015_client_places"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("memory_spaces", sa.Column("journal", sa.Text))
