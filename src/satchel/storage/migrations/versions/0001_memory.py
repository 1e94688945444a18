"""Memory: memories with their tags, words, vectors and edges, and what was forgotten.

A migration is a record of what was done: it imports nothing of the program, and is never changed once
released. Times are microseconds since 1970 in UTC, given by the program.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001_memory"
down_revision = None
branch_labels = None
depends_on = None

# SQLite numbers rows by itself only where the key is declared INTEGER.
_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "memory_spaces",
        sa.Column("id", _KEY, primary_key=True, autoincrement=True),
        sa.Column("user_id", sa.Text, nullable=False),
        sa.Column("scope", sa.Text, nullable=False),
        sa.Column("changed", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("user_id", "scope", name="uq_memory_spaces_user_scope"),
    )
    op.create_table(
        "memories",
        sa.Column("rid", _KEY, primary_key=True, autoincrement=True),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column(
            "space_id",
            sa.BigInteger,
            sa.ForeignKey("memory_spaces.id", name="fk_memories_space", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
        sa.Column("content_hash", sa.Text, nullable=False),
        sa.Column("tier", sa.Text, nullable=False),
        sa.Column("memory_type", sa.Text, nullable=False),
        sa.Column("importance", sa.Integer, nullable=False),
        sa.Column("priority", sa.Float(53), nullable=False),
        sa.Column("decay_rate", sa.Float(53), nullable=False),
        sa.Column("speaker", sa.Text, nullable=False),
        sa.Column("said_at", sa.BigInteger, nullable=False),
        sa.Column("said_offset_min", sa.Integer, nullable=False),
        sa.Column("valid_from", sa.BigInteger),
        sa.Column("valid_to", sa.BigInteger),
        sa.Column("source_session", sa.Text),
        sa.Column("source_turn", sa.BigInteger),
        sa.Column("source_position", sa.BigInteger),
        sa.Column("source_quote", sa.Text),
        sa.Column("trust", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("changed", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("space_id", "id", name="uq_memories_space_id"),
        sa.CheckConstraint("kind IN ('episode', 'fact', 'summary')", name="ck_memories_kind"),
        sa.CheckConstraint("length(content) > 0", name="ck_memories_content"),
        sa.CheckConstraint("tier IN ('short_term', 'long_term')", name="ck_memories_tier"),
        sa.CheckConstraint(
            "memory_type IN ('general', 'decision', 'insight', 'fact', 'preference', 'project', "
            "'conversation')",
            name="ck_memories_type",
        ),
        sa.CheckConstraint("importance BETWEEN 1 AND 5", name="ck_memories_importance"),
        sa.CheckConstraint("priority BETWEEN 0 AND 1", name="ck_memories_priority"),
        sa.CheckConstraint("decay_rate >= 0", name="ck_memories_decay_rate"),
        sa.CheckConstraint("trust IN ('user', 'agent', 'outside')", name="ck_memories_trust"),
        # Ids are never given twice: other processes tell by them what they have read.
        sqlite_autoincrement=True,
    )
    op.create_index("ix_memories_changed", "memories", ["space_id", "changed"])
    op.create_index("ix_memories_source", "memories", ["space_id", "source_session", "source_turn"])
    # Apart from the memory, so that using one never rewrites its words.
    op.create_table(
        "memory_uses",
        sa.Column(
            "rid",
            sa.BigInteger,
            sa.ForeignKey("memories.rid", name="fk_memory_uses_memory", ondelete="CASCADE"),
            primary_key=True,
            autoincrement=False,
        ),
        sa.Column("last_accessed", sa.BigInteger, nullable=False),
        sa.Column("access_count", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "memory_tags",
        sa.Column(
            "rid",
            sa.BigInteger,
            sa.ForeignKey("memories.rid", name="fk_memory_tags_memory", ondelete="CASCADE"),
            primary_key=True,
            autoincrement=False,
        ),
        sa.Column("tag", sa.Text, primary_key=True),
        sa.Column("position", sa.Integer, nullable=False),
    )
    op.create_index("ix_memory_tags_tag", "memory_tags", ["tag"])
    op.create_table(
        "memory_words",
        sa.Column(
            "rid",
            sa.BigInteger,
            sa.ForeignKey("memories.rid", name="fk_memory_words_memory", ondelete="CASCADE"),
            primary_key=True,
            autoincrement=False,
        ),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("words", sa.Integer, nullable=False),
        sa.Column("features", sa.Integer, nullable=False),
        sa.Column("stems", sa.LargeBinary, nullable=False),
    )
    op.create_index("ix_memory_words_version", "memory_words", ["version"])
    op.create_table(
        "memory_edges",
        sa.Column(
            "source_rid",
            sa.BigInteger,
            sa.ForeignKey("memories.rid", name="fk_memory_edges_source", ondelete="CASCADE"),
            primary_key=True,
            autoincrement=False,
        ),
        sa.Column(
            "target_rid",
            sa.BigInteger,
            sa.ForeignKey("memories.rid", name="fk_memory_edges_target", ondelete="CASCADE"),
            primary_key=True,
            autoincrement=False,
        ),
        sa.Column("relation", sa.Text, primary_key=True),
        sa.Column("weight", sa.Float(53), nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.CheckConstraint("source_rid <> target_rid", name="ck_memory_edges_self"),
        sa.CheckConstraint("length(relation) > 0", name="ck_memory_edges_relation"),
    )
    op.create_index("ix_memory_edges_target", "memory_edges", ["target_rid", "relation"])
    op.create_table(
        "embedding_models",
        sa.Column("id", _KEY, primary_key=True, autoincrement=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("dimension", sa.Integer, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("examples_hash", sa.Text),
        sa.Column("examples_vectors", sa.LargeBinary),
        sa.UniqueConstraint("name", name="uq_embedding_models_name"),
        sa.CheckConstraint("dimension > 0", name="ck_embedding_models_dimension"),
        sa.CheckConstraint("state IN ('building', 'active', 'retired')", name="ck_embedding_models_state"),
    )
    op.create_index(
        "uq_embedding_models_active",
        "embedding_models",
        ["state"],
        unique=True,
        sqlite_where=sa.text("state = 'active'"),
        postgresql_where=sa.text("state = 'active'"),
    )
    op.create_table(
        "memory_vectors",
        sa.Column(
            "rid",
            sa.BigInteger,
            sa.ForeignKey("memories.rid", name="fk_memory_vectors_memory", ondelete="CASCADE"),
            primary_key=True,
            autoincrement=False,
        ),
        sa.Column(
            "model_id",
            sa.BigInteger,
            sa.ForeignKey("embedding_models.id", name="fk_memory_vectors_model", ondelete="CASCADE"),
            primary_key=True,
            autoincrement=False,
        ),
        sa.Column("space_id", sa.BigInteger, nullable=False),
        sa.Column("changed", sa.BigInteger, nullable=False),
        sa.Column("vectors", sa.LargeBinary, nullable=False),
    )
    op.create_index("ix_memory_vectors_changed", "memory_vectors", ["space_id", "model_id", "changed"])
    op.create_table(
        "memory_tombstones",
        sa.Column("rid", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column(
            "space_id",
            sa.BigInteger,
            sa.ForeignKey("memory_spaces.id", name="fk_memory_tombstones_space", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("place_hash", sa.Text),
        sa.Column("words_hash", sa.Text),
        sa.Column("forgotten_at", sa.BigInteger, nullable=False),
        sa.Column("changed", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_memory_tombstones_changed", "memory_tombstones", ["space_id", "changed"])
    op.create_index("ix_memory_tombstones_place", "memory_tombstones", ["space_id", "place_hash"])
    op.create_index("ix_memory_tombstones_words", "memory_tombstones", ["space_id", "words_hash"])
