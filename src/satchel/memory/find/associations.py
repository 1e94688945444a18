"""What a request calls for without mentioning it: booking a table calls for diets and allergies.

A table has topics of a life, each with statements about it, and situations, each with requests and the topics that
matter in it. It comes with the package as the default embedder sees it, and is compared by meaning only;
`benchmarks/data/associations.json` has the texts, and `benchmarks/fit_surfacing.py --associations` embeds them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

from satchel.memory.data_files import FOLDER
from satchel.memory.find.candidates.arrays import Floats, Matrix
from satchel.models.embedding.rows import product

_NEAREST = 6
"""Situations that a message may be: it seldom is exactly one of those in the table."""

_MOST_TOPICS = 12


class Calls(NamedTuple):
    """What a message calls for: topics as unit rows, shape (t, d), and how strongly each, shape (t,), 0 to 1."""

    topics: Matrix
    strengths: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Associations:
    """The table as one embedder sees it: the mean of each topic's statements, (t, d), and of each situation's requests,
    (s, d), unit rows; how much each topic matters in each situation, (s, t), 0 to 1; and each topic's sphere of a life,
    or "".
    """

    topics: Matrix
    situations: Matrix
    weights: Matrix
    spheres: tuple[str, ...]

    def calls(self, vectors: Matrix, *, likely: float) -> Calls:
        """What a message calls for.

        `vectors`, shape (q, d), unit rows, are those of the message: alone, and after what was said before it. `likely`
        is the least cosine with a situation that says anything.
        """
        strengths = np.zeros(len(self.topics), dtype=np.float32)
        for fit in np.maximum(product(vectors, self.situations.T) - np.float32(likely), 0):
            nearest = np.argsort(-fit, kind="stable")[:_NEAREST]
            strengths = np.maximum(strengths, (self.weights[nearest] * fit[nearest, None]).max(axis=0))
        best = np.argsort(-strengths, kind="stable")[:_MOST_TOPICS]
        best = best[strengths[best] > 0]
        return Calls(self.topics[best], strengths[best])


def associations_of(embedder: str) -> Associations | None:
    """The table for an embedder; None for all but the default one."""
    found, name = _shipped()
    return found if name == embedder else None


@cache
def _shipped() -> tuple[Associations, str]:
    with np.load(FOLDER / "associations.npz", allow_pickle=False) as kept:
        found = Associations(
            topics=_unit_rows(kept["topics"]),
            situations=_unit_rows(kept["situations"]),
            weights=kept["weights"],
            spheres=tuple(kept["spheres"].tolist()),
        )
        return found, str(kept["embedder"])


def _unit_rows(kept: Matrix) -> Matrix:
    """Rows that are kept as one byte for each number, which changes no cosine by more than .01."""
    rows = kept.astype(np.float32)
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
    return rows
