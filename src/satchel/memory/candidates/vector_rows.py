"""The statements about embedding models and the vectors they gave. Every function runs inside a transaction of
`storage.Database`.

Vectors are derived: what is to be done is "a memory without vectors of this model", whatever happened before. A model
that is new to a store is built up beside the one in use, and takes over in one transaction when nothing is missing.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import Connection, bindparam, delete, func, insert, literal, select, update

from satchel.memory.repository import listed
from satchel.memory.tables import memories, models, spaces, tokens, vectors
from satchel.storage import Prepared

__all__ = [
    "Embedded",
    "ModelRow",
    "Pending",
    "activate_model",
    "count_pending",
    "drop_retired",
    "find_model",
    "open_model",
    "pending_vectors",
    "read_examples",
    "read_tokens",
    "write_examples",
    "write_vectors",
]

T = TypeVar("T")
_SLICE = 500  # Parameters of one statement; some builds of SQLite take 999.
_COUNT_UP = (
    update(spaces)
    .where(spaces.c.id == bindparam("space"))
    .values(changed=spaces.c.changed + 1)
    .returning(spaces.c.changed)
)


def _slices(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for at in range(0, len(items), _SLICE):
        yield items[at : at + _SLICE]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRow:
    """What a store knows of an embedding model.

    Attributes:
        dimension: Of the vectors that are stored.
        replaces: The name of the model that is in use while this one is built up, or None where this one is.
    """

    id: int
    dimension: int
    replaces: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A memory that has no vectors of a model. `content_hash` names the words that are to be embedded."""

    rid: int
    space: int
    content: str
    content_hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedded:
    """What a model made of a memory: float32 vectors of its passages, one after the other, and, where it gives them,
    its tokens as `tokens.pack` packs them.
    """

    pending: Pending
    vectors: bytes
    tokens: bytes | None


def find_model(connection: Connection, name: str) -> ModelRow | None:
    """An embedding model that is in use or being built up, or None."""
    active = connection.execute(select(models.c.name).where(models.c.state == "active")).scalar()
    found = connection.execute(
        select(models.c.id, models.c.dimension).where(models.c.name == name, models.c.state != "retired")
    ).first()
    if found is None:
        return None
    return ModelRow(id=found.id, dimension=found.dimension, replaces=None if active == name else active)


def open_model(connection: Connection, name: str, dimension: int, at: int) -> ModelRow:
    """Find an embedding model, or write it down where it is new; the first one of a store is in use at once."""
    active = connection.execute(select(models.c.name).where(models.c.state == "active")).scalar()
    found = connection.execute(
        select(models.c.id, models.c.dimension, models.c.state).where(models.c.name == name)
    ).first()
    if found is None:
        found = connection.execute(
            insert(models)
            .values(name=name, dimension=dimension, state="building" if active else "active", created_at=at)
            .returning(models.c.id, models.c.dimension, models.c.state)
        ).one()
    elif found.state == "retired":
        # It is wanted again: what it still has is kept, and what it lacks is made.
        connection.execute(
            update(models).where(models.c.id == found.id).values(state="building", retired_at=None)
        )
    return ModelRow(id=found.id, dimension=found.dimension, replaces=None if active == name else active)


def activate_model(connection: Connection, model: int, at: int) -> bool:
    """Put a model in use in place of the one that was, once it has vectors of every memory of the database.

    Returns:
        Whether it is in use now.
    """
    if count_pending(connection, None, model):
        return False
    connection.execute(
        update(models)
        .where(models.c.state == "active", models.c.id != model)
        .values(state="retired", retired_at=at)
    )
    connection.execute(update(models).where(models.c.id == model).values(state="active", retired_at=None))
    return True


def drop_retired(connection: Connection, before: int) -> list[str]:
    """Remove the models that were put aside before a time, with their vectors.

    Returns:
        Their names.
    """
    old = connection.execute(
        select(models.c.id, models.c.name).where(models.c.state == "retired", models.c.retired_at < before)
    ).all()
    for row in old:
        # Their tokens go with them.
        connection.execute(delete(vectors).where(vectors.c.model_id == row.id))
        connection.execute(delete(models).where(models.c.id == row.id))
    return [row.name for row in old]


def read_examples(connection: Connection, model: int, hash: str) -> bytes | None:
    """The vectors that a model gave to these examples, or None where it has not been asked."""
    return connection.execute(
        select(models.c.examples_vectors).where(models.c.id == model, models.c.examples_hash == hash)
    ).scalar()


def write_examples(connection: Connection, model: int, hash: str, found: bytes) -> None:
    """Keep the vectors that a model gave to the examples."""
    connection.execute(
        update(models).where(models.c.id == model).values(examples_hash=hash, examples_vectors=found)
    )


def _without_vectors(query: Any, space: int | None, model: int) -> Any:
    join = memories.outerjoin(vectors, (vectors.c.rid == memories.c.rid) & (vectors.c.model_id == model))
    query = query.select_from(join).where(vectors.c.rid.is_(None))
    return query if space is None else query.where(memories.c.space_id == space)


def count_pending(connection: Connection, space: int | None, model: int) -> int:
    """How many memories of a space, or of the whole database, have no vectors of a model."""
    return int(connection.execute(_without_vectors(select(func.count()), space, model)).scalar_one())


def pending_vectors(
    connection: Connection,
    space: int | None,
    model: int,
    *,
    limit: int,
    max_chars: int,
    without: Collection[int] = (),
) -> list[Pending]:
    """The newest memories without vectors of a model: what was said last is asked for first.

    Args:
        connection: In a transaction.
        space: Whose memories; None for everybody's.
        model: The model.
        limit: At most so many.
        max_chars: Stop after so much text; one memory is given in any case.
        without: Rids of memories that somebody is embedding already.
    """
    columns = select(memories.c.rid, memories.c.space_id, memories.c.content, memories.c.content_hash)
    # In the order of an index of the space, so that nothing is sorted to find the newest few.
    newest = [memories.c.rid.desc()] if space is None else [memories.c.changed.desc(), memories.c.rid.desc()]
    query = _without_vectors(columns, space, model).order_by(*newest).limit(limit)
    if without:
        query = query.where(memories.c.rid.not_in(without))
    found: list[Pending] = []
    chars = 0
    for rid, owner, content, hash in connection.execute(query):
        found.append(Pending(rid=rid, space=owner, content=content, content_hash=hash))
        chars += len(content)
        if chars >= max_chars:
            break
    return found


def write_vectors(connection: Connection, model: int, made: Sequence[Embedded]) -> bool:
    """Keep vectors, for those memories that still say what was embedded and have none of the model yet.

    Returns:
        Whether there is such a model; another process may have dropped it.
    """
    if connection.execute(select(literal(1)).where(models.c.id == model)).first() is None:
        return False
    there: dict[int, str] = {}
    done: set[int] = set()
    for part in _slices([one.pending.rid for one in made]):
        there.update(
            (rid, hash)
            for rid, hash in connection.execute(
                select(memories.c.rid, memories.c.content_hash).where(memories.c.rid.in_(part))
            )
        )
        done.update(
            connection.execute(
                select(vectors.c.rid).where(vectors.c.model_id == model, vectors.c.rid.in_(part))
            ).scalars()
        )
    wanted = [
        one
        for one in made
        if there.get(one.pending.rid) == one.pending.content_hash and one.pending.rid not in done
    ]
    if not wanted:
        return True
    changed = {
        space: int(connection.execute(_COUNT_UP, {"space": space}).scalar_one())
        for space in sorted({one.pending.space for one in wanted})
    }
    connection.execute(
        insert(vectors),
        [
            {
                "rid": one.pending.rid,
                "model_id": model,
                "space_id": one.pending.space,
                "changed": changed[one.pending.space],
                "vectors": one.vectors,
            }
            for one in wanted
        ],
    )
    packed = [
        {"rid": one.pending.rid, "model_id": model, "tokens": one.tokens}
        for one in wanted
        if one.tokens is not None
    ]
    if packed:
        connection.execute(insert(tokens), packed)
    return True


_TOKENS = Prepared(
    select(tokens.c.rid, tokens.c.tokens).where(
        tokens.c.model_id == bindparam("model"), tokens.c.rid.in_(listed(bindparam("rids")))
    )
)


def read_tokens(connection: Connection, model: int, rids: Sequence[int]) -> Mapping[int, bytes]:
    """The packed tokens of memories, by rid; those that have none are left out."""
    return dict(_TOKENS.run(connection, {"model": model, "rids": json.dumps(list(rids))}))
