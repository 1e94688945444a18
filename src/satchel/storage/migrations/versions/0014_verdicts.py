"""Memory: the verdicts of the gate that selects what is read for facts.

A migration is a record of what was done: it imports nothing of the program, and is never changed once released.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014_verdicts"
down_revision = "0013_cues"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("memory_distilled", sa.Column("worth_by", sa.Text, nullable=False, server_default=""))
