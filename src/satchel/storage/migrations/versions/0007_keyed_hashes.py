"""Memory: no hash of what was forgotten stays that has no key.

A guess could be tested against it, and the key is not in the database. What has a place in its session is recognised by
that; what has none could come back from the same source.

A migration is a record of what was done: it imports nothing of the program, and is never changed once released.
"""

from __future__ import annotations

from alembic import op

revision = "0007_keyed_hashes"
down_revision = "0006_inbox"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("UPDATE memory_tombstones SET words_hash = NULL")
    op.execute("DELETE FROM memory_earlier_words")
    op.execute("UPDATE memory_changes SET before = '{}' WHERE action = 'forget'")
