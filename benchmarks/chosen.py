"""What search finds with weights that were chosen without a set: of 70 combinations, those that serve the others best.

The weights of the search are not fitted (docs/decisions/0035-ranking.md), but whoever set them had seen the sets. Here
they are chosen anew, for each family of sets (by one author, or of one public set) from the questions of all other
families. The first combination is the shipped one; then each weight is left out, halved and doubled alone, and all are
left, halved or doubled at random.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
from retrieval import score

from satchel.memory.find.candidates import ranking
from satchel.memory.find.candidates.weights import WEIGHTS

CHANGED = ("words", "meaning", "match", "asked", "session", "speaker", "date")
ONE_BY_ONE = (0.0, 0.5, 2.0)
COMBINATIONS = 70
AIM = ("r@5", "r@20", "mrr")
"""Their sum is what the weights are chosen for, each family of sets counting once."""
AFTERWARDS = frozenset({"session", "speaker", "date"})
"""What `session` is not computed from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What one question found before weights: one row for each candidate.

    Attributes:
        parts: The signals.
        gate: How much the session of each counts, shape (n,); `sittings`: its number, -1 without one.
        rows: In the index; of equal scores, the later row comes first.
        units: What is scored: the name of the entry or of the session.
        evidence: The units that answer the question.
    """

    parts: Mapping[str, Any]
    gate: Any
    sittings: Any
    rows: Any
    units: tuple[str, ...]
    evidence: tuple[str, ...]


@dataclass(slots=True)
class Recorder:
    """The last search's candidates, before weights."""

    index: Any = None
    rows: Any = None
    parts: Mapping[str, Any] | None = None

    def take(self, names: Mapping[int, str], evidence: Sequence[str]) -> Asked | None:
        """What was recorded, given the unit of each rid; None without candidates."""
        if self.parts is None:
            return None
        index, rows = self.index, self.rows
        found = Asked(
            parts={name: np.asarray(part, np.float32) for name, part in self.parts.items()},
            gate=np.asarray(ranking._gate(index)[rows], np.float32),
            sittings=index["sitting"][rows],
            rows=rows,
            units=tuple(names[rid] for rid in index["rid"][rows].tolist()),
            evidence=tuple(evidence),
        )
        self.parts = None
        return found


@contextmanager
def recording() -> Iterator[Recorder]:
    """Record what searches in this block score."""
    recorder = Recorder()
    session_prior, sum_of = ranking._session_prior, ranking._sum_of

    def of_session(index: Any, rows: Any, values: Any) -> Any:
        recorder.index, recorder.rows = index, rows
        return session_prior(index, rows, values)

    def of_all(parts: Mapping[str, Any]) -> Any:
        recorder.parts = dict(parts)  # The last sum is of all signals.
        return sum_of(parts)

    with mock.patch.multiple(ranking, _session_prior=of_session, _sum_of=of_all):
        yield recorder


def combinations() -> list[dict[str, float]]:
    """The weights to choose from; the shipped ones first."""
    shipped = dict(WEIGHTS)
    found = [shipped]
    found += [shipped | {name: shipped[name] * by} for name in CHANGED for by in ONE_BY_ONE]
    random = np.random.default_rng(35)
    while len(found) < COMBINATIONS:
        found.append(
            shipped | {name: shipped[name] * float(random.choice((0.5, 1.0, 2.0))) for name in CHANGED}
        )
    return found


def figures(asked: Asked, tried: Sequence[Mapping[str, float]]) -> list[dict[str, float]]:
    """One question's figures, with each of these weights."""
    order = np.argsort(-asked.rows)  # Of equal scores, the later row comes first.
    parts = {name: part[order] for name, part in asked.parts.items() if name != "session"}
    alone = {name: part for name, part in parts.items() if name not in AFTERWARDS}
    sittings = np.where(asked.sittings >= 0, asked.sittings, -1 - asked.rows)[order]
    sessions = asked.gate[order] * _best_of_sitting(sittings, np.maximum(_mean(alone, tried), 0))
    share = np.array([[weights["session"]] for weights in tried])
    total = np.array([[sum(weights[name] for name in parts)] for weights in tried])
    scores = (_mean(parts, tried) * total + sessions * share) / np.maximum(total + share, 1e-9)
    units = [asked.units[at] for at in order.tolist()]
    found = []
    for best in np.argsort(-scores, axis=1, kind="stable")[:, :100].tolist():
        ranks = {unit: rank for rank, unit in enumerate(dict.fromkeys(units[at] for at in best), 1)}
        found.append(score([ranks.get(unit) for unit in asked.evidence]))
    return found


def _mean(parts: Mapping[str, Any], tried: Sequence[Mapping[str, float]]) -> Any:
    """The weighted mean of the parts of each row, with each of the weights; shape (weights, rows)."""
    weights = np.array([[one[name] for name in parts] for one in tried])
    return weights @ np.stack(list(parts.values())) / np.maximum(weights.sum(axis=1, keepdims=True), 1e-9)


def _best_of_sitting(sittings: Any, values: Any) -> Any:
    """For each row a third of the sum of the three best values of its sitting, as in `ranking`.

    Args:
        sittings: Of each row, shape (rows,).
        values: At least 0, shape (weights, rows).
    """
    _, number, sizes = np.unique(sittings, return_inverse=True, return_counts=True)
    by_sitting = np.argsort(number, kind="stable")
    place = np.arange(len(number)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    table = np.zeros((len(values), len(sizes), max(int(sizes.max()), 3)), dtype=np.float32)
    table[:, number[by_sitting], place] = values[:, by_sitting]
    return np.sort(table, axis=2)[:, :, -3:].sum(axis=2)[:, number] / 3


def family(name: str) -> str:
    """The family of a set: "bank" of bank-en-dev and bank-zh-dev, "life" of all lives, "own" of our own."""
    return re.split(r"[-_/]", name, maxsplit=1)[0]


def left_out(sets: Mapping[str, Sequence[Asked]]) -> dict[str, dict[str, Any]]:
    """Of each set, the weights that the other families choose, and its figures with them.

    Returns:
        By set: `weights` by signal, and `figures`; nothing if there is only one family.
    """
    tried = combinations()
    every = {
        name: list(zip(*(figures(one, tried) for one in asked), strict=True)) for name, asked in sets.items()
    }
    good: dict[str, list[list[float]]] = {}
    for name, by_weights in every.items():
        aims = [sum(statistics.fmean(row[key] for row in rows) for key in AIM) for rows in by_weights]
        good.setdefault(family(name), []).append(aims)
    means = {name: np.mean(aims, axis=0) for name, aims in good.items()}
    found = {}
    for name, by_weights in every.items():
        others = [aims for other, aims in means.items() if other != family(name)]
        if others:
            best = int(np.argmax(np.mean(others, axis=0)))
            rows = by_weights[best]
            found[name] = {
                "weights": {key: tried[best][key] for key in CHANGED},
                "figures": {key: round(statistics.fmean(row[key] for row in rows), 4) for key in rows[0]},
            }
    return found
