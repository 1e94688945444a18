"""Ranks the memories of a space for a question by a sum of signals: words, meaning, tokens, the question before, the
session, and a few hints.

docs/concepts/retrieval.md defines the signals and reports what each contributes; `weights` has their weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from satchel.memory.find.candidates.arrays import Floats, Ints, distinct, is_in
from satchel.memory.find.candidates.index import BY_ASSISTANT, Index, StemScores
from satchel.memory.find.candidates.tokens import match, weigh
from satchel.memory.find.candidates.weights import WEIGHTS
from satchel.memory.find.question import ParsedQuestion, closeness
from satchel.memory.store.decay import FACTORS
from satchel.memory.text.lexicon import commonness

if TYPE_CHECKING:
    from satchel.models.port import TokenVectors

K1 = 1.2
B = 0.75
"""The usual constants of BM25; tuning them gained nothing."""

_PREVIOUS_SHARE = 0.6
_NEXT_SHARE = 0.3
"""The share of the words of the previous and the next turn that is added to a memory's own, before the gate."""

_GATE_WORDS = 80.0
"""The length at which a memory counts half of what its neighbours and its session say. A page counts almost none."""

_PER_ARM = 100
_FOLLOWED = 30
"""Each arm contributes its first 100 rows, and the turns right after its first 30. 200 of each gained nothing."""

_MOST_DAYS = 31
"""Of a time that a question names, so that what was said in it is looked at, whatever its words."""

_MAX_SPREAD = 0.12
"""The greatest standard deviation of the cosines of unrelated passages that is believed: in a store of five memories,
it is the related ones that spread."""

SAME_TEXT = 0.999
"""The cosine of a text with itself, allowing for rounding."""

_PRIOR_TEXTS = 50.0
"""Texts of general English that are added to the counts when the weight of a word is computed. Without them, every word
would be rare in a store of three memories; and every text would be as near to a question as any other."""

_PRIOR_COSINE = 0.1
"""How near such a text is to a question: with MiniLM .05 (facts) to .21 (BEAM) on average."""

_MIN_SCORE = 1e-4
"""What fits least is found all the same; only what has faded scores 0."""

_DENSE_FRACTION = 4
"""A stem in more than a quarter of the rows keeps a score for every row: adding a whole array is then faster."""

_BEST_OF_SESSION = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """One memory in a ranking; `score` is 0 to 1 before factors, and the sum of `signals`. `cosine` is that of its best
    passage, None without a vector, and `cue` that of its best cue, 0 without one.
    """

    rid: int
    score: float
    shares_word: bool
    cosine: float | None
    cue: float
    signals: Mapping[str, float | None]


def rank(
    index: Index,
    question: ParsedQuestion,
    *,
    limit: int,
    vector: Floats | None = None,
    tokens: TokenVectors | None = None,
    only: Any = None,
    read: Callable[[Sequence[int]], Mapping[int, bytes]] = lambda _: {},
    factors: Callable[[Sequence[int]], Mapping[int, Sequence[float]]] = lambda _: {},
) -> tuple[Ranked, ...]:
    """Find the rows that may answer a question, score them with every signal, and sort them, best first.

    `vector` has shape (d,), unit length. `only` says which rows may be found, shape (rows,), bool; the others still
    count as neighbours. `read` reads the packed tokens of memories, and `factors` by what their scores are multiplied,
    both by rid; a rid that isn't there keeps its score.
    """
    if not index.alive_count or limit <= 0:
        return ()
    gate = _gate(index)
    lexical = _bm25(index, question.stems, gate)
    cosine = every = cue_cosines = None
    if vector is not None:
        cosine, every = _cosines(index, vector)
        cue_cosines = index.cue_cosines(vector[None])
    cues = None if cue_cosines is None else _cues(cue_cosines)
    rows = _union_of_arms(index, question, lexical, cosine, cues, max(_PER_ARM, limit), only)
    if not len(rows):
        return ()
    gate, previous = gate[rows], index["before"][rows]
    parts: dict[str, Any] = {"words": _share_of_best(index, question.stems, lexical[rows])}
    if cosine is not None:
        parts["meaning"] = _meaning(cosine[rows], every, index.passage_counts(rows), parts["words"])
    if tokens is not None:
        parts |= _token_parts(index, question, rows, previous, gate, tokens, read, parts["words"])
    else:
        # The share of the question's words in a question right before each row.
        parts["echo"] = gate * _share_of_words(
            index, question.stems, lambda stem: is_in(index.postings(stem).asked, previous)
        )
    own = _sum_of(parts)
    if cues is not None:
        parts["cue"] = cues[rows]
    parts["session"] = gate * _session_prior(index, rows, np.maximum(own, 0))
    parts["speaker"] = _is_speaker(index, question, rows)
    if question.days:
        parts["date"] = closeness(question.days, index["day"][rows])
    scores = np.maximum(_sum_of(parts), _MIN_SCORE)
    rids = index["rid"][rows].tolist()
    multiply = factors(rids)
    values = scores * np.array([math.prod(multiply.get(rid, ())) for rid in rids], dtype=np.float32)
    # Equal scores: the row that was written later comes first.
    best = np.lexsort((-rows, -values))[:limit]
    shares_word = np.zeros(len(best), dtype=np.bool_)
    for stem in question.stems:
        shares_word |= is_in(index.postings(stem).rows, rows[best])
    ranked = []
    for place, at in enumerate(best.tolist()):
        near = None if cosine is None or np.isnan(cosine[rows[at]]) else float(cosine[rows[at]])
        ranked.append(
            Ranked(
                rid=rids[at],
                score=float(values[at]),
                shares_word=bool(shares_word[place]),
                cosine=near,
                cue=0.0 if cue_cosines is None else float(cue_cosines[rows[at]]),
                signals=_signals(parts, at, near, multiply.get(rids[at], ())),
            )
        )
    return tuple(ranked)


def _signals(
    parts: Mapping[str, Any], at: int, cosine: float | None, factors: Sequence[float]
) -> dict[str, float | None]:
    """The weighted parts of one row's score, which add up to it, and as "dense" the cosine of its best passage; and
    what the score was multiplied by.
    """
    total = sum(map(WEIGHTS.__getitem__, parts))
    signals: dict[str, float | None] = {
        name: round(float(WEIGHTS[name] * part[at] / total), 6) for name, part in parts.items() if part[at]
    }
    signals["dense"] = None if cosine is None else round(cosine, 6)
    return signals | {f"times_{name}": round(by, 6) for name, by in zip(FACTORS, factors, strict=False)}


def _fill_unknown(values: Any, known: Any, words: Any) -> Any:
    """Replace unknown values by what rows that share as many words with the question have, by a straight line through
    the known ones and within their range: rows that aren't embedded yet have no disadvantage against rows whose words
    say less.
    """
    if known.all() or not known.any():
        return np.where(known, values, 0.0).astype(np.float32)
    given, of_words = values[known], words[known]
    mean, middle = given.mean(), of_words.mean()
    spread = of_words - middle
    slope = max(float(spread @ (given - mean)), 0.0) / max(float(spread @ spread), 1e-9)
    likely = np.clip(mean + slope * (words - middle), given.min(), given.max())
    return np.where(known, values, likely).astype(np.float32)


def _token_parts(
    index: Index,
    question: ParsedQuestion,
    rows: Ints,
    previous: Ints,
    gate: Floats,
    tokens: TokenVectors,
    read: Callable[[Sequence[int]], Mapping[int, bytes]],
    words: Floats,
) -> dict[str, Any]:
    needed = distinct(np.concatenate([rows, previous[previous >= 0]]))
    bags = index.bags(needed, read)
    found = match(
        weigh(question.text, tokens, partial(rarity, index)),
        [bags.get(row) for row in needed.tolist()],
        own=np.searchsorted(needed, rows),
        previous=np.where(previous >= 0, np.searchsorted(needed, previous), -1),
        gate=gate,
    )
    return {"match": _fill_unknown(found.match, found.known, words), "asked": found.asked}


def _share_of_words(index: Index, stems: Sequence[int], contain: Callable[[int], Any]) -> Any:
    """The share of the question's words, weighted by rarity, that each row contains according to `contain`."""
    found: Any = np.float32(0)
    total = 0.0
    for stem in stems:
        weight = rarity(index, stem)
        total += weight
        found = found + np.float32(weight) * contain(stem)
    return found / np.float32(max(total, 1e-9))


def _sum_of(parts: Mapping[str, Any]) -> Any:
    return sum(WEIGHTS[name] * part for name, part in parts.items()) / sum(map(WEIGHTS.__getitem__, parts))


def _share_of_best(index: Index, stems: Sequence[int], lexical: Floats) -> Any:
    """BM25 as a share of what a text would get that repeats each word of the question without end."""
    return lexical / np.float32(max(sum(rarity(index, stem) for stem in stems) * (K1 + 1), 1e-9))


def _meaning(cosine: Floats, every: Any, passages: Ints, words: Floats) -> Any:
    """How far the cosine of each row's best passage stands out, at most 1; below 0 if it is less than the mean of all.

    The best of many passages is nearer by chance than a single one. What n unrelated passages reach by chance, the
    standard deviation times the square root of 2 ln n, is subtracted: a text gets nothing for being long.

    `every` has the cosines of all vectors in the space, and `passages` how many each row has.
    """
    count = len(every) + _PRIOR_TEXTS
    mean = (float(every.sum()) + _PRIOR_TEXTS * _PRIOR_COSINE) / count
    variance = (float(every @ every) + _PRIOR_TEXTS * _PRIOR_COSINE**2) / count - mean**2
    by_chance = min(math.sqrt(max(variance, 0.0)), _MAX_SPREAD) * np.sqrt(2 * np.log(passages))
    above = (cosine - mean - by_chance) / max(1 - mean, 1e-3)
    return _fill_unknown(above.astype(np.float32), ~np.isnan(above), words)


def _cues(cosines: Floats) -> Floats:
    """How far the cosine of each row's best cue stands out from those of all rows with cues, 0 to 1."""
    has_cues = cosines != 0
    count = np.count_nonzero(has_cues) + _PRIOR_TEXTS
    mean = np.float32((float(cosines.sum()) + _PRIOR_TEXTS * _PRIOR_COSINE) / count)
    return np.where(
        has_cues, np.maximum((cosines - mean) / max(1 - mean, np.float32(1e-3)), 0), np.float32(0)
    )


def _is_speaker(index: Index, question: ParsedQuestion, rows: Ints) -> Any:
    """Whether each row was said by whom the question names; if it names nobody, by anybody but an assistant.

    An assistant repeats what was said to it and answers at length; what the question is about was said by the user.
    """
    if question.speaker is not None:
        said: Any = index["speaker"][rows] == question.speaker
    elif question.side == "anybody":
        said = np.zeros(len(rows), dtype=np.bool_)
    else:
        said = index.has_feature(BY_ASSISTANT)[rows] == (question.side == "assistant")
    return said.astype(np.float32)


def _gate(index: Index) -> Any:
    """How much the neighbours and the session of each row count: 1 for a short row, less the longer it is."""
    return index.derived("gate", lambda: 1.0 / (1.0 + (index["words"] / np.float32(_GATE_WORDS)) ** 2))


def _length_norm(index: Index, gate: Any) -> Any:
    """The length term of BM25 for each row; the words of neighbours count as in `_scores_of`."""

    def compute() -> Any:
        before, after = index["before"], index["after"]
        own = index["stem_count"]
        mixed = own + gate * (
            _PREVIOUS_SHARE * np.where(before >= 0, own[before], 0)
            + _NEXT_SHARE * np.where(after >= 0, own[after], 0)
        )
        mean = mixed[index["alive"]].mean()
        return (K1 * (1 - B + B * mixed / max(mean, 1e-9))).astype(np.float32)

    return index.derived("length_norm", compute)


def _bm25(index: Index, stems: Sequence[int], gate: Any) -> Any:
    """Score every row by the question's stems in it and, as fields with lower weights, in its neighbours."""
    scores = np.zeros(len(index), dtype=np.float32)
    for stem in stems:
        found = index.of_stem(stem, partial(_scores_of, index, stem, gate))
        scores[found.rows] += found.scores
    return scores


def _scores_of(index: Index, stem: int, gate: Any) -> StemScores:
    """What a stem adds to the BM25 of each row: its count there, plus weighted counts in the neighbours, saturating."""
    before, after = index["before"], index["after"]
    rows, counts, _ = index.postings(stem)
    mixed = np.zeros(len(index), dtype=np.float32)
    mixed[rows] = counts
    # A row has at most one predecessor, so no target occurs twice and `+=` with an index array is correct.
    for neighbour, share in ((after[rows], _PREVIOUS_SHARE), (before[rows], _NEXT_SHARE)):
        there = neighbour >= 0
        target = neighbour[there]
        mixed[target] += gate[target] * np.float32(share) * counts[there]
    having: Any = np.flatnonzero(mixed)
    if len(having) > len(mixed) // _DENSE_FRACTION:
        having = slice(None)
    norm, found = _length_norm(index, gate)[having], mixed[having]
    return StemScores(having, np.float32(rarity(index, stem) * (K1 + 1)) * found / (found + norm))


def rarity(index: Index, stem: int) -> float:
    """BM25's inverse document frequency of a stem, smoothed with texts of general English."""
    count = index.alive_count + _PRIOR_TEXTS
    having = len(index.postings(stem).rows) + _PRIOR_TEXTS * commonness(stem)
    return math.log(1 + (count - having + 0.5) / (having + 0.5))


def _cosines(index: Index, vector: Floats) -> tuple[Any, Floats]:
    """The best cosine of each row, NaN if it has no vector; and the cosine of every vector."""
    found = index.cosines(vector)
    cosine = np.full(len(index), np.nan, dtype=np.float32)
    cosine[found.rows] = found.best
    return cosine, found.every


def top(values: Any, count: int) -> Ints:
    """The indices of the greatest values, greatest first; of equal values, the last comes first."""
    places = np.arange(len(values))
    if len(values) > count:
        places = np.flatnonzero(values >= np.partition(values, len(values) - count)[len(values) - count])
    return cast(Ints, places[np.lexsort((-places, -values[places]))][:count])


def best_of(values: Any, wanted: Any, count: int, *, above: float) -> Ints:
    """The indices of the greatest values that are wanted and above a bound, greatest first."""
    places = np.flatnonzero(wanted & (values > above))
    return cast(Ints, places[top(values[places], count)])


def _union_of_arms(
    index: Index, question: ParsedQuestion, lexical: Any, cosine: Any, cues: Any, per_arm: int, only: Any
) -> Ints:
    """The first rows of each arm, the turns right after the first of these, and what was said on a day that the
    question names; ascending.
    """
    after = index["after"]
    wanted = index["alive"] if only is None else index["alive"] & only
    arms = [best_of(lexical, wanted, per_arm, above=0)]
    comparable = lexical
    if cosine is not None:
        # -2 is below every cosine.
        comparable = np.where(np.isnan(cosine), np.float32(-2), cosine)
        arms.append(best_of(comparable, wanted, per_arm, above=-2))
    if cues is not None:
        arms.append(best_of(cues, wanted, per_arm, above=0))
    for days in question.days:
        if days.count <= _MOST_DAYS:
            said_then = np.flatnonzero(wanted & days.contain(index["day"]))
            arms.append(said_then[top(comparable[said_then], per_arm)])
    followed = [after[arm[:_FOLLOWED]] for arm in arms]
    chosen = distinct(np.concatenate([*arms, *followed]))
    chosen = chosen[chosen >= 0]
    return cast(Ints, chosen[wanted[chosen]])


def _session_prior(index: Index, rows: Ints, values: Any) -> Any:
    """For each candidate, a third of the sum of the three best values in its session. A row without a session is a
    session of its own.
    """
    sessions = index["sitting"][rows]
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
