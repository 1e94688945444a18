"""Memory: hashes of what was forgotten are kept only where they are needed.

A guess could be tested against them. Those that are needed are keyed when a store is opened (`forgetting.rekey`),
because the key is not in the database.

A migration is a record of what was done: it imports nothing of the program, and is never changed once released.
"""

from __future__ import annotations

from alembic import op

revision = "0007_keyed_hashes"
down_revision = "0006_inbox"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # What has a place in its session is recognised by that.
    op.execute("UPDATE memory_tombstones SET words_hash = NULL WHERE place_hash IS NOT NULL")
    op.execute("UPDATE memory_changes SET before = '{}' WHERE action = 'forget'")
