"""The catalogue of capabilities: versions, approvals, runs.

A migration is a record of what was done: it imports nothing of the program, and is never changed once released. Times
are microseconds since 1970 in UTC, given by the program.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008_capabilities"
down_revision = "0007_keyed_hashes"
branch_labels = None
depends_on = None

# SQLite numbers rows by itself only where the key is declared INTEGER.
_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _capability(name: str) -> sa.Column[str]:
    reference = sa.ForeignKey("capabilities.id", name=name, ondelete="CASCADE")
    return sa.Column("capability_id", sa.Text, reference, nullable=False)


def upgrade() -> None:
    op.create_table(
        "capabilities",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("user_id", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("input_schema", sa.Text, nullable=False),
        sa.Column("output_schema", sa.Text, nullable=False),
        sa.Column("tags", sa.Text, nullable=False),
        sa.Column("requirements", sa.Text, nullable=False),
        sa.Column("hosts", sa.Text, nullable=False),
        sa.Column("secrets", sa.Text, nullable=False),
        sa.Column("state", sa.Integer, nullable=False),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("provenance", sa.Text, nullable=False),
        sa.Column("build_id", sa.Text, nullable=False),
        sa.Column("reasons", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.Column("runs", sa.Integer, nullable=False),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.Column("failures_in_row", sa.Integer, nullable=False),
        sa.Column("failing_since", sa.BigInteger),
        sa.Column("recent_ms", sa.Text, nullable=False),
        sa.Column("peak_mb", sa.Float, nullable=False),
        sa.Column("last_run_at", sa.BigInteger),
        sa.UniqueConstraint("user_id", "name", name="uq_capabilities_user_name"),
        sa.CheckConstraint(
            "status IN ('building', 'proposed', 'active', 'failed', 'disabled')",
            name="ck_capabilities_status",
        ),
        sa.CheckConstraint("state IN (0, 1)", name="ck_capabilities_state"),
    )
    op.create_table(
        "capability_versions",
        _capability("fk_capability_versions_capability"),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("sha256", sa.Text, nullable=False),
        sa.Column("archive", sa.LargeBinary, nullable=False),
        sa.Column("provenance", sa.Text, nullable=False),
        sa.Column("checks", sa.Text, nullable=False),
        sa.Column("reasons", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("capability_id", "number", name="uq_capability_versions_number"),
        sa.CheckConstraint("status IN ('ready', 'proposed', 'failed')", name="ck_capability_versions_status"),
    )
    op.create_table(
        "capability_approvals",
        _capability("fk_capability_approvals_capability"),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("value", sa.Text, nullable=False),
        sa.Column("approved_at", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("capability_id", "kind", "value", name="uq_capability_approvals_value"),
        sa.CheckConstraint("kind IN ('host', 'secret', 'state')", name="ck_capability_approvals_kind"),
    )
    op.create_table(
        "capability_runs",
        sa.Column("number", _KEY, primary_key=True, autoincrement=True),
        _capability("fk_capability_runs_capability"),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("error", sa.Text, nullable=False),
        sa.Column("input", sa.Text, nullable=False),
        sa.Column("wall_ms", sa.Float, nullable=False),
        sa.Column("peak_mb", sa.Float, nullable=False),
        sa.Column("backend", sa.Text, nullable=False),
        sa.Column("started_at", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_capability_runs_capability", "capability_runs", ["capability_id", "number"])
    op.create_table(
        "capability_vectors",
        _capability("fk_capability_vectors_capability"),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("text_hash", sa.Text, nullable=False),
        sa.Column("vector", sa.LargeBinary, nullable=False),
        sa.UniqueConstraint("capability_id", "model", name="uq_capability_vectors_model"),
    )
    op.create_table(
        "capability_changes",
        sa.Column("user_id", sa.Text, primary_key=True),
        sa.Column("changed", sa.BigInteger, nullable=False),
    )
