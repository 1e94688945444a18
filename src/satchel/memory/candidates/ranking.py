"""Orders the memories of a space for a question: both arms, what stands beside each memory, the words one by one, and
a few plain hints, added up.

The recipe and what each part of it is worth stand in docs/concepts/retrieval.md, the weights in `weights`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

import numpy as np

from satchel.memory.candidates.arrays import Floats, Ints, distinct
from satchel.memory.candidates.entries import Spread
from satchel.memory.candidates.index import Index
from satchel.memory.candidates.tokens import Bag, match, weigh
from satchel.memory.candidates.weights import WITH_TOKENS, WITHOUT_TOKENS
from satchel.memory.lexicon import QUESTION, TIME_WORDS, commonness
from satchel.memory.question import Question, date_closeness
from satchel.memory.records import Mode

if TYPE_CHECKING:
    from satchel.models.port import TokenVectors

__all__ = [
    "Candidates",
    "Factors",
    "Found",
    "Ranked",
    "Scores",
    "choose",
    "rank",
    "score",
    "top",
    "within_reach",
]

K1 = 1.2
B = 0.75
"""BM25's usual constants; tuning them gained nothing."""

PREVIOUS = 0.6
NEXT = 0.3
"""How much of a neighbour's words count for a memory, before the gate."""

GATE_WORDS = 80.0
"""A memory of this length counts half of what its neighbours and its session say; a page hardly any of it."""

CANDIDATES = 100
FOLLOWED = 30
"""Each arm gives its first 100; what was said right after its first 30 is looked at too. 200 of each gain nothing."""

ECHO = 0.999
"""The cosine of a text with itself, but for rounding."""

PRIOR = 50.0
"""Texts of general English that are thought added to a store when the weight of a word is computed: in one of three
memories every word is rare."""

_MANY_ROWS = 4
"""A stem in more than one of so many rows has its counts kept for every row, which are added faster than found."""

_BEST_OF_SESSION = 3

LEAST_FACTOR, MOST_FACTOR = 0.9**3, 1.1**3
"""What a score may be multiplied with: importance, recency and priority are worth ±10 % each (DESIGN 5)."""

_DAY_ZERO = date(1970, 1, 1).toordinal()
_FIRST_DAY, _LAST_DAY = date.min.toordinal() - _DAY_ZERO, date.max.toordinal() - _DAY_ZERO

Factors: TypeAlias = Callable[[Ints], Floats]
"""Given rids, what their scores are multiplied with: how much each matters, whatever the question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """One row that was found.

    Attributes:
        score: In [0, 1] before factors.
        coverage: The share of the question's words that the row has, rare words counting more: 0 to 1, comparable
            between questions.
        telling: The same, not as a share: the sum of -ln of how common each word is in English; 6.2 for a rare one.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """The rows that are looked at closely, and what is known of each so far.

    Attributes:
        rows: In order.
        rids: Theirs.
        previous: The row before each in its session, or -1.
        gate: How much what stands beside each counts.
        lexical: BM25 of each, neighbours included.
        cosine: Of the best passage of each, NaN where it has no vector; None where no vectors were compared.
        bags: The tokens that the index has of the rows and of those before them, by row.
        lacking_tokens: The rids whose tokens `score` would compare as well, but which have to be read first.
        compared: As in `Found`, and so are the sums.
    """

    rows: Ints
    rids: Ints
    previous: Ints
    gate: Floats
    lexical: Floats
    cosine: Floats | None
    bags: Mapping[int, Bag]
    lacking_tokens: Sequence[int]
    compared: int
    cosine_sum: float
    cosine_square_sum: float


class Scores(NamedTuple):
    """How well each candidate fits: 0 to 1, what that is made of, each 0 to 1, and what each part is worth."""

    values: Floats
    parts: Mapping[str, Any]
    weights: Mapping[str, float]


def choose(
    index: Index,
    question: Question,
    vector: Floats | None,
    *,
    limit: int,
    mode: Mode = "hybrid",
    with_tokens: bool = False,
    only: Any = None,
    without_echoes: bool = False,
) -> Candidates | None:
    """Find the rows that may fit a question; None where there are none.

    Args:
        index: The space.
        question: What is asked.
        vector: Of the question, shape (d,), unit length; None where no embedder serves.
        limit: How many `rank` is to give.
        mode: "lexical" takes no notice of vectors, "dense" of nothing else.
        with_tokens: Whether `score` gets the question's tokens.
        only: Which rows may be found, shape (rows,), bool; None for all. The others still count as neighbours.
        without_echoes: Whether rows that say the question itself are neither found nor compared: somebody who asks the
            same every day has many of them, and beside them no answer would stand out.
    """
    if not index.alive_count or limit <= 0:
        return None
    gate = _gate(index)
    before, after = index.neighbours()
    lexical = _bm25(index, question.stems if mode != "dense" else (), gate)
    cosine = every = None
    if mode != "lexical" and vector is not None:
        cosine, every = _cosines(index, vector)
        if without_echoes:
            every = every[every < ECHO]
            # NaN, where there is no vector, is no echo; and a statement in the words of the question answers it.
            others = ~((cosine >= ECHO) & index.has_feature(QUESTION))
            only = others if only is None else only & others
    rows = _candidates(index, lexical, cosine, after, max(CANDIDATES, limit), only)
    if not len(rows) or (mode == "dense" and cosine is None):
        return None
    previous = before[rows]
    bags: Mapping[int, Bag] = {}
    lacking: Sequence[int] = ()
    if with_tokens and mode == "hybrid":
        bags, lacking = index.bags(_with_previous(rows, previous))
    return Candidates(
        rows=rows,
        rids=index.rids[rows],
        previous=previous,
        gate=gate[rows],
        lexical=lexical[rows],
        cosine=None if cosine is None else cosine[rows],
        bags=bags,
        lacking_tokens=lacking,
        compared=0 if every is None else len(every),
        cosine_sum=0.0 if every is None else float(every.sum()),
        cosine_square_sum=0.0 if every is None else float(every @ every),
    )


def score(
    index: Index,
    question: Question,
    chosen: Candidates,
    *,
    mode: Mode = "hybrid",
    tokens: TokenVectors | None = None,
    read: Mapping[int, Bag] = MappingProxyType({}),
) -> Scores:
    """Say how well each candidate fits.

    Args:
        index: The space.
        question: What is asked.
        chosen: By `choose`, with the same question and mode.
        mode: As in `choose`.
        tokens: Of the question, where the embedder gives any.
        read: By row, what was lacking.
    """
    rows = chosen.rows
    parts: dict[str, Any] = {}
    if chosen.cosine is not None:
        parts["dense"] = _to_one(_filled(np.maximum(chosen.cosine, 0), ~np.isnan(chosen.cosine)))
    if mode == "dense":
        return Scores(values=parts["dense"], parts=parts, weights={"dense": 1.0})
    with_tokens = tokens is not None and mode == "hybrid"
    weights = WITH_TOKENS if with_tokens else WITHOUT_TOKENS
    parts["lexical"] = _to_one(chosen.lexical)
    if tokens is not None and with_tokens:
        parts.update(_token_parts(index, question, chosen, tokens, {**chosen.bags, **read}))
    else:
        parts["echo"] = _echo(index, question.stems, chosen)
    page = 1 - chosen.gate
    parts["page_lexical"] = page * parts["lexical"]
    if "dense" in parts:
        parts["page_dense"] = page * parts["dense"]
    parts["page_words"] = page * _share_of_words(index, question.stems, rows) ** 3
    parts["session"] = chosen.gate * _session_prior(index, rows, parts["lexical"])
    if with_tokens and "dense" in parts:
        parts["session_dense"] = _to_one(chosen.gate * _session_prior(index, rows, parts["dense"]))
    if question.speaker is not None:
        parts["speaker"] = (index.speakers[rows] == question.speaker).astype(np.float32)
    if question.asks_when:
        parts["time"] = index.has_feature(TIME_WORDS)[rows].astype(np.float32)
    if question.dates:
        parts["date"] = _date_fit(index, question, rows)
    parts["statement"] = (~index.has_feature(QUESTION)[rows]).astype(np.float32)
    values = sum(weights[name] * part for name, part in parts.items()) / sum(weights.values())
    return Scores(values=values, parts=parts, weights=weights)


def within_reach(chosen: Candidates, scores: Scores, limit: int) -> Ints:
    """The rids of the candidates that factors could bring among the first `limit`: a third of them, as a rule."""
    values = scores.values
    if len(values) <= limit:
        return chosen.rids
    last = float(np.partition(values, len(values) - limit)[len(values) - limit])
    return cast(Ints, chosen.rids[values >= last * (LEAST_FACTOR / MOST_FACTOR)])


def rank(
    index: Index,
    question: Question,
    chosen: Candidates,
    scores: Scores,
    *,
    limit: int,
    factors: Factors | None = None,
) -> Found:
    """Order candidates, best first.

    Args:
        index: The space.
        question: What is asked.
        chosen: By `choose`.
        scores: Theirs.
        limit: At most so many.
        factors: What scores are multiplied with; asked for every candidate, it matters for those `within_reach`.
    """
    rows = chosen.rows
    cosine = chosen.cosine
    values = scores.values if factors is None else scores.values * factors(chosen.rids)
    # Of two that score the same, what was written later.
    best = np.lexsort((-rows, -values))[:limit]
    telling, most = _telling(index, question.stems, rows[best])
    named = _named(index, question.names, rows[best])
    ranked = []
    for place, at in enumerate(best.tolist()):
        near = None if cosine is None or np.isnan(cosine[at]) else float(cosine[at])
        ranked.append(
            Ranked(
                row=int(rows[at]),
                rid=int(chosen.rids[at]),
                score=float(values[at]),
                coverage=float(telling[place]) / max(most, 1e-9),
                telling=float(telling[place]),
                named=bool(named[place]),
                cosine=near,
                signals=_signals(scores, at, near),
            )
        )
    return Found(
        ranked=tuple(ranked),
        compared=chosen.compared,
        cosine_sum=chosen.cosine_sum,
        cosine_square_sum=chosen.cosine_square_sum,
    )


def _signals(scores: Scores, at: int, cosine: float | None) -> dict[str, float | None]:
    """What one row's score is made of: shares that add up to it but for that of "dense", which is the plain cosine."""
    total = sum(scores.weights.values())
    signals: dict[str, float | None] = {
        name: round(float(scores.weights[name] * part[at] / total), 6)
        for name, part in scores.parts.items()
        if name != "dense" and part[at]
    }
    signals["dense"] = None if cosine is None else round(cosine, 6)
    return signals


def _filled(values: Any, known: Any) -> Any:
    """What is not embedded yet is neither better nor worse for it than the others."""
    if known.all():
        return values
    return np.where(known, values, values[known].mean() if known.any() else 0.0).astype(np.float32)


def _token_parts(
    index: Index,
    question: Question,
    chosen: Candidates,
    tokens: TokenVectors,
    bags: Mapping[int, Bag],
) -> dict[str, Any]:
    """The parts that compare tokens."""
    size = index.alive_count

    def rarity(stem: int) -> float:
        return _rarity(size + PRIOR, len(index.postings(stem).rows) + PRIOR * commonness(stem))

    needed = _with_previous(chosen.rows, chosen.previous)
    found = match(
        weigh(question.text, tokens, rarity),
        [bags.get(row) for row in needed.tolist()],
        own=np.searchsorted(needed, chosen.rows),
        previous=np.where(chosen.previous >= 0, np.searchsorted(needed, chosen.previous), -1),
        gate=chosen.gate,
    )
    return {
        "match": _to_one(_filled(found.window, found.known)),
        "reply": _to_one(_filled(found.reply, found.known)),
        "asked": _to_one(found.asked),
    }


def _with_previous(rows: Ints, previous: Ints) -> Ints:
    return distinct(np.concatenate([rows, previous[previous >= 0]]))


def _echo(index: Index, stems: Sequence[int], chosen: Candidates) -> Any:
    """The share of the question's words, by rarity, that a question just before each row has."""
    size = index.alive_count
    found = np.zeros(len(chosen.rows), dtype=np.float32)
    total = 0.0
    for stem in stems:
        having = index.postings(stem)
        rarity = _rarity(size + PRIOR, len(having.rows) + PRIOR * commonness(stem))
        total += rarity
        found += np.float32(rarity) * _among(having.asked, chosen.previous)
    return chosen.gate * found / np.float32(max(total, 1e-9))


def _share_of_words(index: Index, stems: Sequence[int], rows: Ints) -> Any:
    """The share of the question's words, by rarity, that each row has itself."""
    size = index.alive_count
    found = np.zeros(len(rows), dtype=np.float32)
    total = 0.0
    for stem in stems:
        having = index.postings(stem).rows
        rarity = _rarity(size + PRIOR, len(having) + PRIOR * commonness(stem))
        total += rarity
        found += np.float32(rarity) * _among(having, rows)
    return found / np.float32(max(total, 1e-9))


def _among(ascending: Ints, rows: Ints) -> Any:
    """Which of the rows are in an ascending list."""
    if not len(ascending):
        return np.zeros(len(rows), dtype=np.bool_)
    place = np.minimum(np.searchsorted(ascending, rows), len(ascending) - 1)
    return ascending[place] == rows


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
    scores = np.zeros(len(index), dtype=np.float32)
    if not stems:
        return scores
    count, norm = index.alive_count, _length_norm(index, gate)
    for stem in stems:
        having = len(index.postings(stem).rows)
        weight = np.float32(_rarity(count + PRIOR, having + PRIOR * commonness(stem)) * (K1 + 1))
        rows, counts = index.spread(
            stem,
            spread=partial(_spread, index, stem, gate),
            fix=partial(_spread_to, index, stem, gate),
        )
        if rows is None:
            scores += weight * counts / (counts + norm)
        else:
            scores[rows] += weight * counts / (counts + norm[rows])
    return scores


def _spread(index: Index, stem: int, gate: Any) -> Spread:
    """How often rows have a stem, their neighbours' counts mixed in."""
    before, after = index.neighbours()
    rows, counts, _ = index.postings(stem)
    mixed = np.zeros(len(index), dtype=np.float32)
    mixed[rows] = counts
    # No row is twice the next of another, so that plain indexing adds up right.
    for neighbour, share in ((after[rows], PREVIOUS), (before[rows], NEXT)):
        there = neighbour >= 0
        target = neighbour[there]
        mixed[target] += gate[target] * np.float32(share) * counts[there]
    having = np.flatnonzero(mixed)
    if len(having) > len(mixed) // _MANY_ROWS:
        return Spread(None, mixed)
    return Spread(having.astype(np.int32), mixed[having])


def _spread_to(index: Index, stem: int, gate: Any, rows: Ints) -> Floats:
    """What `_spread` gives, for some rows alone."""
    before, after = index.neighbours()
    having, counts, _ = index.postings(stem)

    def counted(some: Ints) -> Any:
        if not len(having):
            return np.zeros(len(some), dtype=np.float32)
        place = np.minimum(np.searchsorted(having, some), len(having) - 1)
        return np.where(having[place] == some, counts[place], np.float32(0))

    mixed = counted(rows)
    for neighbour, share in ((before[rows], PREVIOUS), (after[rows], NEXT)):
        mixed += gate[rows] * np.float32(share) * counted(neighbour)
    return cast(Floats, mixed)


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
        telling += np.float32(weight) * _among(index.postings(stem).rows, chosen)
    return telling, most


def _named(index: Index, names: Sequence[int], chosen: Ints) -> Any:
    """Which rows have one of the names."""
    found = np.zeros(len(chosen), dtype=np.bool_)
    for name in names:
        found |= _among(index.postings(name).rows, chosen)
    return found


def _cosines(index: Index, vector: Floats) -> tuple[Any, Floats]:
    """The best cosine of every row, NaN where it has no vector; and the cosine of every vector."""
    found = index.cosines(vector)
    if len(found.best) == len(index) and index.derived("vectors_in_order", lambda: _in_order(found.rows)):
        return found.best, found.every
    cosine = np.full(len(index), np.nan, dtype=np.float32)
    cosine[found.rows] = found.best
    return cosine, found.every


def _in_order(rows: Any) -> bool:
    """Whether every row has its vectors at its own place."""
    return bool((rows == np.arange(len(rows))).all())


def top(values: Any, count: int) -> Ints:
    """The places of the greatest values, greatest first."""
    if len(values) > count:
        places = np.argpartition(values, len(values) - count)[len(values) - count :]
    else:
        places = np.arange(len(values))
    return cast(Ints, places[np.lexsort((-places, -values[places]))])


def _candidates(index: Index, lexical: Any, cosine: Any, after: Ints, reach: int, only: Any) -> Ints:
    """The union of both arms, and what was said right after their first."""
    wanted = index.alive if only is None else index.alive & only
    dead = None if only is None and index.alive_count == len(index) else ~wanted
    arms = []
    if dead is not None:
        lexical = np.where(dead, 0, lexical)
    by_words = top(lexical, reach)
    arms.append(by_words[lexical[by_words] > 0])
    if cosine is not None:
        # A row without a vector has no cosine; -2 is below every one.
        comparable = np.nan_to_num(cosine, nan=-2.0)
        if dead is not None:
            comparable[dead] = -2
        by_meaning = top(comparable, reach)
        arms.append(by_meaning[comparable[by_meaning] > -2])
    followed = [after[arm[:FOLLOWED]] for arm in arms]
    chosen = distinct(np.concatenate([*arms, *followed]))
    chosen = chosen[chosen >= 0]
    return cast(Ints, chosen[wanted[chosen]])


def _session_prior(index: Index, rows: Ints, values: Any) -> Any:
    """For each candidate, a third of the sum of its session's three best; what belongs to no session is one of its
    own.
    """
    sessions = index.sittings().number[rows]
    sessions = np.where(sessions >= 0, sessions, -1 - rows)
    order = np.lexsort((-values, sessions))
    ordered = sessions[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    sizes = np.diff(np.r_[starts, len(order)])
    place = np.arange(len(order)) - np.repeat(starts, sizes)
    best = np.add.reduceat(np.where(place < _BEST_OF_SESSION, values[order], 0), starts) / _BEST_OF_SESSION
    prior = np.zeros(len(rows), dtype=np.float32)
    prior[order] = np.repeat(best, sizes)
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
