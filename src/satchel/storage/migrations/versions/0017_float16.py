"""Memory: vectors of memories and cues as float16, in half the room of float32.

A migration is a record of what was done: it imports nothing of the program, and is never changed once released.
"""

from __future__ import annotations

import struct

import sqlalchemy as sa
from alembic import op

revision = "0017_float16"
down_revision = "0016_journal"
branch_labels = None
depends_on = None

_TABLES = ("memory_vectors", "memory_cue_vectors")
_ROWS_AT_ONCE = 500


def upgrade() -> None:
    connection = op.get_bind()
    for name in _TABLES:
        table = sa.table(name, sa.column("rid"), sa.column("model_id"), sa.column("vectors", sa.LargeBinary))
        keys = sa.tuple_(table.c.rid, table.c.model_id)
        ordered = sa.select(table).order_by(table.c.rid, table.c.model_id).limit(_ROWS_AT_ONCE)
        replaced = (
            sa.update(table)
            .where(table.c.rid == sa.bindparam("of"), table.c.model_id == sa.bindparam("by"))
            .values(vectors=sa.bindparam("converted"))
        )
        rows = connection.execute(ordered).all()
        while rows:
            converted = []
            for row in rows:
                count = len(row.vectors) // 4
                halves = struct.pack(f"<{count}e", *struct.unpack(f"<{count}f", row.vectors))
                converted.append({"of": row.rid, "by": row.model_id, "converted": halves})
            connection.execute(replaced, converted)
            rows = connection.execute(ordered.where(keys > (rows[-1].rid, rows[-1].model_id))).all()
