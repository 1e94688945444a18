"""The vectors of memories whose spheres are judged by likeness. Runs in a transaction."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlalchemy import Connection, bindparam, select

from satchel.memory.find.candidates.arrays import from_stored
from satchel.memory.store.repository import listed
from satchel.memory.store.tables import memories, vectors
from satchel.storage import Prepared

if TYPE_CHECKING:
    from satchel.memory.find.candidates.arrays import Floats

__all__ = ["vectors_of"]

_VECTORS = Prepared(
    select(memories.c.id, vectors.c.vectors)
    .join(vectors, vectors.c.rid == memories.c.rid)
    .where(
        memories.c.space_id == bindparam("space"),
        memories.c.id.in_(listed(bindparam("ids"))),
        vectors.c.model_id == bindparam("model"),
    )
)


def vectors_of(
    connection: Connection, space: int, ids: Sequence[str], *, model: int, dimension: int
) -> dict[str, Floats]:
    """The first vector of each memory that has one of this model, by id; shape (dimension,), unit length."""
    rows = _VECTORS.run(connection, {"space": space, "ids": json.dumps(list(ids)), "model": model})
    return {id: from_stored(stored, dimension)[0] for id, stored in rows}
