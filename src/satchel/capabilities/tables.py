"""The tables of the catalogue. A test compares them with the migrations."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)

metadata = MetaData()

# SQLite numbers rows by itself only where the key is declared INTEGER.
_KEY = BigInteger().with_variant(Integer(), "sqlite")


def _capability(name: str) -> Column[str]:
    """The key of a table with rows that belong to one capability and go with it."""
    reference = ForeignKey("capabilities.id", name=name, ondelete="CASCADE")
    return Column("capability_id", Text, reference, nullable=False)


# The description and the schemas are those of the active version, or of the request while there is none.
capabilities = Table(
    "capabilities",
    metadata,
    Column("id", Text, primary_key=True),
    Column("user_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("description", Text, nullable=False),
    Column("status", Text, nullable=False),
    # The active version, or 0.
    Column("version", Integer, nullable=False),
    # JSON, here and below where a column's name is a plural or ends in `schema`.
    Column("input_schema", Text, nullable=False),
    Column("output_schema", Text, nullable=False),
    Column("tags", Text, nullable=False),
    Column("requirements", Text, nullable=False),
    Column("hosts", Text, nullable=False),
    Column("secrets", Text, nullable=False),
    Column("state", Integer, nullable=False),
    # The folder of its versions, relative to SATCHEL_HOME.
    Column("path", Text, nullable=False),
    # `Provenance` as JSON.
    Column("provenance", Text, nullable=False),
    # The build that is open; "" if there is none.
    Column("build_id", Text, nullable=False),
    # Why the last build failed.
    Column("reasons", Text, nullable=False),
    # Microseconds since 1970 in UTC, as all times in this room.
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    # Reliability of the active version.
    Column("runs", Integer, nullable=False),
    Column("failures", Integer, nullable=False),
    Column("failures_in_row", Integer, nullable=False),
    Column("failing_since", BigInteger),
    Column("recent_ms", Text, nullable=False),
    Column("peak_mb", Float, nullable=False),
    Column("last_run_at", BigInteger),
    # The number of the user's change that was its last one, and on a server the proof that a machine of the home's made
    # it; see `kept`.
    Column("changed", BigInteger, nullable=False, server_default="0"),
    Column("proof", Text, nullable=False, server_default=""),
    UniqueConstraint("user_id", "name", name="uq_capabilities_user_name"),
    CheckConstraint(
        "status IN ('building', 'proposed', 'active', 'failed', 'disabled')", name="ck_capabilities_status"
    ),
    CheckConstraint("state IN (0, 1)", name="ck_capabilities_state"),
)

capability_versions = Table(
    "capability_versions",
    metadata,
    _capability("fk_capability_versions_capability"),
    Column("number", Integer, nullable=False),
    Column("status", Text, nullable=False),
    # The digest of manifest.json, which holds the digests of all other files.
    Column("sha256", Text, nullable=False),
    # All files as a zip archive, from which a lost folder is restored and edits are told.
    Column("archive", LargeBinary, nullable=False),
    Column("provenance", Text, nullable=False),
    # The results of its cases, and why it is not ready.
    Column("checks", Text, nullable=False),
    Column("reasons", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    UniqueConstraint("capability_id", "number", name="uq_capability_versions_number"),
    CheckConstraint("status IN ('ready', 'proposed', 'failed')", name="ck_capability_versions_status"),
)

# What the user allowed a capability to reach. It holds for every version.
capability_approvals = Table(
    "capability_approvals",
    metadata,
    _capability("fk_capability_approvals_capability"),
    Column("kind", Text, nullable=False),
    Column("value", Text, nullable=False),
    Column("approved_at", BigInteger, nullable=False),
    UniqueConstraint("capability_id", "kind", "value", name="uq_capability_approvals_value"),
    CheckConstraint("kind IN ('host', 'secret', 'state')", name="ck_capability_approvals_kind"),
)

capability_runs = Table(
    "capability_runs",
    metadata,
    Column("number", _KEY, primary_key=True, autoincrement=True),
    _capability("fk_capability_runs_capability"),
    Column("version", Integer, nullable=False),
    # The sandbox's status.
    Column("status", Text, nullable=False),
    Column("error", Text, nullable=False),
    # The input of a run that failed, as JSON, for a repair; "" otherwise.
    Column("input", Text, nullable=False),
    Column("wall_ms", Float, nullable=False),
    Column("peak_mb", Float, nullable=False),
    Column("backend", Text, nullable=False),
    Column("started_at", BigInteger, nullable=False),
    Index("ix_capability_runs_capability", "capability_id", "number"),
)

# One vector for each capability and embedding model, of the text with this hash.
capability_vectors = Table(
    "capability_vectors",
    metadata,
    _capability("fk_capability_vectors_capability"),
    Column("model", Text, nullable=False),
    Column("text_hash", Text, nullable=False),
    # float32, of unit length.
    Column("vector", LargeBinary, nullable=False),
    UniqueConstraint("capability_id", "model", name="uq_capability_vectors_model"),
)

# Counts the changes of one user's catalogue, so that a process notices those of others.
capability_changes = Table(
    "capability_changes",
    metadata,
    Column("user_id", Text, primary_key=True),
    Column("changed", BigInteger, nullable=False),
)

# On a server, what was removed, with the proof that a machine of the home's did it, so that it goes at the others.
capability_removals = Table(
    "capability_removals",
    metadata,
    Column("id", Text, primary_key=True),
    Column("user_id", Text, nullable=False),
    Column("proof", Text, nullable=False),
)
