"""What was fitted to lives, fitted anew without one person: the figures of that person are then left out.

Besides the choice of lines (`fit_surfacing.py`), two things in memory are fitted to lives: which turn makes an earlier
one out of date (`outdating`), and which sentences last (`statements`). Facts are compared by weights that have seen no
life at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import compare
import numpy as np
import statements as judge

from satchel.memory import statements
from satchel.memory.statements import FEATURES, features_of
from satchel.models.port import Embedder

Person = Mapping[str, Any]


class Unseen:
    """The weights that have not seen a person, for each person of some lives."""

    def __init__(self, comparison: Mapping[str, Any], sentences: Mapping[str, Mapping[str, float]]) -> None:
        """Take the weights by person."""
        self._comparison = comparison
        self._sentences = sentences

    @classmethod
    async def of(cls, people: Sequence[Person], embedder: Embedder) -> Unseen:
        """Fit for each person to the others."""
        own = {path.stem: compare.pairs_of(path) for path in compare.OWN}
        facts = await compare.fitted_to(own, embedder)
        pairs = await compare.turn_pairs(people, embedder)
        comparison = {
            one["person"]: facts
            | {"turns": compare.fitted_to_turns([pair for pair in pairs if pair.person != one["person"]])}
            for one in people
        }
        rows = [row for one in people for row in judge.rows_of(one, one["person"])]
        features = np.array([features_of(row.text, row.sentence) for row in rows])
        lasting = np.array([float(row.is_lasting) for row in rows])
        names = np.array([row.person for row in rows])
        sentences = {}
        for one in people:
            others = names != one["person"]
            found = judge.fit(features[others], lasting[others])
            sentences[one["person"]] = {
                "bias": float(found[-1]),
                **{name: float(weight) for name, weight in zip(FEATURES, found, strict=False)},
            }
        return cls(comparison, sentences)

    @contextmanager
    def without(self, person: str) -> Iterator[None]:
        """In this block, memory has not seen the person."""
        weights = self._sentences[person]
        with (
            compare.comparing_with(self._comparison[person]),
            mock.patch.object(
                statements,
                "_weights",
                return_value=(weights["bias"], tuple(weights[name] for name in FEATURES)),
            ),
        ):
            yield
