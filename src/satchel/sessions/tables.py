"""The index over the logs, which is rebuilt from the files when it is missing, and the inbox, which is not.

The full-text table `session_fts` has no metadata here, since SQLAlchemy knows no virtual tables; the
migration
`0002_sessions` makes it over `session_passage`, with triggers that keep both alike.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    cast,
    extract,
    func,
)

metadata = MetaData()

NOW: Final = cast(extract("epoch", func.clock_timestamp()) * 1000, BigInteger)
"""Milliseconds since 1970 by the clock of a server, which all machines share."""

session_log = Table(
    "session_log",
    metadata,
    # The path below the sessions folder, in ASCII.
    Column("name", Text, primary_key=True),
    Column("session_id", Text, nullable=False),
    # The state of the file when it was read. If it differs now, the file must be read again or further.
    Column("inode", Integer, nullable=False),
    Column("mtime_ns", Integer, nullable=False),
    Column("size", Integer, nullable=False),
    # The position up to which it was read.
    Column("offset", Integer, nullable=False),
    Column("lines", Integer, nullable=False),
    # `Summary` as JSON.
    Column("summary", Text, nullable=False),
    # The entry of the list that it belongs to; "" if an older version wrote the row.
    Column("entry", Text, nullable=False, server_default=""),
    Index("ix_session_log_entry", "entry"),
)

# An entry of the list of conversations (see `listing`), derived from `session_log`.
session_entry = Table(
    "session_entry",
    metadata,
    Column("entry", Text, primary_key=True),
    # "list", "archive", or "" for what no list shows.
    Column("place", Text, nullable=False),
    Column("pinned", Integer, nullable=False),
    # Microseconds since 1970 in UTC.
    Column("last_at", BigInteger, nullable=False),
    # The newest local day on which it spent something, or "".
    Column("spent_day", Text, nullable=False),
    Index("ix_session_entry_place", "place", "pinned", "last_at", "entry"),
    Index("ix_session_entry_spent_day", "spent_day"),
)

# The state in which the folders of logs were looked through. The row "" says that every log was read since then.
session_folder = Table(
    "session_folder",
    metadata,
    Column("name", Text, primary_key=True),
    Column("mtime_ns", BigInteger, nullable=False),
)

session_passage = Table(
    "session_passage",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", Text, nullable=False, index=True),
    Column("seq", Integer, nullable=False),
    Column("turn", Integer, nullable=False),
    Column("kind", Text, nullable=False),
    Column("at", Text, nullable=False),
    Column("text", Text, nullable=False),
)

# The state of a log in which all that was said in it was in memory (see `SessionStore.unsettled`).
session_settled = Table(
    "session_settled",
    metadata,
    Column("name", Text, primary_key=True),
    Column("inode", Integer, nullable=False),
    Column("mtime_ns", Integer, nullable=False),
    Column("size", Integer, nullable=False),
)

# Posts that no turn has delivered yet. `number` gives their order and is never reused.
session_inbox = Table(
    "session_inbox",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("id", Text, nullable=False, unique=True),
    Column("session_id", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("untrusted", Integer, nullable=False),
    # Microseconds since 1970 in UTC.
    Column("posted_at", BigInteger, nullable=False),
    Index("ix_session_inbox_session", "session_id", "number"),
    sqlite_autoincrement=True,
)

# Places in conversations that clients hold; see `ClientHistory`.
session_client_place = Table(
    "session_client_place",
    metadata,
    Column("key", Text, primary_key=True),
    Column("session_id", Text, nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("block", Text, nullable=False),
    # A JSON array.
    Column("memory_ids", Text, nullable=False),
    # Microseconds since 1970 in UTC.
    Column("written_at", BigInteger, nullable=False),
    Index("ix_session_client_place_session", "session_id", "number"),
    Index("ix_session_client_place_written", "written_at"),
)

rows = MetaData()
"""Tables that only a server has: the logs themselves, which are files where the database is one."""

conversations = Table(
    "conversations",
    rows,
    Column("session_id", Text, primary_key=True),
    # The path below the sessions folder that the log would have as a file, in ASCII.
    Column("name", Text, nullable=False),
    # How often it was rewritten.
    Column("generation", Integer, nullable=False),
    Column("last_seq", Integer, nullable=False),
    # Who writes it, "" if nobody does, and until when that is so unless it is said again: milliseconds since 1970 by
    # the server's clock. Each new writer has another epoch.
    Column("writer", Text, nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("until", BigInteger, nullable=False),
    # Whether the writer gives it up; see `RowLogs.ask`.
    Column("handover", Integer, nullable=False, server_default="0"),
    # The mode and the model that were chosen for it, as JSON that is signed; see `SessionStore.note_chosen`.
    Column("chosen", Text, nullable=False, server_default=""),
)

# `seq` is the number of the record, or of a line that can't be read.
conversation_lines = Table(
    "conversation_lines",
    rows,
    Column("session_id", Text, primary_key=True),
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("line", LargeBinary, nullable=False),
)

# What is beside a log: long results, attached files, what `/undo` needs. `name` is the path below the folder, with
# `%` and two digits for bytes that are no plain ASCII.
conversation_files = Table(
    "conversation_files",
    rows,
    Column("session_id", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("sha256", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
)

conversation_parts = Table(
    "conversation_parts",
    rows,
    Column("session_id", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("part", Integer, primary_key=True, autoincrement=False),
    Column("content", LargeBinary, nullable=False),
)

# What a conversation cost on a local day ("2026-11-21"), in US dollars.
conversation_costs = Table(
    "conversation_costs",
    rows,
    Column("day", Text, primary_key=True),
    Column("session_id", Text, primary_key=True),
    Column("cost", Float, nullable=False),
)

# What another server than the one that has a conversation open was asked, for the writer with this epoch: encrypted,
# and without its content once it was taken.
conversation_requests = Table(
    "conversation_requests",
    rows,
    Column("number", BigInteger, primary_key=True),
    Column("session_id", Text, nullable=False),
    Column("epoch", Integer, nullable=False),
    # That of the conversation when it was asked.
    Column("last_seq", Integer, nullable=False),
    # Milliseconds since 1970 by the server's clock.
    Column("at", BigInteger, nullable=False),
    Column("content", LargeBinary),
    Column("answer", LargeBinary),
)

# Files that were sent and are in no message yet.
conversation_uploads = Table(
    "conversation_uploads",
    rows,
    # The hash of the bytes, and what tells those who sent the same bytes apart.
    Column("sha256", Text, primary_key=True),
    Column("content", LargeBinary, nullable=False),
    # Milliseconds since 1970: when it was sent.
    Column("at", BigInteger, nullable=False),
)

SERVER_ONLY = (
    # The words of a passage without case and accents, by which a search finds it.
    "ALTER TABLE session_passage ADD COLUMN words TSVECTOR",
    "ALTER TABLE session_passage ALTER COLUMN words SET STATISTICS 0",
    "CREATE INDEX ix_session_passage_words ON session_passage USING gin (words)",
)
