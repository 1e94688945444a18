"""The two searches that the seeds describe, with their formulas as they stand there, over every memory.

`semantic` (seed-2, section 4.3): cosine x importance / 3 x recency weight, above a threshold.
`keyword` (seed-0, "Memory retrieval"): priority + 0.3 for each keyword in a tag + 0.2 for each in the words + up to
0.2 for use within the last 24 hours.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, bindparam, func, select

from satchel.memory.store.decay import factors, recency_weight
from satchel.memory.store.micros import to_micros
from satchel.memory.store.repository import among, listed, requests_so_far
from satchel.memory.store.tables import memories, spaces, tags, uses
from satchel.memory.text import lexicon
from satchel.storage import Prepared

__all__ = [
    "SEMANTIC_THRESHOLD",
    "Scored",
    "boosts_of",
    "keywords_of",
    "score_by_keywords",
    "score_by_meaning",
]

SEMANTIC_THRESHOLD = 0.45
"""Only what scores above it is given (seed-2; it belongs to MiniLM)."""

_TAG = 0.3
_CONTENT = 0.2
_RECENCY = 0.2
_RECENCY_H = 24.0
_HOUR = timedelta(hours=1) // timedelta(microseconds=1)
_DAY = 24.0 * _HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """One memory and what its score is made of."""

    rid: int
    score: float
    signals: dict[str, float | None]


def keywords_of(query: str) -> list[str]:
    """The words of a query that say something, in lower case, each once: function words are left out."""
    words = lexicon.words_of(query)
    return list(dict.fromkeys(word for word in words if lexicon.hash_stem(word)))


_BOOSTED = Prepared(
    select(
        memories.c.rid,
        memories.c.importance,
        memories.c.said_at,
        memories.c.priority,
        memories.c.decay_rate,
        func.coalesce(uses.c.last_accessed, memories.c.created_at),
        func.coalesce(uses.c.request, memories.c.request),
    )
    .select_from(memories.outerjoin(uses, uses.c.rid == memories.c.rid))
    # The sum keeps SQLite from walking the index of a whole space for a few known rows.
    .where(memories.c.rid.in_(listed(bindparam("rids"))), memories.c.space_id + 0 == bindparam("space"))
)
"""Made once: making it took longer than running it."""


def boosts_of(
    connection: Connection, space: int, rids: Sequence[int], *, now: datetime, by_request: bool
) -> dict[int, float]:
    """What importance, recency and priority multiply the scores of memories by; see `decay.boost`."""
    at = to_micros(now)
    requests = requests_so_far(connection, space)
    found: dict[int, float] = {}
    rows = _BOOSTED.run(connection, {"rids": json.dumps(list(rids)), "space": space})
    for rid, importance, said_at, priority, decay_rate, used_at, used_request in rows:
        passed = requests - used_request if by_request else max(0, at - used_at) / _DAY
        left = max(0.0, priority - decay_rate * passed)
        by_importance, by_recency, by_priority = factors(importance, (at - said_at) / _DAY, left)
        found[rid] = by_importance * by_recency * by_priority
    return found


def score_by_meaning(
    connection: Connection,
    space: int,
    cosines: Mapping[int, float],
    *,
    now: datetime,
    threshold: float,
) -> list[Scored]:
    """Score memories by seed-2's formula, best first.

    Args:
        connection: In a transaction.
        space: Where they are.
        cosines: Of the question and each memory's best passage, by rid.
        now: What ages are counted to; a memory's age is counted from when it was said.
        threshold: Only scores above it are given.
    """
    at = to_micros(now)
    # Importance multiplies by 5 / 3 at most, and recency by 1: what is lower than this can't clear the threshold.
    least = threshold * 3 / 5
    wanted = [rid for rid, cosine in cosines.items() if cosine >= least]
    found: list[Scored] = []
    rows = connection.execute(
        select(memories.c.rid, memories.c.importance, memories.c.said_at).where(
            memories.c.space_id + 0 == space, memories.c.rid.in_(among(wanted))
        )
    )
    for rid, importance, said_at in rows:
        recency = recency_weight(max(0, at - said_at) / _DAY)
        score = cosines[rid] * importance / 3 * recency
        if score > threshold:
            signals: dict[str, float | None] = {
                "dense": round(cosines[rid], 6),
                "importance": importance / 3,
                "recency": recency,
            }
            found.append(Scored(rid=rid, score=score, signals=signals))
    return sorted(found, key=lambda scored: (-scored.score, -scored.rid))


def score_by_keywords(
    connection: Connection,
    space: int,
    keywords: Sequence[str],
    *,
    now: datetime,
    by_request: bool,
    only: Collection[int] | None,
    without: Collection[int],
) -> list[Scored]:
    """Score memories by seed-0's formula, best first; those that no keyword hits are left out.

    A keyword hits where it stands inside a tag or inside the words, whatever the case.

    Args:
        connection: In a transaction.
        space: Where they are.
        keywords: In lower case.
        now: What decay and recency are counted to.
        by_request: Whether decay counts chat requests and not days.
        only: These rids alone, or None for all.
        without: Never these.
    """
    if not keywords:
        return []
    at = to_micros(now)
    requests = connection.execute(select(spaces.c.requests).where(spaces.c.id == space)).scalar_one()
    tagged: dict[int, list[str]] = {}
    for rid, tag in connection.execute(
        select(tags.c.rid, tags.c.tag)
        .join(memories, memories.c.rid == tags.c.rid)
        .where(memories.c.space_id == space)
    ):
        tagged.setdefault(rid, []).append(tag.lower())
    rows = connection.execute(
        select(
            memories.c.rid,
            memories.c.content,
            memories.c.priority,
            memories.c.decay_rate,
            memories.c.created_at,
            memories.c.request,
            uses.c.last_accessed,
            uses.c.request.label("used_request"),
        )
        .select_from(memories.outerjoin(uses, uses.c.rid == memories.c.rid))
        .where(memories.c.space_id == space)
    )
    found: list[Scored] = []
    for row in rows:
        if row.rid in without or (only is not None and row.rid not in only):
            continue
        content = row.content.lower()
        in_tags = sum(1 for word in keywords if any(word in tag for tag in tagged.get(row.rid, ())))
        in_words = sum(1 for word in keywords if word in content)
        if not in_tags and not in_words:
            continue
        used = row.created_at if row.last_accessed is None else row.last_accessed
        since = row.request if row.used_request is None else row.used_request
        passed = requests - since if by_request else max(0, at - used) / _DAY
        priority = max(0.0, row.priority - row.decay_rate * passed)
        recency = max(0.0, 1.0 - max(0, at - used) / _HOUR / _RECENCY_H) * _RECENCY
        score = priority + _TAG * in_tags + _CONTENT * in_words + recency
        signals: dict[str, float | None] = {
            "priority": round(priority, 6),
            "tags": _TAG * in_tags,
            "content": _CONTENT * in_words,
            "recency": round(recency, 6),
        }
        found.append(Scored(rid=row.rid, score=score, signals=signals))
    return sorted(found, key=lambda scored: (-scored.score, -scored.rid))
