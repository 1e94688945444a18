"""Decides whether search results are worth showing to a model: a search always returns something, but irrelevant
memories harm an answer.

Two questions are asked: how far the results stand out from what such a message matches by chance, and whether memory
can help with the message at all ("What's my brother's number?") or it concerns general knowledge ("What is the capital
of Portugal?"). The second is answered by a classifier over 164 example messages, which each embedder embeds once.
docs/concepts/retrieval.md has the measurements.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache

import numpy as np

from satchel.memory.data_files import read_lines
from satchel.memory.find.candidates.arrays import Floats, Matrix

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
class RelevanceGate:
    """A classifier of messages for one embedder: with the bias, a ridge regression, shape (d,), from an example's
    vector to +1 (memory can help) or -1; and mean and standard deviation of the cosines between two examples. `start`
    is where its embedder's part of a message's vector begins, see `vectors.Second`.
    """

    weights: Floats
    bias: float
    mean: float
    deviation: float
    start: int = 0

    @classmethod
    def calibrate(cls, vectors: Matrix) -> RelevanceGate:
        """Fit to the vectors of `examples`, in their order. Takes a few milliseconds."""
        wanted = np.array([1.0 if helps else -1.0 for _, helps in examples()])
        centre = vectors.mean(axis=0)
        centred = (vectors - centre).astype(np.float64)
        # The dual form has one equation for each example, whatever the dimension.
        kernel = centred @ centred.T + _RIDGE * np.eye(len(centred))
        weights = centred.T @ np.linalg.solve(kernel, wanted)
        pairs = (vectors @ vectors.T)[np.triu_indices(len(vectors), 1)]
        return cls(
            weights=weights.astype(np.float32),
            bias=float(wanted.mean() - centre @ weights),
            mean=float(pairs.mean()),
            deviation=float(pairs.std()),
        )

    def personal(self, question: Floats) -> float:
        """How much a message is like those that memory can help with, about -1 to 1; `question` is its vector."""
        own = question[self.start : self.start + len(self.weights)]
        return float(own @ self.weights) + self.bias
