"""The tables of memory. A test compares them with the result of the migrations."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    text,
)

metadata = MetaData()

# SQLite assigns keys automatically only to columns that are declared as INTEGER.
_KEY = BigInteger().with_variant(Integer(), "sqlite")


def _owner(column: str, target: str, name: str, *, is_key: bool = True) -> Column[int]:
    """The column that names the row of another table with which a row is deleted."""
    reference = ForeignKey(target, name=name, ondelete="CASCADE")
    return Column(column, BigInteger, reference, primary_key=is_key, autoincrement=False, nullable=False)


def _memory(name: str) -> Column[int]:
    return _owner("rid", "memories.rid", name)


def _space(name: str, *, is_key: bool = False) -> Column[int]:
    return _owner("space_id", "memory_spaces.id", name, is_key=is_key)


def _vectors(name: str) -> Table:
    return Table(
        name,
        metadata,
        _memory(f"fk_{name}_memory"),
        _owner("model_id", "embedding_models.id", f"fk_{name}_model"),
        Column("space_id", BigInteger, nullable=False),
        Column("changed", BigInteger, nullable=False),
        Column("vectors", LargeBinary, nullable=False),
        Index(f"ix_{name}_changed", "space_id", "model_id", "changed"),
    )


# One user's memories in one scope. `changed` counts the changes in it. Rows in other tables have the number of their
# last change, so a process finds what others changed by selecting higher numbers.
spaces = Table(
    "memory_spaces",
    metadata,
    Column("id", _KEY, primary_key=True, autoincrement=True),
    Column("user_id", Text, nullable=False),
    Column("scope", Text, nullable=False),
    Column("changed", BigInteger, nullable=False),
    # The number of chat requests: the unit of decay if it doesn't go by days.
    Column("requests", BigInteger, nullable=False, server_default=text("0")),
    # Not used any more: the stamp of a file that held its arrays.
    Column("arrays", Text),
    # How far its journal has got; see `memory.journal`.
    Column("journal", Text),
    UniqueConstraint("user_id", "scope", name="uq_memory_spaces_user_scope"),
)

# Times are microseconds since 1970 in UTC; `said_offset_min` is the local offset when it was said.
memories = Table(
    "memories",
    metadata,
    Column("rid", _KEY, primary_key=True, autoincrement=True),
    Column("id", Text, nullable=False),
    _space("fk_memories_space"),
    Column("kind", Text, nullable=False),
    Column("content", Text, nullable=False),
    Column("content_hash", Text, nullable=False),
    Column("tier", Text, nullable=False),
    Column("memory_type", Text, nullable=False),
    Column("importance", Integer, nullable=False),
    Column("priority", Float(53), nullable=False),
    Column("decay_rate", Float(53), nullable=False),
    Column("speaker", Text, nullable=False),
    Column("said_at", BigInteger, nullable=False),
    Column("said_offset_min", Integer, nullable=False),
    Column("valid_from", BigInteger),
    Column("valid_to", BigInteger),
    Column("source_session", Text),
    Column("source_turn", BigInteger),
    Column("source_position", BigInteger),
    Column("source_quote", Text),
    Column("trust", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("changed", BigInteger, nullable=False),
    # The number of chat requests when it was stored.
    Column("request", BigInteger, nullable=False, server_default=text("0")),
    # Whether the user wants it in the profile: 0 or 1.
    Column("pinned", Integer, nullable=False, server_default=text("0")),
    # What kind of time a fact has and its days, as JSON; see `records.FactTime`.
    Column("time", Text),
    # Whether it may be shown unasked; see `discretion`. In whose words and why is in `kept_from`.
    Column("discretion", Text, nullable=False, server_default="open"),
    Column("kept_from", Text, nullable=False, server_default=""),
    # Names of spheres with blanks between them; "" where nobody said which. See `spheres`.
    Column("spheres", Text, nullable=False, server_default=""),
    UniqueConstraint("space_id", "id", name="uq_memories_space_id"),
    CheckConstraint("kind IN ('episode', 'fact', 'summary')", name="ck_memories_kind"),
    CheckConstraint("length(content) > 0", name="ck_memories_content"),
    CheckConstraint("tier IN ('short_term', 'long_term')", name="ck_memories_tier"),
    CheckConstraint(
        "memory_type IN ('general', 'decision', 'insight', 'fact', 'preference', 'project', 'conversation')",
        name="ck_memories_type",
    ),
    CheckConstraint("importance BETWEEN 1 AND 5", name="ck_memories_importance"),
    CheckConstraint("priority BETWEEN 0 AND 1", name="ck_memories_priority"),
    CheckConstraint("decay_rate >= 0", name="ck_memories_decay_rate"),
    CheckConstraint("trust IN ('user', 'agent', 'outside')", name="ck_memories_trust"),
    Index("ix_memories_changed", "space_id", "changed"),
    Index("ix_memories_source", "space_id", "source_session", "source_turn"),
    # `postgresql_where` is only in the migration, as below.
    Index("ix_memories_valid_to", "space_id", "valid_to", sqlite_where=text("valid_to IS NOT NULL")),
    Index("ix_memories_pinned", "space_id", sqlite_where=text("pinned = 1")),
    Index("ix_memories_discretion", "space_id", sqlite_where=text("discretion <> 'open'")),
    Index("ix_memories_importance", "space_id", "importance", "said_at", sqlite_where=text("kind = 'fact'")),
    sqlite_autoincrement=True,
)

# A separate table, so that using a memory doesn't rewrite its text.
uses = Table(
    "memory_uses",
    metadata,
    _memory("fk_memory_uses_memory"),
    Column("last_accessed", BigInteger, nullable=False),
    Column("access_count", BigInteger, nullable=False),
    Column("request", BigInteger, nullable=False, server_default=text("0")),
)

tags = Table(
    "memory_tags",
    metadata,
    _memory("fk_memory_tags_memory"),
    Column("tag", Text, primary_key=True),
    Column("position", Integer, nullable=False),
    Index("ix_memory_tags_tag", "tag"),
)

# The lexical index; see `lexicon.WordList`.
words = Table(
    "memory_words",
    metadata,
    _memory("fk_memory_words_memory"),
    Column("version", Integer, nullable=False),
    Column("words", Integer, nullable=False),
    Column("features", Integer, nullable=False),
    Column("stems", LargeBinary, nullable=False),
    Index("ix_memory_words_version", "version"),
)

# `derived_from` leads from a fact to its sources.
edges = Table(
    "memory_edges",
    metadata,
    _owner("source_rid", "memories.rid", "fk_memory_edges_source"),
    _owner("target_rid", "memories.rid", "fk_memory_edges_target"),
    Column("relation", Text, primary_key=True),
    Column("weight", Float(53), nullable=False),
    Column("created_at", BigInteger, nullable=False),
    CheckConstraint("source_rid <> target_rid", name="ck_memory_edges_self"),
    CheckConstraint("length(relation) > 0", name="ck_memory_edges_relation"),
    Index("ix_memory_edges_target", "target_rid", "relation"),
)

models = Table(
    "embedding_models",
    metadata,
    Column("id", _KEY, primary_key=True, autoincrement=True),
    Column("name", Text, nullable=False),
    Column("dimension", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    # The vectors of `relevance.examples`, float32, and the hash of those examples.
    Column("examples_hash", Text),
    Column("examples_vectors", LargeBinary),
    # When another model replaced it; its vectors are deleted a week later.
    Column("retired_at", BigInteger),
    UniqueConstraint("name", name="uq_embedding_models_name"),
    CheckConstraint("dimension > 0", name="ck_embedding_models_dimension"),
    CheckConstraint("state IN ('building', 'active', 'retired')", name="ck_embedding_models_state"),
    Index(
        "uq_embedding_models_active",
        "state",
        unique=True,
        # `postgresql_where` is only in the migration: here it would load that dialect at every start (75 ms).
        sqlite_where=text("state = 'active'"),
    ),
)

# A row for each memory and model, with the vectors of its passages; see `candidates.arrays.to_stored`.
vectors = _vectors("memory_vectors")

# The situations in which a memory matters, in order. They are searched by meaning and shown nowhere.
cues = Table(
    "memory_cues",
    metadata,
    _memory("fk_memory_cues_memory"),
    Column("place", Integer, primary_key=True, autoincrement=False),
    Column("cue", Text, nullable=False),
    CheckConstraint("length(cue) > 0", name="ck_memory_cues_cue"),
)

# Like `vectors`, of the cues of a memory. A separate table, so that they are never taken for its text.
cue_vectors = _vectors("memory_cue_vectors")

# A row for each row of `vectors` if the model has token vectors; see `tokens.pack`. A separate table, because all
# vectors are read when a store is opened, but a search reads only a few hundred rows of tokens.
tokens = Table(
    "memory_tokens",
    metadata,
    Column("rid", BigInteger, primary_key=True, autoincrement=False),
    Column("model_id", BigInteger, primary_key=True, autoincrement=False),
    Column("tokens", LargeBinary, nullable=False),
    ForeignKeyConstraint(
        ["rid", "model_id"],
        ["memory_vectors.rid", "memory_vectors.model_id"],
        name="fk_memory_tokens_vectors",
        ondelete="CASCADE",
    ),
)

# Forgotten memories, as keyed hashes of the place in the session and of the words in the session.
tombstones = Table(
    "memory_tombstones",
    metadata,
    Column("rid", BigInteger, primary_key=True, autoincrement=False),
    _space("fk_memory_tombstones_space"),
    Column("place_hash", Text),
    Column("words_hash", Text),
    Column("forgotten_at", BigInteger, nullable=False),
    Column("changed", BigInteger, nullable=False),
    Index("ix_memory_tombstones_changed", "space_id", "changed"),
    Index("ix_memory_tombstones_place", "space_id", "place_hash"),
    Index("ix_memory_tombstones_words", "space_id", "words_hash"),
)

# The number of characters of an episode that were distilled. An episode without a row, or with fewer characters than it
# has, is pending. `worth_by` is the version of the gate that found it worth reading, or "".
distilled = Table(
    "memory_distilled",
    metadata,
    _memory("fk_memory_distilled_memory"),
    Column("chars", BigInteger, nullable=False),
    Column("distilled_at", BigInteger, nullable=False),
    Column("worth_by", Text, nullable=False, server_default=""),
)

# The results of distilling windows. They contain no text of the conversation, so forgetting needn't search them.
# `place` identifies where the window begins.
distill_windows = Table(
    "memory_distill_windows",
    metadata,
    Column("id", _KEY, primary_key=True, autoincrement=True),
    _space("fk_memory_distill_windows_space"),
    Column("at", BigInteger, nullable=False),
    Column("place", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("facts", Integer, nullable=False),
    Column("dropped", Integer, nullable=False),
    Column("error", Text, nullable=False),
    CheckConstraint(
        "outcome IN ('facts', 'nothing', 'failed', 'given_up')", name="ck_memory_distill_windows_outcome"
    ),
    Index("ix_memory_distill_windows_place", "space_id", "place"),
)

# The cost of memory's own calls of language models, by local day.
usage = Table(
    "memory_usage",
    metadata,
    Column("id", _KEY, primary_key=True, autoincrement=True),
    _space("fk_memory_usage_space"),
    Column("day", Text, nullable=False),
    Column("purpose", Text, nullable=False),
    Column("provider", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("calls", Integer, nullable=False),
    Column("input_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    Column("cache_read_tokens", BigInteger, nullable=False),
    Column("cache_write_tokens", BigInteger, nullable=False),
    Column("cost_usd", Float(53)),
    Column("estimated", Integer, nullable=False),
    UniqueConstraint("space_id", "day", "purpose", "provider", "model", name="uq_memory_usage"),
)

# The history: every change of a memory after it was stored, with the fields before and after as JSON. When a memory is
# forgotten, its rows are deleted, and one row with a keyed hash records that.
changes = Table(
    "memory_changes",
    metadata,
    Column("id", _KEY, primary_key=True, autoincrement=True),
    _space("fk_memory_changes_space"),
    Column("memory_id", Text, nullable=False),
    Column("other_id", Text),
    Column("action", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("who", Text, nullable=False),
    Column("why", Text, nullable=False),
    Column("before", Text, nullable=False),
    Column("after", Text, nullable=False),
    Column("undoes", BigInteger),
    Index("ix_memory_changes_memory", "space_id", "memory_id"),
    Index("ix_memory_changes_other", "space_id", "other_id"),
    sqlite_autoincrement=True,
)

# Memories that were read for statements, by which version of the reading; what is not in here is yet to be read.
readings = Table(
    "memory_readings",
    metadata,
    _memory("fk_memory_readings_memory"),
    Column("version", Integer, nullable=False),
)

# What was read: a part of the memory's words and how likely it lasts, in log-odds; or the days that it speaks of, as
# ordinals, or what comes round (`every` has its days as `statement_rows.rounds_of` writes them; `yearly` is month and
# day of what comes every year), and whether it cancels or moves something.
statements = Table(
    "memory_statements",
    metadata,
    _memory("fk_memory_statements_memory"),
    Column("place", Integer, primary_key=True, autoincrement=False),
    Column("space_id", BigInteger, nullable=False),
    Column("start", Integer, nullable=False),
    Column("length", Integer, nullable=False),
    Column("lasting", Float(53)),
    Column("first_day", Integer),
    Column("last_day", Integer),
    Column("yearly", Integer),
    Column("change", Text),
    Column("every", Text),
    Index("ix_memory_statements_lasting", "space_id", "lasting", sqlite_where=text("lasting IS NOT NULL")),
    Index("ix_memory_statements_days", "space_id", "last_day", sqlite_where=text("last_day IS NOT NULL")),
    Index("ix_memory_statements_yearly", "space_id", "yearly", sqlite_where=text("yearly IS NOT NULL")),
    Index("ix_memory_statements_change", "space_id", sqlite_where=text("change IS NOT NULL")),
    Index("ix_memory_statements_every", "space_id", "every", sqlite_where=text("every IS NOT NULL")),
)

# The texts that forgotten memories had before they were edited, as hashes like those in `tombstones`.
earlier_words = Table(
    "memory_earlier_words",
    metadata,
    _space("fk_memory_earlier_words_space", is_key=True),
    Column("words_hash", Text, primary_key=True),
)

# The pieces of work that processes have claimed, and until when; see `claims.Claims`.
claims = Table(
    "memory_claims",
    metadata,
    Column("work", Text, primary_key=True),
    Column("piece", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("until", BigInteger, nullable=False),
)

# The versions of the standing page; see `page.records`. `lines` is JSON; `changed` is the number of the space's last
# change that the writer had seen.
pages = Table(
    "memory_pages",
    metadata,
    Column("id", _KEY, primary_key=True, autoincrement=True),
    _space("fk_memory_pages_space"),
    Column("number", Integer, nullable=False),
    Column("written_at", BigInteger, nullable=False),
    Column("by", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("changed", BigInteger, nullable=False),
    Column("lines", Text, nullable=False),
    UniqueConstraint("space_id", "number", name="uq_memory_pages_number"),
    CheckConstraint("\"by\" IN ('model', 'user')", name="ck_memory_pages_by"),
    CheckConstraint("state IN ('used', 'proposed')", name="ck_memory_pages_state"),
    sqlite_autoincrement=True,
)
