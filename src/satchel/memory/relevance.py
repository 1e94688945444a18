"""Whether anything that was found is worth showing: the gate between a search, which always finds something, and a
model, which should be shown nothing that does not help.

It compares what was found with what such a question finds by chance, and asks whether the message is one that memory
can help with at all ("What's my brother's number?") or one of the world's ("What is the capital of Portugal?"). The
latter is told from 164 example messages, which each embedder is shown once. docs/concepts/retrieval.md has the
measurements.
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
"""Hits that are judged, best first, unless more may be shown; what is further down was hardly ever worth showing."""

# Fitted by logistic regression on 123 messages over a store of facts and conversations, a third of them with
# nothing
# stored; in six-fold cross-validation a precision of .9 leaves a recall of .81 to .82.
_STANDS_OUT = 0.70
_NEAR = 0.17
_COVERS = 1.1
_NEXT_TO_BEST = 7.7
_PERSONAL = 2.4
_BIAS = -12.35

_OPEN = -0.30
"""The strength from which something is shown: precision .91 and recall .84 on that set."""

_SPREAD = 1.2
"""What is weaker than the strongest by more than that stays out."""

_CLEARLY_PERSONAL = 0.25
"""From here on, a message that names somebody or something stored is shown what is known of it."""

_TWO_TELLING = 10.0
"""What two words tell that are not common; one alone tells at most 6.2 (`lexicon.commonness`)."""

_RIDGE = 1.0


@cache
def examples() -> tuple[tuple[str, bool], ...]:
    """Example messages, and whether memory can help with them."""
    return tuple((line[2:], line[0] == "+") for line in read_lines("example_messages.txt"))


@cache
def examples_hash() -> str:
    """Names this set of examples, so that what was made from another one is not used."""
    return hashlib.blake2b(repr(examples()).encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """What one embedder makes of the examples.

    Attributes:
        vectors: Of the examples, shape (m, d), unit rows.
        weights: Shape (d,): with `bias`, a ridge regression of an example's vector on +1 (memory can help)
        and -1.
        mean: Of the cosines between two examples, and `deviation`: what cosines of this embedder are like.
    """

    vectors: Matrix
    weights: Floats
    bias: float
    mean: float
    deviation: float

    @classmethod
    def calibrate(cls, vectors: Matrix) -> Gate:
        """Learn from the vectors of `examples`, in their order; some milliseconds."""
        wanted = np.array([1.0 if helps else -1.0 for _, helps in examples()])
        centre = vectors.mean(axis=0)
        around = (vectors - centre).astype(np.float64)
        # The dual form: as many equations as examples, whatever the dimension.
        kernel = around @ around.T + _RIDGE * np.eye(len(around))
        weights = around.T @ np.linalg.solve(kernel, wanted)
        pairs = (vectors @ vectors.T)[np.triu_indices(len(vectors), 1)]
        return cls(
            vectors=vectors,
            weights=weights.astype(np.float32),
            bias=float(wanted.mean() - centre @ weights),
            mean=float(pairs.mean()),
            deviation=float(pairs.std()),
        )

    def told_apart(self) -> float:
        """The share of the examples that the others tell right, each left out in turn: in closed form."""
        wanted = np.array([1.0 if helps else -1.0 for _, helps in examples()])
        centred = (self.vectors - self.vectors.mean(axis=0)).astype(np.float64)
        kernel = centred @ centred.T
        hat = np.linalg.solve(kernel + _RIDGE * np.eye(len(kernel)), kernel).T + 1 / len(kernel)
        left_out = wanted - (wanted - hat @ wanted) / (1 - np.diag(hat))
        return float((np.sign(left_out) == wanted).mean())

    def personal(self, question: Floats) -> float:
        """How much a question's vector is like those that memory can help with: about -1 to 1."""
        return float(question @ self.weights) + self.bias


def judge(
    found: Found, gate: Gate, question: Floats, *, at_least: float = 0.5, most: int = CONSIDERED
) -> list[tuple[Ranked, float]]:
    """Choose what is worth showing.

    Args:
        found: By a search, best first.
        gate: The embedder's.
        question: The vector that was searched with.
        at_least: How sure to be, 0 to 1.
        most: Hits that are judged.

    Returns:
        What to show, surest first, each with how sure it is; nothing where nothing is.
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
    sure = [(hit, _sure(strength)) for hit, strength in zip(hits, strengths, strict=True)]
    passing = [
        pair
        for pair, strength in zip(sure, strengths, strict=True)
        if pair[1] >= at_least and strength >= strongest - _SPREAD
    ]
    if not passing and at_least <= 0.5:
        passing = [
            (hit, 0.5) for hit in hits if hit.named and (personal >= _CLEARLY_PERSONAL or _is_about(hit))
        ]
    return sorted(passing, key=lambda pair: -pair[1])


def _is_about(hit: Ranked) -> bool:
    """Whether a message is about what this memory says: all of its telling words, two at least, stand in it."""
    return hit.coverage > 0.99 and hit.telling >= _TWO_TELLING


def judge_by_words(
    ranked: Sequence[Ranked], *, at_least: float = 0.5, most: int = CONSIDERED
) -> list[tuple[Ranked, float]]:
    """Choose what is worth showing where no embedder serves: what has most of the question's telling
    words.
    """
    sure = [(hit, _by_words(hit)) for hit in ranked[:most]]
    return sorted((pair for pair in sure if pair[1] >= at_least), key=lambda pair: -pair[1])


def _by_words(hit: Ranked) -> float:
    # Fitted on the same messages: precision .77 and recall .64. Without vectors "eyes" and "colour" are
    # strangers.
    strength = 2.3 * hit.coverage + 0.43 * hit.telling - 3.4
    return 1 / (1 + math.exp(-strength))


def _sure(strength: float) -> float:
    """0 to 1, and 0.5 where a hit is shown from."""
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, strength - _OPEN))))
