"""The tables of builds. A test compares them with the migrations. Times are microseconds since 1970 in UTC."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)

metadata = MetaData()

# SQLite numbers rows by itself only where the key is declared INTEGER.
_KEY = BigInteger().with_variant(Integer(), "sqlite")

builds = Table(
    "builds",
    metadata,
    Column("id", Text, primary_key=True),
    Column("user_id", Text, nullable=False),
    # Without a foreign key: the story of a build outlives a capability that was removed.
    Column("capability_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("kind", Text, nullable=False),
    # What the Builder's model is told, word for word.
    Column("task", Text, nullable=False),
    # The session that asked for it, or "".
    Column("asked_by", Text, nullable=False),
    # The session in which it is built.
    Column("session_id", Text, nullable=False),
    # "provider:model"; "" if the program that asked passed a model object and builds in its own process.
    Column("model", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    # How often a process began or continued it, and which one did last.
    Column("attempts", Integer, nullable=False),
    Column("executor", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    UniqueConstraint("session_id", name="uq_builds_session"),
    CheckConstraint("kind IN ('build', 'repair')", name="ck_builds_kind"),
    CheckConstraint(
        "status IN ('queued', 'running', 'active', 'proposed', 'failed')", name="ck_builds_status"
    ),
    Index("ix_builds_capability", "capability_id"),
    Index("ix_builds_asked_by", "asked_by"),
    Index("ix_builds_status", "status"),
)

build_messages = Table(
    "build_messages",
    metadata,
    # The order; never used twice, so that other processes notice by it that something arrived.
    Column("number", _KEY, primary_key=True, autoincrement=True),
    Column("id", Text, nullable=False),
    Column("build_id", Text, ForeignKey("builds.id", name="fk_build_messages_build"), nullable=False),
    Column("direction", Text, nullable=False),
    Column("type", Text, nullable=False),
    # JSON.
    Column("payload", Text, nullable=False),
    Column("read", Integer, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    UniqueConstraint("build_id", "id", name="uq_build_messages_id"),
    CheckConstraint("direction IN ('to_user', 'to_builder')", name="ck_build_messages_direction"),
    CheckConstraint(
        "type IN ('question', 'answer', 'progress', 'complete', 'error')", name="ck_build_messages_type"
    ),
    CheckConstraint("read IN (0, 1)", name="ck_build_messages_read"),
    sqlite_autoincrement=True,
)
