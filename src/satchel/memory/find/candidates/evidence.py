"""What speaks for showing each memory before a message: plain measurements, which `memory.relevance` weighs.

Surfacing has its own candidates, because what a request needs is often not what it resembles: "book a table" needs
the allergy. Each arm names its best, so that no arm can crowd out another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from satchel.memory.find.candidates.arrays import Floats, Ints, Matrix, distinct
from satchel.memory.find.candidates.ranking import K1, SAME_TEXT, B, best_of, rarity
from satchel.memory.text.lexicon import QUESTION, commonness
from satchel.models.embedding.rows import product

if TYPE_CHECKING:
    from satchel.memory.find.associations import Calls
    from satchel.memory.find.candidates.index import Index

_MOST_STEMS = 200
"""Of a message; a pasted log has thousands, and its first two hundred say what it is about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedMessage:
    """A message as it is compared: its different stems; unit rows, shape (q, d), of it, of it after what was said
    before, and of its parts, None without an embedder; what it calls for beyond its words, None without a table; and
    the least cosine with a topic that says anything.
    """

    stems: Sequence[int]
    vectors: Matrix | None = None
    calls: Calls | None = None
    likely: float = 0.0


class Evidence(NamedTuple):
    """What speaks for each of n candidates.

    Attributes:
        rids: Shape (n,).
        cosines: Shape (q, n), of the best passage; NaN where a memory has no vector. (0, n) without vectors.
        words: Shape (n,): BM25 over the memory's own words.
        share: Shape (n,): how much of the message's information the memory's words contain, 0 to 1.
        cues: Shape (n,): the cosine of the best cue, the situations in which a memory matters; 0 where it has none.
        called: Shape (n,): how much the memory is about what the message calls for; see `ComparedMessage.calls`.
        alike: Shape (n, n): the cosine between the passages of two candidates that fit best.
        passages: Shape (n,): which passage of each memory fits best, from 0; -1 without vectors.
        third: The third-best cosine of all visible memories; None where there are fewer.
    """

    rids: Ints
    cosines: Matrix
    words: Floats
    share: Floats
    cues: Floats
    called: Floats
    alike: Matrix
    passages: Ints
    third: float | None

    def some(self, places: Ints) -> Evidence:
        """The same about some of the candidates."""
        return self._replace(
            rids=self.rids[places],
            cosines=self.cosines[:, places],
            words=self.words[places],
            share=self.share[places],
            cues=self.cues[places],
            called=self.called[places],
            alike=self.alike[np.ix_(places, places)],
            passages=self.passages[places],
        )


def gather(index: Index, asked: ComparedMessage, *, only: Any = None, each: int) -> Evidence | None:
    """Measure what may be worth showing, `each` memories of each arm among the rows in `only`; None without any."""
    visible = index["alive"] if only is None else index["alive"] & only
    cosines = _all_cosines(index, asked.vectors)
    if len(cosines):
        # What asks the same says nothing, and the same question every day would leave no answer standing out.
        visible = visible & ~((cosines[0] >= SAME_TEXT) & index.has_feature(QUESTION))
    words, information, most = _by_words(index, asked.stems[:_MOST_STEMS])
    called = _called(index, asked)
    cues = _cues(index, asked.vectors)
    nearest = np.nan_to_num(cosines[:2].max(axis=0), nan=-2.0) if len(cosines) else None
    arms = [best_of(values, visible, each, above=0) for values in (words, called, cues)]
    if nearest is not None:
        arms.append(best_of(nearest, visible, each, above=-2))
    rows = distinct(np.concatenate(arms))
    if not len(rows):
        return None
    alike, passages = _alike(index, rows, asked.vectors)
    return Evidence(
        rids=index["rid"][rows],
        cosines=cosines[:, rows],
        words=words[rows],
        share=information[rows] / np.float32(max(most, 1e-9)),
        cues=cues[rows],
        called=called[rows],
        alike=alike,
        passages=passages,
        third=None if nearest is None else _third(nearest[visible & (nearest > -2)]),
    )


def _third(found: Any) -> float | None:
    return float(np.partition(found, len(found) - 3)[len(found) - 3]) if len(found) >= 3 else None


def _all_cosines(index: Index, vectors: Matrix | None) -> Any:
    if vectors is None or not index.embedded_count:
        return np.empty((0, len(index)), dtype=np.float32)
    cosines = np.full((len(vectors), len(index)), np.nan, dtype=np.float32)
    for at, vector in enumerate(vectors):
        found = index.cosines(vector)
        cosines[at, found.rows] = found.best
    return cosines


def _cues(index: Index, vectors: Matrix | None) -> Any:
    """The cosine of every row's best cue with the message, alone or after what was said before; 0 without cues."""
    found = None if vectors is None else index.cue_cosines(vectors[:2])
    return np.zeros(len(index), dtype=np.float32) if found is None else np.maximum(found, 0)


def _called(index: Index, asked: ComparedMessage) -> Any:
    called = np.zeros(len(index), dtype=np.float32)
    if asked.calls is None or not index.embedded_count:
        return called
    for topic, call in zip(asked.calls.topics, asked.calls.strengths.tolist(), strict=True):
        found = index.cosines(topic)
        fit = np.float32(call) * np.maximum(found.best - np.float32(asked.likely), 0)
        called[found.rows] = np.maximum(called[found.rows], fit)
    return called


def _by_words(index: Index, stems: Sequence[int]) -> tuple[Any, Any, float]:
    """BM25 of every row, the information of the stems that it contains, and that of all stems."""
    scores = np.zeros(len(index), dtype=np.float32)
    information = np.zeros(len(index), dtype=np.float32)
    total = 0.0
    if not stems or not index.alive_count:
        return scores, information, total
    own = index["stem_count"]
    norm = K1 * (1 - B + B * own / max(float(own[index["alive"]].mean()), 1e-9))
    for stem in stems:
        rows, counts, _ = index.postings(stem)
        weight = math.log(1 / commonness(stem))
        total += weight
        scores[rows] += (rarity(index, stem) * (K1 + 1)) * counts / (counts + norm[rows])
        information[rows] += weight * np.minimum(counts, 1)
    return scores, information, total


def _alike(index: Index, rows: Ints, vectors: Matrix | None) -> tuple[Matrix, Ints]:
    """The cosines between rows, each by its passage that fits the message best, and which passage that is."""
    if vectors is None or not index.embedded_count:
        return np.zeros((len(rows), len(rows)), dtype=np.float32), np.full(len(rows), -1, dtype=np.int64)
    found = index.best_passages(rows, vectors[0])
    return cast(Matrix, product(found.vectors, found.vectors.T)), cast(Ints, found.numbers)
