"""Row-level security on a server: a transaction that says for which user it is sees only that user's rows.

A file stays as it is. A migration is a record of what was done: it imports nothing of the program, and is never changed
once released.
"""

from __future__ import annotations

from alembic import op

revision = "0026_row_security"
down_revision = "0025_several_servers"
branch_labels = None
depends_on = None

_OF_SPACE = (
    "memories",
    "memory_changes",
    "memory_distill_windows",
    "memory_earlier_words",
    "memory_pages",
    "memory_tombstones",
    "memory_usage",
)
_OF_MEMORY = (
    "memory_cue_vectors",
    "memory_cues",
    "memory_distilled",
    "memory_readings",
    "memory_statements",
    "memory_tags",
    "memory_uses",
    "memory_vectors",
    "memory_words",
)


def upgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        return
    rules = {"memory_spaces": "user_id = current_setting('satchel.user', true)"}
    for name in _OF_SPACE:
        rules[name] = "space_id = ANY (ARRAY(SELECT id FROM memory_spaces))"
    for name in _OF_MEMORY:
        rules[name] = f"EXISTS (SELECT FROM memories owner WHERE owner.rid = {name}.rid)"
    rules["memory_edges"] = " AND ".join(
        f"EXISTS (SELECT FROM memories owner WHERE owner.rid = memory_edges.{column})"
        for column in ("source_rid", "target_rid")
    )
    rules["memory_tokens"] = (
        "EXISTS (SELECT FROM memory_vectors owner WHERE owner.rid = memory_tokens.rid "
        "AND owner.model_id = memory_tokens.model_id)"
    )
    for table, rule in rules.items():
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY")
        op.execute(
            f"CREATE POLICY of_user ON {table} USING "
            f"((SELECT coalesce(current_setting('satchel.user', true), '') = '') OR {rule})"
        )
