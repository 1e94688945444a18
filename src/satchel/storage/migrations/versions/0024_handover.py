"""Whether the writer of a conversation on a server gives it up to another one.

A file stays as it is. A migration is a record of what was done: it imports nothing of the program, and is never changed
once released.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0024_handover"
down_revision = "0023_conversation_files"
branch_labels = None
depends_on = None


def upgrade() -> None:
    if op.get_bind().dialect.name != "sqlite":
        op.add_column("conversations", sa.Column("handover", sa.Integer, nullable=False, server_default="0"))
