"""Builds of capabilities: the builds, the messages between them and the user, and the processes that run them.

A migration is a record of what was done: it imports nothing of the program, and is never changed once
released. Times are microseconds since 1970 in UTC, given by the program.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009_builds"
down_revision = "0008_capabilities"
branch_labels = None
depends_on = None

# SQLite numbers rows by itself only where the key is declared INTEGER.
_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "builds",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("user_id", sa.Text, nullable=False),
        sa.Column("capability_id", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("task", sa.Text, nullable=False),
        sa.Column("asked_by", sa.Text, nullable=False),
        sa.Column("session_id", sa.Text, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("executor", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("session_id", name="uq_builds_session"),
        sa.CheckConstraint("kind IN ('build', 'repair')", name="ck_builds_kind"),
        sa.CheckConstraint(
            "status IN ('queued', 'running', 'active', 'proposed', 'failed')", name="ck_builds_status"
        ),
    )
    op.create_index("ix_builds_capability", "builds", ["capability_id"])
    op.create_index("ix_builds_asked_by", "builds", ["asked_by"])
    op.create_index("ix_builds_status", "builds", ["status"])
    op.create_table(
        "build_messages",
        sa.Column("number", _KEY, primary_key=True, autoincrement=True),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("build_id", sa.Text, nullable=False),
        sa.Column("direction", sa.Text, nullable=False),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("payload", sa.Text, nullable=False),
        sa.Column("read", sa.Integer, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.ForeignKeyConstraint(["build_id"], ["builds.id"], name="fk_build_messages_build"),
        sa.UniqueConstraint("build_id", "id", name="uq_build_messages_id"),
        sa.CheckConstraint("direction IN ('to_user', 'to_builder')", name="ck_build_messages_direction"),
        sa.CheckConstraint(
            "type IN ('question', 'answer', 'progress', 'complete', 'error')", name="ck_build_messages_type"
        ),
        sa.CheckConstraint("read IN (0, 1)", name="ck_build_messages_read"),
        # Numbers are never given twice: other processes tell by them that something arrived.
        sqlite_autoincrement=True,
    )
    op.create_table(
        "executors",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("pid", sa.Integer, nullable=False),
        sa.Column("started_at", sa.BigInteger, nullable=False),
        sa.Column("seen_at", sa.BigInteger, nullable=False),
    )
