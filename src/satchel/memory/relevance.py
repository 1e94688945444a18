"""Decides whether search results are worth showing to a model: a search always returns something, but irrelevant
memories harm an answer.

Two questions are asked: how far the results stand out from what such a message matches by chance, and whether memory
can help with the message at all ("What's my brother's number?") or it concerns general knowledge ("What is the capital
of Portugal?"). The second is answered by a classifier over 164 example messages, which each embedder embeds once.
docs/concepts/retrieval.md has the measurements.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from satchel.memory.candidates.arrays import Floats, Matrix
from satchel.memory.candidates.ranking import Found, Ranked
from satchel.memory.data_files import read_lines

__all__ = ["CONSIDERED", "Gate", "examples", "examples_hash", "judge", "judge_by_words"]

CONSIDERED = 5
"""The number of hits that are judged, best first, unless more may be shown. Later hits were rarely worth showing."""

# Fitted by logistic regression on 123 messages over a store of facts and conversations; for a third of them, nothing
# was stored. In six-fold cross-validation, recall is .81 to .82 at a precision of .9.
_STANDS_OUT = 0.70
_NEAR = 0.17
_COVERS = 1.1
_NEXT_TO_BEST = 7.7
_PERSONAL = 2.4
_BIAS = -12.35

_OPEN = -0.30
"""The log-odds from which a hit is shown: precision .91 and recall .84 on that set."""

_SPREAD = 1.2
"""Hits whose log-odds are below the best by more than this are not shown."""

_CLEARLY_PERSONAL = 0.25
"""From this value of `Gate.personal`, a hit that contains a name from the message is shown."""

_TWO_RARE_WORDS = 10.0
"""Nats: at least two uncommon words, since one has at most 6.2 (`lexicon.commonness`)."""

_RIDGE = 1.0


@cache
def examples() -> tuple[tuple[str, bool], ...]:
    """The example messages, each with whether memory can help with it."""
    return tuple((line[2:], line[0] == "+") for line in read_lines("example_messages.txt"))


@cache
def examples_hash() -> str:
    """Identifies this set of examples, so that vectors of another set are not used."""
    return hashlib.blake2b(repr(examples()).encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """A classifier of messages, and the range of cosines, for one embedder.

    Attributes:
        vectors: Of the examples, shape (m, d), unit rows.
        weights: Shape (d,). With `bias`, a ridge regression from an example's vector to +1 (memory can help) or -1.
        mean: The mean of the cosines between two examples; `deviation` is their standard deviation.
    """

    vectors: Matrix
    weights: Floats
    bias: float
    mean: float
    deviation: float

    @classmethod
    def calibrate(cls, vectors: Matrix) -> Gate:
        """Fit to the vectors of `examples`, in their order. Takes a few milliseconds."""
        wanted = np.array([1.0 if helps else -1.0 for _, helps in examples()])
        centre = vectors.mean(axis=0)
        centred = (vectors - centre).astype(np.float64)
        # The dual form has one equation for each example, whatever the dimension.
        kernel = centred @ centred.T + _RIDGE * np.eye(len(centred))
        weights = centred.T @ np.linalg.solve(kernel, wanted)
        pairs = (vectors @ vectors.T)[np.triu_indices(len(vectors), 1)]
        return cls(
            vectors=vectors,
            weights=weights.astype(np.float32),
            bias=float(wanted.mean() - centre @ weights),
            mean=float(pairs.mean()),
            deviation=float(pairs.std()),
        )

    def accuracy(self) -> float:
        """The accuracy on the examples in leave-one-out cross-validation, 0 to 1, computed in closed form."""
        wanted = np.array([1.0 if helps else -1.0 for _, helps in examples()])
        centred = (self.vectors - self.vectors.mean(axis=0)).astype(np.float64)
        kernel = centred @ centred.T
        hat = np.linalg.solve(kernel + _RIDGE * np.eye(len(kernel)), kernel).T + 1 / len(kernel)
        left_out = wanted - (wanted - hat @ wanted) / (1 - np.diag(hat))
        return float((np.sign(left_out) == wanted).mean())

    def personal(self, question: Floats) -> float:
        """How much a message is like those that memory can help with, about -1 to 1; `question` is its vector."""
        return float(question @ self.weights) + self.bias


def judge(
    found: Found, gate: Gate, question: Floats, *, at_least: float = 0.5, most: int = CONSIDERED
) -> list[tuple[Ranked, float]]:
    """Choose the hits that are worth showing.

    Args:
        found: The result of a search.
        gate: Of the embedder in use.
        question: The vector of the message, shape (d,).
        at_least: The least probability that a hit is relevant, 0 to 1.
        most: The number of hits to judge.

    Returns:
        Hits with their probabilities, most probable first. Often none.
    """
    hits = [hit for hit in found.ranked[:most] if hit.cosine is not None]
    if not hits:
        return []
    chance = gate.vectors @ question
    count = found.compared + len(chance)
    mean = (found.cosine_sum + float(chance.sum())) / count
    square = (found.cosine_square_sum + float((chance**2).sum())) / count
    deviation = math.sqrt(max(square - mean * mean, 1e-12))
    personal = gate.personal(question)
    top = max(hit.score for hit in hits)
    strengths = []
    for hit in hits:
        cosine = max(hit.cosine or 0.0, 0.0)
        strengths.append(
            _STANDS_OUT * (cosine - mean) / deviation
            + _NEAR * (cosine - gate.mean) / max(gate.deviation, 1e-6)
            + _COVERS * hit.coverage
            + _NEXT_TO_BEST * hit.score / max(top, 1e-9)
            + _PERSONAL * personal
            + _BIAS
        )
    strongest = max(strengths)
    passing = [
        (hit, _probability(strength))
        for hit, strength in zip(hits, strengths, strict=True)
        if _probability(strength) >= at_least and strength >= strongest - _SPREAD
    ]
    if not passing and at_least <= 0.5:
        passing = [
            (hit, 0.5) for hit in hits if hit.named and (personal >= _CLEARLY_PERSONAL or _is_about(hit))
        ]
    return sorted(passing, key=lambda pair: -pair[1])


def _is_about(hit: Ranked) -> bool:
    """Whether a memory contains every word of the message that isn't a function word, at least two of them uncommon."""
    return hit.coverage > 0.99 and hit.information >= _TWO_RARE_WORDS


def judge_by_words(
    ranked: Sequence[Ranked], *, at_least: float = 0.5, most: int = CONSIDERED
) -> list[tuple[Ranked, float]]:
    """Choose the hits that are worth showing if no embedder is available: those that contain most of the message's rare
    words. Arguments and result are as in `judge`.
    """
    # Fitted on the same messages: precision .77, recall .64. Without vectors, "eyes" and "colour" have nothing in
    # common.
    judged = [(hit, _logistic(2.3 * hit.coverage + 0.43 * hit.information - 3.4)) for hit in ranked[:most]]
    return sorted((pair for pair in judged if pair[1] >= at_least), key=lambda pair: -pair[1])


def _probability(strength: float) -> float:
    """0 to 1; 0.5 at the strength from which a hit is shown by default."""
    return _logistic(max(-30.0, min(30.0, strength - _OPEN)))


def _logistic(value: float) -> float:
    return 1 / (1 + math.exp(-value))
