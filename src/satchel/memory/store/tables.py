"""The tables of memory, as far as statements need them. What a database holds them to (indexes, conditions, defaults,
what is deleted with what) is written down once, by the migrations: `storage/newest.sql` has all of it.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    ForeignKey,
    ForeignKeyConstraint,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
)

metadata = MetaData()


def _owner(column: str, target: str, *, is_key: bool = True) -> Column[int]:
    """The column that names the row of another table with which a row is deleted."""
    return Column(column, BigInteger, ForeignKey(target), primary_key=is_key)


def _memory() -> Column[int]:
    return _owner("rid", "memories.rid")


def _space(*, is_key: bool = False) -> Column[int]:
    return _owner("space_id", "memory_spaces.id", is_key=is_key)


def _vectors(name: str) -> Table:
    return Table(
        name,
        metadata,
        _memory(),
        _owner("model_id", "embedding_models.id"),
        Column("space_id", BigInteger),
        Column("changed", BigInteger),
        Column("vectors", LargeBinary),
    )


# One user's memories in one scope. `changed` counts the changes in it. Rows in other tables have the number of their
# last change, so a process finds what others changed by selecting higher numbers.
spaces = Table(
    "memory_spaces",
    metadata,
    Column("id", BigInteger, primary_key=True),
    Column("user_id", Text),
    Column("scope", Text),
    Column("changed", BigInteger),
    # The number of chat requests: the unit of decay if it doesn't go by days.
    Column("requests", BigInteger),
    # How far its journal has got; see `memory.journal`.
    Column("journal", Text),
)

# Times are microseconds since 1970 in UTC; `said_offset_min` is the local offset when it was said.
memories = Table(
    "memories",
    metadata,
    Column("rid", BigInteger, primary_key=True),
    Column("id", Text),
    _space(),
    Column("kind", Text),
    Column("content", Text),
    Column("content_hash", Text),
    Column("tier", Text),
    Column("memory_type", Text),
    Column("importance", Integer),
    Column("priority", Float),
    Column("decay_rate", Float),
    Column("speaker", Text),
    Column("said_at", BigInteger),
    Column("said_offset_min", Integer),
    Column("valid_from", BigInteger),
    Column("valid_to", BigInteger),
    Column("source_session", Text),
    Column("source_turn", BigInteger),
    Column("source_position", BigInteger),
    Column("source_quote", Text),
    Column("trust", Text),
    Column("created_at", BigInteger),
    Column("changed", BigInteger),
    # The number of chat requests when it was stored.
    Column("request", BigInteger),
    # Whether the user wants it in the profile: 0 or 1.
    Column("pinned", Integer),
    # What kind of time a fact has and its days, as JSON; see `records.FactTime`.
    Column("time", Text),
    # Whether it may be shown unasked; see `discretion`. In whose words and why is in `kept_from`.
    Column("discretion", Text),
    Column("kept_from", Text),
    # Names of spheres with blanks between them; "" where nobody said which. See `spheres`.
    Column("spheres", Text),
)

# A separate table, so that using a memory doesn't rewrite its text.
uses = Table(
    "memory_uses",
    metadata,
    _memory(),
    Column("last_accessed", BigInteger),
    Column("access_count", BigInteger),
    Column("request", BigInteger),
)

tags = Table(
    "memory_tags",
    metadata,
    _memory(),
    Column("tag", Text, primary_key=True),
    Column("position", Integer),
)

# The lexical index; see `lexicon.WordList`.
words = Table(
    "memory_words",
    metadata,
    _memory(),
    Column("version", Integer),
    Column("words", Integer),
    Column("features", Integer),
    Column("stems", LargeBinary),
)

# `derived_from` leads from a fact to its sources.
edges = Table(
    "memory_edges",
    metadata,
    _owner("source_rid", "memories.rid"),
    _owner("target_rid", "memories.rid"),
    Column("relation", Text, primary_key=True),
    Column("weight", Float),
    Column("created_at", BigInteger),
)

models = Table(
    "embedding_models",
    metadata,
    Column("id", BigInteger, primary_key=True),
    Column("name", Text),
    Column("dimension", Integer),
    Column("state", Text),
    Column("created_at", BigInteger),
    # The vectors of `relevance.examples`, float32, and the hash of those examples.
    Column("examples_hash", Text),
    Column("examples_vectors", LargeBinary),
    # When another model replaced it; its vectors are deleted a week later.
    Column("retired_at", BigInteger),
)

# A row for each memory and model, with the vectors of its passages; see `candidates.arrays.to_stored`.
vectors = _vectors("memory_vectors")

# The situations in which a memory matters, in order. They are searched by meaning and shown nowhere.
cues = Table(
    "memory_cues",
    metadata,
    _memory(),
    Column("place", Integer, primary_key=True),
    Column("cue", Text),
)

# Like `vectors`, of the cues of a memory. A separate table, so that they are never taken for its text.
cue_vectors = _vectors("memory_cue_vectors")

# A row for each row of `vectors` if the model has token vectors; see `tokens.pack`. A separate table, because all
# vectors are read when a store is opened, but a search reads only a few hundred rows of tokens.
tokens = Table(
    "memory_tokens",
    metadata,
    Column("rid", BigInteger, primary_key=True),
    Column("model_id", BigInteger, primary_key=True),
    Column("tokens", LargeBinary),
    ForeignKeyConstraint(["rid", "model_id"], ["memory_vectors.rid", "memory_vectors.model_id"]),
)

# Forgotten memories, as keyed hashes of the place in the session and of the words in the session.
tombstones = Table(
    "memory_tombstones",
    metadata,
    # Of a memory that is gone: the database gives out none.
    Column("rid", BigInteger, primary_key=True, autoincrement=False),
    _space(),
    Column("place_hash", Text),
    Column("words_hash", Text),
    Column("forgotten_at", BigInteger),
    Column("changed", BigInteger),
)

# The number of characters of an episode that were distilled. An episode without a row, or with fewer characters than it
# has, is pending. `worth_by` is the version of the gate that found it worth reading, or "".
distilled = Table(
    "memory_distilled",
    metadata,
    _memory(),
    Column("chars", BigInteger),
    Column("distilled_at", BigInteger),
    Column("worth_by", Text),
)

# The results of distilling windows. They contain no text of the conversation, so forgetting needn't search them.
# `place` identifies where the window begins.
distill_windows = Table(
    "memory_distill_windows",
    metadata,
    Column("id", BigInteger, primary_key=True),
    _space(),
    Column("at", BigInteger),
    Column("place", Text),
    Column("outcome", Text),
    Column("facts", Integer),
    Column("dropped", Integer),
    Column("error", Text),
)

# The cost of memory's own calls of language models, by local day.
usage = Table(
    "memory_usage",
    metadata,
    Column("id", BigInteger, primary_key=True),
    _space(),
    Column("day", Text),
    Column("purpose", Text),
    Column("provider", Text),
    Column("model", Text),
    Column("calls", Integer),
    Column("input_tokens", BigInteger),
    Column("output_tokens", BigInteger),
    Column("cache_read_tokens", BigInteger),
    Column("cache_write_tokens", BigInteger),
    Column("cost_usd", Float),
    Column("estimated", Integer),
)

# The history: every change of a memory after it was stored, with the fields before and after as JSON. When a memory is
# forgotten, its rows are deleted, and one row with a keyed hash records that.
changes = Table(
    "memory_changes",
    metadata,
    Column("id", BigInteger, primary_key=True),
    _space(),
    Column("memory_id", Text),
    Column("other_id", Text),
    Column("action", Text),
    Column("at", BigInteger),
    Column("who", Text),
    Column("why", Text),
    Column("before", Text),
    Column("after", Text),
    Column("undoes", BigInteger),
)

# Memories that were read for statements, by which version of the reading; what is not in here is yet to be read.
readings = Table(
    "memory_readings",
    metadata,
    _memory(),
    Column("version", Integer),
)

# What was read: a part of the memory's words and how likely it lasts, in log-odds; or the days that it speaks of, as
# ordinals, or what comes round (`every` has its days as `statement_rows.rounds_of` writes them; `yearly` is month and
# day of what comes every year), and whether it cancels or moves something.
statements = Table(
    "memory_statements",
    metadata,
    _memory(),
    Column("place", Integer, primary_key=True),
    Column("space_id", BigInteger),
    Column("start", Integer),
    Column("length", Integer),
    Column("lasting", Float),
    Column("first_day", Integer),
    Column("last_day", Integer),
    Column("yearly", Integer),
    Column("change", Text),
    Column("every", Text),
)

# The texts that forgotten memories had before they were edited, as hashes like those in `tombstones`.
earlier_words = Table(
    "memory_earlier_words",
    metadata,
    _space(is_key=True),
    Column("words_hash", Text, primary_key=True),
)

# The pieces of work that processes have claimed, and until when; see `claims.Claims`.
claims = Table(
    "memory_claims",
    metadata,
    Column("work", Text, primary_key=True),
    Column("piece", Text, primary_key=True),
    Column("owner", Text),
    Column("until", BigInteger),
)

# The versions of the standing page; see `page.records`. `lines` is JSON; `changed` is the number of the space's last
# change that the writer had seen.
pages = Table(
    "memory_pages",
    metadata,
    Column("id", BigInteger, primary_key=True),
    _space(),
    Column("number", Integer),
    Column("written_at", BigInteger),
    Column("by", Text),
    Column("model", Text),
    Column("state", Text),
    Column("changed", BigInteger),
    Column("lines", Text),
)
