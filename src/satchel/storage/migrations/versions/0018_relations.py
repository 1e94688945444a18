"""Memory: takes back what comparing marked by itself, and drops the table of what was compared.

Until here, a score of words linked facts and turns (restates, elaborates, may_replace) and ended the validity of facts
that it took to be corrected. Most of these marks were wrong. Each is undone as the user would undo it, with an entry in
the history; what the user, an agent or an extractor said of the same two memories stays.

A migration is a record of what was done: it imports nothing of the program, and is never changed once released.
"""

import json
import time
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0018_relations"
down_revision = "0017_float16"
branch_labels = None
depends_on = None

EMPTIES = ("memory_edges", "memory_compared", "memory_claims")

_WHY = "comparing by words no longer marks anything"


def upgrade() -> None:
    connection = op.get_bind()
    undone = set(
        connection.execute(sa.text("SELECT undoes FROM memory_changes WHERE undoes IS NOT NULL")).scalars()
    )
    found = connection.execute(
        sa.text(
            "SELECT id, space_id, memory_id, other_id, before, after FROM memory_changes "
            "WHERE who = 'compare' AND action IN ('link', 'supersede') ORDER BY id DESC"
        )
    ).all()
    for row in found:
        if row.id not in undone:
            _take_back(connection, row)
    connection.execute(sa.text("DELETE FROM memory_claims WHERE work IN ('compare', 'outdate')"))
    op.drop_table("memory_compared")


def _take_back(connection: sa.Connection, row: Any) -> None:
    """Undo one change, as far as nobody has changed the same since."""
    before, after = json.loads(row.before), json.loads(row.after)
    edge, old = after["edge"], before["edge"]
    ends = {
        name: connection.execute(
            sa.text("SELECT rid, valid_to FROM memories WHERE space_id = :space AND id = :id"),
            {"space": row.space_id, "id": edge[name]},
        ).first()
        for name in ("source", "target")
    }
    source, target = ends["source"], ends["target"]
    was: dict[str, Any] = {}
    now: dict[str, Any] = {}
    if source is not None and target is not None:
        here = {"source": source.rid, "target": target.rid, "relation": edge["relation"]}
        place = "source_rid = :source AND target_rid = :target AND relation = :relation"
        weight = connection.execute(
            sa.text(f"SELECT weight FROM memory_edges WHERE {place}"),  # noqa: S608 - fixed text
            here,
        ).scalar()
        if weight is not None and weight == edge["weight"]:
            query = (
                f"DELETE FROM memory_edges WHERE {place}"  # noqa: S608 - fixed text
                if old["weight"] is None
                else f"UPDATE memory_edges SET weight = :weight WHERE {place}"  # noqa: S608 - fixed text
            )
            connection.execute(sa.text(query), {**here, "weight": old["weight"]})
            was["edge"], now["edge"] = edge, old
    if (
        target is not None
        and "valid_to" in after
        and target.valid_to == after["valid_to"] != before["valid_to"]
    ):
        # Another memory that took its place ended it too.
        others = connection.execute(
            sa.text("SELECT 1 FROM memory_edges WHERE target_rid = :rid AND relation = 'supersedes'"),
            {"rid": target.rid},
        ).first()
        if before["valid_to"] is not None or others is None:
            connection.execute(
                sa.text("UPDATE memories SET valid_to = :end WHERE rid = :rid"),
                {"end": before["valid_to"], "rid": target.rid},
            )
            was["valid_to"], now["valid_to"] = after["valid_to"], before["valid_to"]
    if not was:
        return
    connection.execute(
        sa.text(
            "INSERT INTO memory_changes "
            "(space_id, memory_id, other_id, action, at, who, why, before, after, undoes) VALUES "
            "(:space, :memory, :other, 'undo', :at, 'upgrade', :why, :before, :after, :undoes)"
        ),
        {
            "space": row.space_id,
            "memory": row.memory_id,
            "other": row.other_id,
            "at": time.time_ns() // 1000,
            "why": _WHY,
            "before": json.dumps(was, ensure_ascii=False),
            "after": json.dumps(now, ensure_ascii=False),
            "undoes": row.id,
        },
    )
    connection.execute(
        sa.text("UPDATE memory_spaces SET changed = changed + 1 WHERE id = :space"), {"space": row.space_id}
    )
