"""Memory: the stamp of the file that the arrays of a space are kept in.

A migration is a record of what was done: it imports nothing of the program, and is never changed once released.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010_arrays"
down_revision = "0009_builds"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("memory_spaces", sa.Column("arrays", sa.Text()))
