"""Capabilities and builds on a server too; each change of a capability has its number, and there a proof.

A migration is a record of what was done: it imports nothing of the program, and is never changed once released.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0027_capabilities_on_server"
down_revision = "0026_row_security"
branch_labels = None
depends_on = None


def _table(name: str, columns: str, *more: str) -> None:
    """Columns are texts, but for those with another kind after a colon. None but those with "?" may be NULL."""
    kinds = {
        "": 'TEXT COLLATE "C"',
        "i": "INTEGER",
        "b": "BIGINT",
        "f": "FLOAT",
        "n": "BIGSERIAL",
        "y": "BYTEA",
    }
    lines, texts = [], []
    for column in columns.split():
        label, _, kind = column.partition(":")
        lines.append(f"{label} {kinds[kind.rstrip('?')]}{'' if kind.endswith('?') else ' NOT NULL'}")
        if kind in ("", "y"):
            texts.append(f'ALTER COLUMN "{label}" SET STATISTICS 0')
    op.execute(f"CREATE TABLE {name} ({', '.join([*lines, *more])})")
    # The planner's statistics quote what is in columns.
    op.execute(f"ALTER TABLE {name} {', '.join(texts)}")


def _of_user(table: str, rule: str) -> None:
    op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY")
    op.execute(
        f"CREATE POLICY of_user ON {table} USING "
        f"((SELECT coalesce(current_setting('satchel.user', true), '') = '') OR {rule})"
    )


def upgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        _in_file()
    else:
        _on_server()


def _in_file() -> None:
    op.add_column("capabilities", sa.Column("changed", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("capabilities", sa.Column("proof", sa.Text, nullable=False, server_default=""))
    op.execute(
        "UPDATE capabilities SET changed = coalesce("
        "(SELECT c.changed FROM capability_changes c WHERE c.user_id = capabilities.user_id), 0)"
    )
    op.create_table(
        "capability_removals",
        sa.Column("id", sa.Text, primary_key=True, nullable=False),
        sa.Column("user_id", sa.Text, nullable=False),
        sa.Column("proof", sa.Text, nullable=False),
    )


def _on_server() -> None:
    _table(
        "capabilities",
        "id user_id name description status version:i input_schema output_schema tags requirements hosts secrets "
        "state:i path provenance build_id reasons created_at:b updated_at:b runs:i failures:i failures_in_row:i "
        "failing_since:b? recent_ms peak_mb:f last_run_at:b?",
        "changed BIGINT DEFAULT '0' NOT NULL",
        "proof TEXT COLLATE \"C\" DEFAULT '' NOT NULL",
        "PRIMARY KEY (id)",
        "CONSTRAINT uq_capabilities_user_name UNIQUE (user_id, name)",
        "CONSTRAINT ck_capabilities_status CHECK "
        "(status IN ('building', 'proposed', 'active', 'failed', 'disabled'))",
        "CONSTRAINT ck_capabilities_state CHECK (state IN (0, 1))",
    )
    op.execute("ALTER TABLE capabilities ALTER COLUMN proof SET STATISTICS 0")
    _table("capability_changes", "user_id changed:b", "PRIMARY KEY (user_id)")
    _table("capability_removals", "id user_id proof", "PRIMARY KEY (id)")
    for name, columns, more in (
        (
            "capability_approvals",
            "capability_id kind value approved_at:b",
            (
                "CONSTRAINT uq_capability_approvals_value UNIQUE (capability_id, kind, value)",
                "CONSTRAINT ck_capability_approvals_kind CHECK (kind IN ('host', 'secret', 'state'))",
            ),
        ),
        (
            "capability_runs",
            "number:n capability_id version:i status error input wall_ms:f peak_mb:f backend started_at:b",
            ("PRIMARY KEY (number)",),
        ),
        (
            "capability_vectors",
            "capability_id model text_hash vector:y",
            ("CONSTRAINT uq_capability_vectors_model UNIQUE (capability_id, model)",),
        ),
        (
            "capability_versions",
            "capability_id number:i status sha256 archive:y provenance checks reasons created_at:b",
            (
                "CONSTRAINT uq_capability_versions_number UNIQUE (capability_id, number)",
                "CONSTRAINT ck_capability_versions_status CHECK (status IN ('ready', 'proposed', 'failed'))",
            ),
        ),
    ):
        of = f"CONSTRAINT fk_{name}_capability FOREIGN KEY (capability_id) REFERENCES capabilities (id)"
        _table(name, columns, *more, f"{of} ON DELETE CASCADE")
    op.execute("CREATE INDEX ix_capability_runs_capability ON capability_runs (capability_id, number)")
    _table(
        "builds",
        "id user_id capability_id name kind task asked_by session_id model status outcome attempts:i executor "
        "created_at:b updated_at:b",
        "PRIMARY KEY (id)",
        "CONSTRAINT uq_builds_session UNIQUE (session_id)",
        "CONSTRAINT ck_builds_kind CHECK (kind IN ('build', 'repair'))",
        "CONSTRAINT ck_builds_status CHECK (status IN ('queued', 'running', 'active', 'proposed', 'failed'))",
    )
    for column in ("asked_by", "capability", "status"):
        op.execute(
            f"CREATE INDEX ix_builds_{column} ON builds ({column}{'_id' if column == 'capability' else ''})"
        )
    _table(
        "build_messages",
        "number:n id build_id direction type payload read:i created_at:b",
        "PRIMARY KEY (number)",
        "CONSTRAINT uq_build_messages_id UNIQUE (build_id, id)",
        "CONSTRAINT ck_build_messages_direction CHECK (direction IN ('to_user', 'to_builder'))",
        "CONSTRAINT ck_build_messages_type CHECK "
        "(type IN ('question', 'answer', 'progress', 'complete', 'error'))",
        "CONSTRAINT ck_build_messages_read CHECK (read IN (0, 1))",
        "CONSTRAINT fk_build_messages_build FOREIGN KEY (build_id) REFERENCES builds (id)",
    )
    for name in ("capabilities", "capability_changes", "capability_removals", "builds"):
        _of_user(name, "user_id = current_setting('satchel.user', true)")
    for name in ("approvals", "runs", "vectors", "versions"):
        _of_user(f"capability_{name}", "capability_id = ANY (ARRAY(SELECT id FROM capabilities))")
    _of_user("build_messages", "build_id = ANY (ARRAY(SELECT id FROM builds))")
