"""The two searches that the seeds describe, with their formulas as they stand there, over every memory.

`semantic` (seed-2, section 4.3): cosine x importance / 3 x recency weight, above a threshold.
`keyword` (seed-0, "Memory retrieval"): priority + 0.3 for each keyword in a tag + 0.2 for each in the words + up to
0.2 for use within the last 24 hours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from sqlalchemy import Connection

from satchel.memory.records import Hit, MemoryRecord
from satchel.memory.store.decay import cycles_since, factors, recency_weight
from satchel.memory.store.filters import CheckedFilters, VisibleOf
from satchel.memory.store.micros import to_micros
from satchel.memory.store.repository import fading, matching_rids, read_records
from satchel.memory.text import lexicon

SEMANTIC_THRESHOLD = 0.45
"""Only what scores above it is given (seed-2; it belongs to MiniLM)."""

_TAG = 0.3
_CONTENT = 0.2
_RECENCY = 0.2
_RECENCY_H = 24.0
_DAY = timedelta(days=1)
_DAY_MICROS = float(_DAY // timedelta(microseconds=1))


def keywords_of(query: str) -> list[str]:
    """The words of a query that say something, in lower case, each once: function words are left out."""
    words = lexicon.words_of(query)
    return list(dict.fromkeys(word for word in words if lexicon.hash_stem(word)))


def boosts_of(
    connection: Connection, space: int, rids: Sequence[int], *, now: datetime, by_request: bool
) -> dict[int, tuple[float, float, float]]:
    """What importance, recency and priority multiply the scores of memories by; see `decay.factors`."""
    at = to_micros(now)
    return {
        rid: factors(importance, (at - said_at) / _DAY_MICROS, left)
        for rid, importance, said_at, left in fading(connection, space, rids, at=at, by_request=by_request)
    }


def score_by_meaning(
    connection: Connection, space: int, cosines: Mapping[int, float], *, now: datetime, threshold: float
) -> list[Hit]:
    """Score memories by seed-2's formula, best first: by the cosines of the question and each one's best passage, by
    rid, and by age since it was said.
    """
    # Importance multiplies by 5 / 3 at most, and recency by 1: what is lower than this can't clear the threshold.
    wanted = [rid for rid, cosine in cosines.items() if cosine >= threshold * 3 / 5]
    found: list[Hit] = []
    for rid, record in read_records(connection, space, wanted).items():
        parts = {
            "dense": cosines[rid],
            "importance": record.importance / 3,
            "recency": recency_weight(max(0.0, (now - record.said_at) / _DAY)),
        }
        if (score := math.prod(parts.values())) > threshold:
            found.append(_hit(record, score, parts))
    return _sorted(found)


def score_by_keywords(
    connection: Connection,
    space: int,
    keywords: Sequence[str],
    *,
    now: datetime,
    by_request: bool,
    visible: VisibleOf,
) -> list[Hit]:
    """Score memories by seed-0's formula, best first, where a keyword stands inside a tag or the words, whatever the
    case. Decay counts chat requests with `by_request`, else days.
    """
    seen = visible(connection)
    shown = [rid for rid in matching_rids(connection, space, CheckedFilters()) if seen.shows(rid)]
    records = read_records(connection, space, shown if keywords else ())
    faded = fading(connection, space, list(records), at=to_micros(now), by_request=by_request)
    left = {rid: priority for rid, _, _, priority in faded}
    found: list[Hit] = []
    for rid, record in records.items():
        content, tags = record.content.lower(), [tag.lower() for tag in record.tags]
        in_tags = sum(any(word in tag for tag in tags) for word in keywords)
        in_words = sum(word in content for word in keywords)
        if in_tags or in_words:
            fresh = max(0.0, 1.0 - cycles_since(record, now) * 24 / _RECENCY_H)
            parts = {
                "priority": left[rid],
                "tags": _TAG * in_tags,
                "content": _CONTENT * in_words,
                "recency": fresh * _RECENCY,
            }
            found.append(_hit(record, sum(parts.values()), parts))
    return _sorted(found)


def _hit(record: MemoryRecord, score: float, parts: Mapping[str, float]) -> Hit:
    return Hit(
        memory=record,
        score=round(score, 6),
        signals={name: round(value, 6) for name, value in parts.items()},
    )


def _sorted(hits: list[Hit]) -> list[Hit]:
    return sorted(hits, key=lambda hit: hit.score)[::-1]
