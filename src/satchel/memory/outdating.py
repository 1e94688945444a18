"""Estimates whether what the user said later makes an earlier turn of a conversation out of date.

Turns are longer than facts and are about several things, so `comparing` tells little about them. Only one thing is
asked here: does the later one replace something in the earlier one? The classifier is linear. Its weights are the entry
"turns" in data/comparison_weights.json, fitted to invented lives whose outdated turns are marked
(benchmarks/compare.py --fit). docs/decisions/0033-comparing-statements.md has the figures for persons that were left
out.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import Connection, func, insert, select

from satchel.errors import NotFound, UsageError
from satchel.memory import lexicon, lifecycle, repository
from satchel.memory.comparing import weights_of
from satchel.memory.framing import is_mere_question
from satchel.memory.graph import MAY_REPLACE
from satchel.memory.tables import compared, memories, vectors
from satchel.memory.wording import Statement, read_statement

if TYPE_CHECKING:
    from satchel.memory.records import MemoryRecord
    from satchel.memory.space import Space

__all__ = ["TURN_FEATURES", "Outdating", "features_of_turns", "outdates", "strength_of"]

TURN_FEATURES = (
    "bias",
    "cosine_and_change",
    "rare_words_shared",
    "names_shared",
    "numbers_shared",
    "numbers_differ",
    "days_shared",
    "past",
    "longer",
    "words_newer",
    "length_older",
    "length_newer",
)
"""The features, each in [-1, 1]: what backward elimination left of 41."""

_MANY_CHANGES = 4
_MANY_NAMES = 3
_MANY_WORDS = 40
_LONG_OLDER = 2_000
_LONG_NEWER = 1_000
"""From here on, `length_newer` is 1. In characters, as is `_LONG_OLDER`."""

_WORK = "outdate"
_NEWEST = 256
"""Only the newest turns are compared: an import of years of conversations would take minutes of CPU."""
_MAX_NEAR = 20
_LEAST_COSINE = 0.1
"""A turn is compared with so many of the nearest earlier ones. A quarter of the turns in invented lives that replace an
earlier one have a cosine below 0.26 with it, 5 % below 0.12."""
_LEAST_PROBABILITY = 0.1
"""From which two turns are linked as `may_replace`. In invented lives, with whole persons left out, that finds half of
the pairs, and a quarter of what is linked is right; at 0.3, a quarter and a half (benchmarks/compare.py --turns)."""
_MAX_LINKS = 3
_AT_ONCE = 32
_ASSISTANTS = ("assistant", "satchel")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    """A turn of the user to compare, with its vectors."""

    rid: int
    content: str
    vectors: bytes


class Outdating:
    """Links what the user said with the earlier turns of a space that it may make out of date."""

    def __init__(self, space: Space) -> None:
        """Compare in this space."""
        self._space = space

    async def link_all(self) -> None:
        """Link until no turn is left; see `link_some`."""
        while await self.link_some(_AT_ONCE):
            pass

    async def link_some(self, most: int) -> int:
        """Compare the newest turns of the user that were not compared yet, and link what they may replace.

        Turns without a vector of the model in use wait for it; without an embedder, nothing is compared.

        Returns:
            The number of turns that were compared.

        Raises:
            StorageLocked: The database was locked for too long.
        """
        space = self._space
        await space.refresh()
        models = space.candidates.models if space.dense is not None else ()
        if not models:
            return 0

        def find(connection: Connection, held: Collection[str]) -> list[_Turn]:
            return _pending_turns(connection, space.id, models=models, limit=most, without=held)

        async with space.claims.take(_WORK, find, name=lambda turn: str(turn.rid)) as taken:
            turns = taken.pieces
            if not turns:
                return 0
            near = await space.candidates.near(
                {turn.rid: (turn.content, turn.vectors) for turn in turns},
                limit=_MAX_NEAR,
                cosine=_LEAST_COSINE,
                coverage=1.0,
                episodes=True,
            )
            wanted = {rid for found in near.values() for rid in found} | {turn.rid for turn in turns}
            records = await space.read(repository.read_records, sorted(wanted))
            # Each turn takes 20 ms: too long for the event loop.
            found = await space.thread.run(
                lambda: {turn.rid: _outdated_by(turn.rid, near.get(turn.rid, {}), records) for turn in turns}
            )
            at = space.now_micros()

            def write(connection: Connection, space: int) -> None:
                _write_links(connection, space, turns, found, at=at)
                taken.release(connection)

            await space.write(write)
            return len(turns)


def _pending_turns(
    connection: Connection, space: int, *, models: Sequence[int], limit: int, without: Collection[str]
) -> list[_Turn]:
    newest = (
        select(memories.c.rid)
        .where(memories.c.space_id == space, memories.c.kind == "episode")
        .order_by(memories.c.rid.desc())
        .limit(_NEWEST)
    )
    query = (
        select(memories.c.rid, memories.c.content, vectors.c.vectors)
        .select_from(memories.outerjoin(compared, compared.c.rid == memories.c.rid))
        .join(vectors, (vectors.c.rid == memories.c.rid) & vectors.c.model_id.in_(models))
        .where(
            memories.c.rid.in_(newest),
            memories.c.trust == "user",
            func.lower(memories.c.speaker).not_in(_ASSISTANTS),
            compared.c.rid.is_(None),
            memories.c.rid.not_in([int(rid) for rid in without]),
        )
        .order_by(memories.c.rid)
        .limit(limit)
    )
    return [_Turn(rid=row.rid, content=row.content, vectors=row.vectors) for row in connection.execute(query)]


def _outdated_by(
    rid: int, near: Mapping[int, float | None], records: Mapping[int, MemoryRecord]
) -> list[tuple[str, str, float]]:
    """The ids of a turn and of those that it may replace, and with what probability: the likeliest."""
    if rid not in records or is_mere_question(records[rid]):
        return []  # Who only asks, or greets, tells nothing that could replace anything.
    new = records[rid]
    found = []
    for other, cosine in near.items():
        old = records.get(other)
        if old is None or cosine is None or old.said_at >= new.said_at or is_mere_question(old):
            continue
        if old.source.session == new.source.session:
            continue  # Within a conversation the model has both before it.
        found.append((new.id, old.id, outdates(old.content, new.content, cosine)))
    found.sort(key=lambda one: -one[2])
    return [one for one in found[:_MAX_LINKS] if one[2] >= _LEAST_PROBABILITY]


def _write_links(
    connection: Connection,
    space: int,
    turns: Sequence[_Turn],
    found: Mapping[int, Sequence[tuple[str, str, float]]],
    *,
    at: int,
) -> None:
    there = set(
        connection.execute(
            select(memories.c.rid)
            .select_from(memories.outerjoin(compared, compared.c.rid == memories.c.rid))
            .where(memories.c.rid.in_([turn.rid for turn in turns]), compared.c.rid.is_(None))
        ).scalars()
    )
    for turn in turns:
        if turn.rid not in there:
            continue  # It was forgotten meanwhile.
        connection.execute(insert(compared), {"rid": turn.rid, "compared_at": at})
        for newer, older, probability in found.get(turn.rid, ()):
            why = f"compared: may be out of date, probability {probability:.2f}"
            weight = round(probability, 4)
            try:
                lifecycle.link(
                    connection,
                    space,
                    newer,
                    older,
                    MAY_REPLACE,
                    weight,
                    at=at,
                    who=lifecycle.COMPARE,
                    why=why,
                )
            except (NotFound, UsageError):
                continue  # The earlier one was forgotten meanwhile.


def outdates(older: str, newer: str, similarity: float) -> float:
    """The probability that a later turn of the user makes an earlier turn out of date, 0 to 1. Takes about 1 ms.

    Args:
        older: What the user or the assistant said.
        newer: What the user said later, in another session.
        similarity: The cosine of the two that are most similar of their passages' embeddings.
    """
    strength, per_cosine = strength_of(older, newer)
    return 1 / (1 + math.exp(-strength - per_cosine * max(0.0, similarity)))


def strength_of(older: str, newer: str) -> tuple[float, float]:
    """The same for any cosine: the log-odds at a cosine of 0, and what a cosine of 1 adds to them."""
    found = features_of_turns(read_statement(older), read_statement(newer), 1.0)
    weights = weights_of("turns")
    parts = {
        name: (weights["outdated"][name] - weights["holds"][name]) * value for name, value in found.items()
    }
    per_cosine = parts.pop("cosine_and_change")
    return sum(parts.values()), per_cosine


def features_of_turns(old: Statement, new: Statement, similarity: float) -> dict[str, float]:
    """The features of two turns, by the names in `TURN_FEATURES`."""
    had, has = set(old.stems), set(new.stems)
    changes = min(1.0, (new.ends + new.begins) / _MANY_CHANGES)
    return {
        "bias": 1.0,
        "cosine_and_change": max(0.0, similarity) * changes,
        "rare_words_shared": _rarity(had & has) / max(1.0, _rarity(has)),
        "names_shared": min(1.0, len(old.names & new.names) / _MANY_NAMES),
        "numbers_shared": float(bool(old.values & new.values)),
        "numbers_differ": float(bool(old.values - new.values) and bool(new.values - old.values)),
        "days_shared": float(bool(old.days & new.days)),
        "past": float(new.is_past and not old.is_past),
        "longer": (len(has) - len(had)) / max(1, len(has), len(had)),
        "words_newer": min(1.0, len(new.words) / _MANY_WORDS),
        "length_older": min(1.0, len(old.text) / _LONG_OLDER),
        "length_newer": min(1.0, len(new.text) / _LONG_NEWER),
    }


def _rarity(stems: set[int]) -> float:
    """The information of some stems in nats, by how common they are in English."""
    return -sum(math.log(lexicon.commonness(stem)) for stem in stems)
