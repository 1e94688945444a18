"""Orders the memories of a space for a question: both arms, their neighbours, and a few plain hints, added
up.

The recipe, its weights and what they were measured on stand in docs/retrieval.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, cast

import numpy as np

from satchel.memory.index import Floats, Index, Ints
from satchel.memory.lexicon import QUESTION, TIME_WORDS, commonness
from satchel.memory.question import Question, date_closeness
from satchel.memory.records import Mode

__all__ = ["Found", "Ranked", "rank"]

K1 = 1.2
B = 0.75
"""BM25's usual constants; tuning them gained nothing (notes/retrieval.md)."""

PREVIOUS = 0.6
NEXT = 0.3
"""How much of a neighbour's words count for a memory, before the gate."""

GATE_WORDS = 80.0
"""A memory of this length counts half of what its neighbours and its session say; a page hardly any of it."""

CANDIDATES = 100
FOLLOWED = 30
"""Each arm gives its first 100; what was said right after its first 30 is looked at too."""

PRIOR = 50.0
"""Texts of general English that are thought added to a store when the weight of a word is computed: in one of
three
memories every word is rare."""

_DAY_ZERO = date(1970, 1, 1).toordinal()
_FIRST_DAY, _LAST_DAY = date.min.toordinal() - _DAY_ZERO, date.max.toordinal() - _DAY_ZERO

WEIGHTS: Mapping[str, float] = {
    "lexical": 2.7,
    "session": 2.5,
    "dense": 3.8,
    "answer": 2.3,
    "speaker": 1.1,
    "time": 2.2,
    "date": 3.6,
    "statement": 0.85,
    "page_lexical": 0.8,
    "page_dense": 3.0,
}
"""Learned on conversations, each scored with what the others taught, and weighed against pages and one-line
facts;
none may be negative, so that no memory is ever pushed down for what it says."""

_TOTAL = sum(WEIGHTS.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """One row that was found.

    Attributes:
        score: In [0, 1].
        coverage: The share of the question's words that the row has, rare words counting more: 0 to 1,
        comparable
            between questions.
        telling: The same, not as a share: the sum of -ln of how common each word is in English; 6.2 for a
        rare one.
        named: Whether the row has one of the question's proper names.
        cosine: Of the row's best passage and the question, or None where it has no vector.
        signals: What `score` is made of.
    """

    row: int
    rid: int
    score: float
    coverage: float
    telling: float
    named: bool
    cosine: float | None
    signals: Mapping[str, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a search found, best first, and what the question's cosines with all vectors are like.

    Attributes:
        compared: The number of vectors; `cosine_sum` and `cosine_square_sum` are over all of them.
    """

    ranked: tuple[Ranked, ...] = ()
    compared: int = 0
    cosine_sum: float = 0.0
    cosine_square_sum: float = 0.0


def rank(
    index: Index, question: Question, vector: Floats | None, *, limit: int, mode: Mode = "hybrid"
) -> Found:
    """Find the rows that fit a question, best first.

    Args:
        index: The space.
        question: What is asked.
        vector: Of the question, shape (d,), unit length; None where no embedder serves.
        limit: At most so many.
        mode: "lexical" takes no notice of vectors, "dense" of nothing else.
    """
    if not index.alive_count or limit <= 0:
        return Found()
    reach = max(CANDIDATES, limit)
    gate = _gate(index)
    before, after = index.neighbours()
    lexical = _bm25(index, question.stems if mode != "dense" else (), gate)
    cosine = every = None
    if mode != "lexical" and vector is not None:
        cosine, every = _cosines(index, vector)
    chosen = _candidates(lexical, cosine, after, reach, index.alive)
    if not len(chosen):
        return Found()
    parts: dict[str, Any] = {"lexical": _to_one(lexical[chosen])}
    if cosine is None:
        parts["dense"] = parts["answer"] = None
    else:
        near = np.maximum(cosine, 0)
        own = near[chosen]
        bare = np.isnan(own)
        if bare.any():
            # Not embedded yet: neither better nor worse for it than the others.
            own[bare] = 0.0 if bare.all() else own[~bare].mean()
        parts["dense"] = _to_one(own)
        parts["answer"] = _to_one(_answers(index, near, chosen, before) * gate[chosen])
    if mode == "dense":
        if cosine is None:
            return Found()
        chosen, score = chosen, parts["dense"]
        parts = {"dense": parts["dense"]}
    else:
        page = 1 - gate[chosen]
        parts["page_lexical"] = page * parts["lexical"]
        parts["page_dense"] = None if parts["dense"] is None else page * parts["dense"]
        parts["session"] = gate[chosen] * _session_prior(index, chosen, parts["lexical"])
        parts["speaker"] = (
            (index.speakers[chosen] == question.speaker).astype(np.float32)
            if question.speaker is not None
            else None
        )
        parts["time"] = (
            index.has_feature(TIME_WORDS)[chosen].astype(np.float32) if question.asks_when else None
        )
        parts["date"] = _date_fit(index, question, chosen) if question.dates else None
        parts["statement"] = (~index.has_feature(QUESTION)[chosen]).astype(np.float32)
        score = sum(WEIGHTS[name] * part for name, part in parts.items() if part is not None) / _TOTAL
    # Of two that score the same, what was written later.
    best = np.lexsort((-chosen, -score))[:limit]
    telling, most = _telling(index, question.stems, chosen[best])
    named = _named(index, question.names, chosen[best])
    ranked = tuple(
        Ranked(
            row=int(chosen[at]),
            rid=int(index.rids[chosen[at]]),
            score=float(score[at]),
            coverage=float(telling[place]) / max(most, 1e-9),
            telling=float(telling[place]),
            named=bool(named[place]),
            cosine=None if cosine is None or np.isnan(cosine[chosen[at]]) else float(cosine[chosen[at]]),
            signals=_signals(parts, at, None if cosine is None else cosine[chosen[at]]),
        )
        for place, at in enumerate(best)
    )
    if every is None:
        return Found(ranked=ranked)
    return Found(
        ranked=ranked,
        compared=len(every),
        cosine_sum=float(every.sum()),
        cosine_square_sum=float(every @ every),
    )


def _signals(parts: Mapping[str, Any], at: int, cosine: float | None) -> dict[str, float | None]:
    """What one row's score is made of: shares that add up to it, and the raw cosine."""
    signals: dict[str, float | None] = {
        name: round(float(WEIGHTS[name] * part[at] / _TOTAL), 6)
        for name, part in parts.items()
        if part is not None and part[at] and name != "dense"
    }
    signals["dense"] = None if cosine is None or np.isnan(cosine) else round(float(cosine), 6)
    return signals


def _to_one(values: Any) -> Any:
    """Divide by the greatest."""
    top = values.max()
    return values / top if top > 0 else values


def _gate(index: Index) -> Any:
    """How much of its neighbours and its session counts for each row: 1 for a short one, falling with its
    length.
    """
    return index.derived("gate", lambda: 1.0 / (1.0 + (index.words / np.float32(GATE_WORDS)) ** 2))


def _length_norm(index: Index, gate: Any) -> Any:
    """BM25's length term of each row, its neighbours' words mixed in as its own are."""

    def compute() -> Any:
        before, after = index.neighbours()
        own = index.stem_counts
        mixed = own + gate * (
            PREVIOUS * np.where(before >= 0, own[before], 0) + NEXT * np.where(after >= 0, own[after], 0)
        )
        mean = mixed[index.alive].mean()
        return (K1 * (1 - B + B * mixed / max(mean, 1e-9))).astype(np.float32)

    return index.derived("length_norm", compute)


def _bm25(index: Index, stems: Sequence[int], gate: Any) -> Any:
    """Score every row by the question's stems in it and, as weighted fields, in its neighbours."""
    count = index.alive_count
    before, after = index.neighbours()
    norm = _length_norm(index, gate)
    scores = np.zeros(len(index), dtype=np.float32)
    for stem in stems:
        rows, counts = index.postings(stem)
        plain = _rarity(count + PRIOR, len(rows) + PRIOR * commonness(stem))
        if not len(rows):
            continue
        mixed = np.zeros(len(index), dtype=np.float32)
        mixed[rows] = counts
        # No row is twice the next of another, so that plain indexing adds up right.
        for neighbour, share in ((after[rows], PREVIOUS), (before[rows], NEXT)):
            there = neighbour >= 0
            target = neighbour[there]
            mixed[target] += gate[target] * np.float32(share) * counts[there]
        touched = np.flatnonzero(mixed)
        part = mixed[touched]
        scores[touched] += np.float32(plain * (K1 + 1)) * part / (part + norm[touched])
    return scores


def _rarity(count: float, having: float) -> float:
    """BM25's weight of a stem that `having` of `count` rows have."""
    return math.log(1 + (count - having + 0.5) / (having + 0.5))


def _telling(index: Index, stems: Sequence[int], chosen: Ints) -> tuple[Any, float]:
    """How much the question's stems that each row has itself tell, and how much all of them would."""
    telling = np.zeros(len(chosen), dtype=np.float32)
    most = 0.0
    for stem in stems:
        weight = math.log(1 / commonness(stem))
        most += weight
        telling += np.float32(weight) * np.isin(chosen, index.postings(stem)[0])
    return telling, most


def _named(index: Index, names: Sequence[int], chosen: Ints) -> Any:
    """Which rows have one of the names."""
    found = np.zeros(len(chosen), dtype=np.bool_)
    for name in names:
        found |= np.isin(chosen, index.postings(name)[0])
    return found


def _cosines(index: Index, vector: Floats) -> tuple[Any, Floats]:
    """The best cosine of every row, NaN where it has no vector; and the cosine of every vector."""
    found = index.cosines(vector)
    cosine = np.full(len(index), np.nan, dtype=np.float32)
    cosine[found.rows] = found.best
    return cosine, found.every


def _top(values: Any, count: int) -> Ints:
    """The places of the greatest values, greatest first."""
    if len(values) > count:
        places = np.argpartition(values, len(values) - count)[len(values) - count :]
    else:
        places = np.arange(len(values))
    return cast(Ints, places[np.lexsort((-places, -values[places]))])


def _candidates(lexical: Any, cosine: Any, after: Ints, reach: int, alive: Any) -> Ints:
    """The union of both arms, and what was said right after their first."""
    arms = []
    by_words = _top(np.where(alive, lexical, -1), reach)
    arms.append(by_words[lexical[by_words] > 0])
    if cosine is not None:
        comparable = np.where(alive & ~np.isnan(cosine), cosine, np.float32(-2))
        by_meaning = _top(comparable, reach)
        arms.append(by_meaning[comparable[by_meaning] > -2])
    followed = [after[arm[:FOLLOWED]] for arm in arms]
    chosen = np.unique(np.concatenate([*arms, *followed]))
    chosen = chosen[chosen >= 0]
    return cast(Ints, chosen[alive[chosen]])


def _answers(index: Index, near: Any, chosen: Ints, before: Ints) -> Any:
    """The cosine of the question that a row answers, where the row before it is one."""
    previous = before[chosen]
    asked = (previous >= 0) & index.has_feature(QUESTION)[previous]
    return np.where(asked, np.nan_to_num(near[previous]), 0)


def _session_prior(index: Index, chosen: Ints, lexical: Any) -> Any:
    """For each candidate, the mean of its session's three best by words; 0 for a row without a session."""
    sessions = index.sessions[chosen]
    sizes = index.derived(
        "session_sizes", lambda: np.bincount(index.sessions[(index.sessions >= 0) & index.alive])
    )
    prior = np.zeros(len(chosen), dtype=np.float32)
    order = np.lexsort((-lexical, sessions))
    starts = np.flatnonzero(np.r_[True, sessions[order][1:] != sessions[order][:-1]])
    for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
        session = sessions[order[start]]
        if session >= 0:
            best = lexical[order[start : min(start + 3, end)]]
            prior[order[start:end]] = best.sum() / min(3, sizes[session])
    return prior


def _date_fit(index: Index, question: Question, chosen: Ints) -> Any:
    """How well the day of each candidate fits the dates that the question names."""
    fit = np.zeros(len(chosen), dtype=np.float32)
    for at, day in enumerate(index.days[chosen]):
        said = date.fromordinal(int(min(max(day, _FIRST_DAY), _LAST_DAY)) + _DAY_ZERO)
        fit[at] = max(
            date_closeness(named, said.year, said.month, said.day, said.toordinal())
            for named in question.dates
        )
    return fit
