"""Memory: what is held back, from whom, and to which spheres of a life a memory belongs.

A migration is a record of what was done: it imports nothing of the program, and is never changed once released.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020_discretion"
down_revision = "0019_pages"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("memories", sa.Column("discretion", sa.Text, nullable=False, server_default="open"))
    op.add_column("memories", sa.Column("kept_from", sa.Text, nullable=False, server_default=""))
    op.add_column("memories", sa.Column("spheres", sa.Text, nullable=False, server_default=""))
    where = sa.text("discretion <> 'open'")
    op.create_index(
        "ix_memories_discretion", "memories", ["space_id"], sqlite_where=where, postgresql_where=where
    )
