"""What was fitted to lives, fitted anew without one person: the figures of that person are then left out.

Besides the choice of lines (`fit_surfacing.py`), one thing in memory is fitted to lives: which sentences last
(`statements`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import statements as judge

from satchel.memory.text import statements
from satchel.memory.text.statements import features_of

Person = Mapping[str, Any]


class Unseen:
    """The weights that have not seen a person, for each person of some lives."""

    def __init__(self, people: Sequence[Person]) -> None:
        """Fit for each person to the others."""
        rows = [row for one in people for row in judge.rows_of(one, one["person"])]
        measured = [features_of(row.text, row.sentence) for row in rows]
        features = np.array([list(named.values()) for named in measured])
        lasting = np.array([float(row.is_lasting) for row in rows])
        names = np.array([row.person for row in rows])
        self._sentences: dict[str, dict[str, float]] = {}
        for one in people:
            others = names != one["person"]
            found = judge.fit(features[others], lasting[others])
            self._sentences[one["person"]] = {
                "bias": float(found[-1]),
                **{name: float(weight) for name, weight in zip(measured[0], found, strict=False)},
            }

    @contextmanager
    def without(self, person: str) -> Iterator[None]:
        """In this block, memory has not seen the person."""
        with mock.patch.object(statements, "_weights", return_value=self._sentences[person]):
            yield
