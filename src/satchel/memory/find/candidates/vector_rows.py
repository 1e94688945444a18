"""The statements about embedding models and the vectors they gave. Every function runs inside a transaction of
`storage.Database`.

Vectors are derived: what is to be done is "a memory without vectors of this model", whatever happened before. A model
that is new to a store is built up beside the one in use, and takes over in one transaction when nothing is missing.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from satchel.memory.store.cues import cues_of
from satchel.memory.store.repository import count_up, listed
from satchel.memory.store.tables import cue_vectors, cues, memories, models, tokens, vectors, words
from satchel.memory.text.languages import CODES
from satchel.memory.text.lexicon import LANGUAGE_SHIFT
from satchel.storage import Prepared


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRow:
    """What a store knows of an embedding model; `replaces` names the one in use while this one is built up."""

    id: int
    dimension: int
    replaces: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Which memories a model gives vectors to: those in these languages (numbers of `languages.CODES`). A memory loses
    its vectors of `instead_of` then.
    """

    languages: tuple[int, ...] = tuple(range(len(CODES)))
    instead_of: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Vectorless:
    """A memory that has no vectors of a model, or whose cues have none: `texts` is its content, or its cues. Of a
    content, `content_hash` is what is stored, and `place` its change, or its rid among everybody's.
    """

    rid: int
    space: int
    texts: tuple[str, ...]
    content_hash: str = ""
    place: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedded:
    """What a model made of a memory's passages, or of its cues: vectors as `arrays.to_stored` packs them and, where it
    gives them, tokens as `tokens.pack` packs them.
    """

    pending: Vectorless
    vectors: bytes
    tokens: bytes | None = None


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
    if find_model(connection, name) is None:
        retired = update(models).where(models.c.name == name)
        # It is wanted again: what it still has is kept, and what it lacks is made.
        if not connection.execute(retired.values(state="building", retired_at=None)).rowcount:
            has_other = connection.execute(select(models.c.id).where(models.c.state == "active")).first()
            state = "building" if has_other else "active"
            row = {"name": name, "dimension": dimension, "state": state, "created_at": at}
            connection.execute(insert(models).values(row))
    found = find_model(connection, name)
    assert found is not None
    return found


def activate_model(connection: Connection, model: int, at: int, share: Share) -> bool:
    """Put a model in use once it has vectors of its share of all memories of the database, and of all cues; returns
    whether it is in use now.
    """
    if count_pending(connection, None, model, share) or pending_cues(connection, None, model, limit=1):
        return False
    connection.execute(
        update(models)
        .where(models.c.state == "active", models.c.id != model)
        .values(state="retired", retired_at=at)
    )
    connection.execute(update(models).where(models.c.id == model).values(state="active", retired_at=None))
    return True


def drop_retired(connection: Connection, before: int) -> list[str]:
    """Remove the models that were put aside before a time, with their vectors; returns their names."""
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


def _without_vectors(query: Any, space: Any, model: Any) -> Any:
    """Those of a query of `memories` that a model gives vectors to and that have none; see `Share`. Which languages are
    meant is a parameter.
    """
    join = memories.outerjoin(vectors, (vectors.c.rid == memories.c.rid) & (vectors.c.model_id == model))
    join = join.outerjoin(words, words.c.rid == memories.c.rid)
    language = func.coalesce(words.c.features, 0).op(">>")(LANGUAGE_SHIFT)
    query = query.select_from(join).where(
        vectors.c.rid.is_(None), language.in_(listed(bindparam("languages")))
    )
    return query if space is None else query.where(memories.c.space_id == space)


def count_pending(connection: Connection, space: int | None, model: int, share: Share) -> int:
    """How many memories of a space, or of the whole database, have no vectors of a model; only those of its share."""
    query = _without_vectors(select(func.count()), space, model)
    return int(connection.execute(query, {"languages": json.dumps(share.languages)}).scalar_one())


def _pending_query(*, everywhere: bool) -> Prepared:
    place = memories.c.rid if everywhere else memories.c.changed
    columns = select(
        memories.c.rid, memories.c.space_id, memories.c.content, memories.c.content_hash, place.label("place")
    )
    query = (
        _without_vectors(columns, None, bindparam("model"))
        .where(memories.c.rid.not_in(listed(bindparam("without"))), place <= bindparam("until"))
        .limit(bindparam("limit"))
    )
    if everywhere:
        return Prepared(query.order_by(memories.c.rid.desc()))
    # In the order of an index of the space, so that nothing is sorted to find the newest few.
    return Prepared(
        query.where(
            memories.c.space_id == bindparam("space"), memories.c.changed > bindparam("since")
        ).order_by(memories.c.changed.desc(), memories.c.rid.desc())
    )


_LAST = 2**63 - 1

# Building a statement takes longer than running it.
_PENDING_QUERIES = {everywhere: _pending_query(everywhere=everywhere) for everywhere in (False, True)}


def pending_vectors(
    connection: Connection,
    space: int | None,
    model: int,
    *,
    limit: int,
    max_chars: int,
    without: Collection[int] = (),
    share: Share,
    since: int = -1,
    until: int | None = None,
) -> list[Vectorless]:
    """The newest memories without vectors of a model: what was said last is asked for first.

    Everybody's for a `space` of None. It stops after `max_chars` of text, and gives one memory in any case. `without`
    are the rids of memories that somebody is embedding already; with `since`, only what changed in the space after that
    change. `until` is the `place` of one that was found before: those after it in the order, so that what has vectors
    by now isn't passed again.
    """
    query = _PENDING_QUERIES[space is None]
    values: dict[str, Any] = {"model": model, "limit": limit, "without": json.dumps(list(without))}
    values |= {"languages": json.dumps(share.languages), "until": _LAST if until is None else until}
    if space is not None:
        values |= {"space": space, "since": since}
    found: list[Vectorless] = []
    chars = 0
    for rid, owner, content, hash, place in query.each(connection, values):
        found.append(Vectorless(rid=rid, space=owner, texts=(content,), content_hash=hash, place=place))
        chars += len(content)
        if chars >= max_chars:
            break
    return found


_WITH_CUES = (
    select(cues.c.rid, memories.c.space_id)
    .distinct()
    .join(memories, memories.c.rid == cues.c.rid)
    .outerjoin(
        cue_vectors, (cue_vectors.c.rid == cues.c.rid) & (cue_vectors.c.model_id == bindparam("model"))
    )
    .where(cue_vectors.c.rid.is_(None), cues.c.rid.not_in(listed(bindparam("without"))))
    .order_by(cues.c.rid.desc())
    .limit(bindparam("limit"))
)
_PENDING_CUES = {
    True: Prepared(_WITH_CUES),
    False: Prepared(_WITH_CUES.where(memories.c.space_id == bindparam("space"))),
}


def pending_cues(
    connection: Connection, space: int | None, model: int, *, limit: int, without: Collection[int] = ()
) -> list[Vectorless]:
    """The newest memories whose cues have no vectors of a model; see `pending_vectors`."""
    values = {"space": space, "model": model, "limit": limit, "without": json.dumps(list(without))}
    owners = dict(_PENDING_CUES[space is None].run(connection, values))
    texts = cues_of(connection, list(owners)) if owners else {}
    return [
        Vectorless(rid=rid, space=owner, texts=tuple(texts[rid]))
        for rid, owner in owners.items()
        if rid in texts
    ]


_MODEL = Prepared(select(models.c.id).where(models.c.id == bindparam("model")))
_LACKING = {
    table: Prepared(
        select(memories.c.rid, memories.c.content_hash)
        .select_from(
            memories.outerjoin(
                table, (table.c.rid == memories.c.rid) & (table.c.model_id == bindparam("model"))
            )
        )
        .where(memories.c.rid.in_(listed(bindparam("rids"))), table.c.rid.is_(None))
    )
    for table in (vectors, cue_vectors)
}
_INSERT_VECTORS = {
    table: Prepared(insert(table), columns=[column.name for column in table.c])
    for table in (vectors, cue_vectors)
}
_INSERT_TOKENS = Prepared(insert(tokens), columns=[column.name for column in tokens.c])


def write_vectors(
    connection: Connection,
    model: int,
    made: Sequence[Embedded],
    *,
    of_cues: bool = False,
    instead_of: int | None = None,
) -> bool:
    """Keep vectors, for those memories that still say what was embedded and have none of the model yet, in place of
    those of `instead_of`. False where another process has dropped the model.
    """
    if not _MODEL.run(connection, {"model": model}):
        return False
    table, rids = cue_vectors if of_cues else vectors, [one.pending.rid for one in made]
    lacking = dict(_LACKING[table].run(connection, {"model": model, "rids": json.dumps(rids)}))
    cued = cues_of(connection, rids) if of_cues else {}

    def is_wanted(pending: Vectorless) -> bool:
        if pending.rid not in lacking:
            return False
        if of_cues:
            return tuple(cued.get(pending.rid, ())) == pending.texts
        return bool(lacking[pending.rid] == pending.content_hash)

    wanted = [one for one in made if is_wanted(one.pending)]
    if not wanted:
        return True
    changed = {space: count_up(connection, space) for space in sorted({one.pending.space for one in wanted})}
    _INSERT_VECTORS[table].run_all(
        connection,
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
    if instead_of is not None:
        moved = [one.pending.rid for one in wanted]
        connection.execute(delete(vectors).where(vectors.c.model_id == instead_of, vectors.c.rid.in_(moved)))
    packed = [
        {"rid": one.pending.rid, "model_id": model, "tokens": one.tokens}
        for one in wanted
        if one.tokens is not None
    ]
    if packed:
        _INSERT_TOKENS.run_all(connection, packed)
    return True


_TOKENS = Prepared(
    select(tokens.c.rid, tokens.c.tokens).where(
        tokens.c.model_id == bindparam("model"), tokens.c.rid.in_(listed(bindparam("rids")))
    )
)


def read_tokens(connection: Connection, model: int | None, rids: Sequence[int]) -> Mapping[int, bytes]:
    """The packed tokens of memories, by rid; those that have none are left out."""
    return dict(_TOKENS.run(connection, {"model": model, "rids": json.dumps(list(rids))}))
