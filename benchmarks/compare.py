"""How often `satchel.memory.compare` is right: confusion and error rates on the half that was not used for fitting.

    python benchmarks/compare.py [--words] [--fit]

`--words` measures without the embedder; `--fit` fits new weights on the other half and writes them to the package. The
set is tests/memory/data/pairs.json; the reported half is every second pair of each relation.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import get_args

import numpy as np

from satchel.memory.comparing import FEATURES, Relation, compare, features_of, judge_pair

HERE = Path(__file__).parent
PAIRS = HERE.parent / "tests" / "memory" / "data" / "pairs.json"
WEIGHTS = HERE.parent / "src" / "satchel" / "memory" / "data" / "comparison_weights.json"
RELATIONS = list(get_args(Relation))
RIDGE = 0.008


def halves() -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """The half for fitting, and the half that is reported."""
    seen: dict[str, int] = {}
    fitted, reported = [], []
    for pair in json.loads(PAIRS.read_text(encoding="utf-8")):
        count = seen[pair["relation"]] = seen.get(pair["relation"], 0) + 1
        (fitted if count % 2 else reported).append(pair)
    return fitted, reported


def fit(pairs: list[dict[str, str]], similarities: list[float | None]) -> dict[str, dict[str, float]]:
    """Softmax regression with a small ridge, by gradient descent from zero, so the same data give the same weights."""
    found = [
        features_of(pair["older"], pair["newer"], similarity)
        for pair, similarity in zip(pairs, similarities, strict=True)
    ]
    x = np.array([[row[name] for name in FEATURES] for row in found])
    y = np.eye(len(RELATIONS))[[RELATIONS.index(pair["relation"]) for pair in pairs]]
    weights = np.zeros((len(FEATURES), len(RELATIONS)))
    for _ in range(20_000):
        z = x @ weights
        p = np.exp(z - z.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        weights -= 0.3 * (x.T @ (p - y) / len(x) + RIDGE * weights / 2)
    return {
        relation: {name: round(float(weights[at, to]), 4) for at, name in enumerate(FEATURES)}
        for to, relation in enumerate(RELATIONS)
    }


def report(name: str, pairs: list[dict[str, str]], similarities: list[float | None]) -> dict[str, object]:
    """Confusion and error rates."""
    confusion = {truth: dict.fromkeys(RELATIONS, 0) for truth in RELATIONS}
    sure_corrections = wrong_corrections = 0
    for pair, similarity in zip(pairs, similarities, strict=True):
        found = judge_pair(pair["older"], pair["newer"], similarity)
        confusion[pair["relation"]][found.relation] += 1
        if found.relation == "corrects" and found.confidence >= 0.8:
            sure_corrections += 1
            wrong_corrections += pair["relation"] != "corrects"
    right = sum(confusion[relation][relation] for relation in RELATIONS)
    print(f"\n{name}: {len(pairs)} pairs, error rate {1 - right / len(pairs):.3f}")
    print("truth \\ said ".ljust(14) + "".join(relation.rjust(12) for relation in RELATIONS))
    for truth in RELATIONS:
        row = confusion[truth]
        error = 1 - row[truth] / max(1, sum(row.values()))
        print(
            truth.ljust(14)
            + "".join(str(row[said]).rjust(12) for said in RELATIONS)
            + f"   error {error:.2f}"
        )
    print(f"corrections with confidence >= 0.8: {sure_corrections}, {wrong_corrections} of them wrong")
    return {
        "pairs": len(pairs),
        "error_rate": round(1 - right / len(pairs), 4),
        "confusion": confusion,
        "sure_corrections": sure_corrections,
        "wrong_sure_corrections": wrong_corrections,
    }


def main() -> None:
    """Measure, or fit the weights with `--fit`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--words", action="store_true")
    parser.add_argument("--fit", action="store_true")
    options = parser.parse_args()
    fitted, reported = halves()

    def similarities(pairs: list[dict[str, str]]) -> list[float | None]:
        return [compare(pair["older"], pair["newer"]).similarity for pair in pairs]

    if options.fit:
        meanings = similarities(fitted)
        if None in meanings:
            raise SystemExit(
                "The embedding model is not on this machine. `satchel doctor` says how to get it."
            )
        weights = {"meaning": fit(fitted, meanings), "words": fit(fitted, [None] * len(fitted))}
        WEIGHTS.write_text(json.dumps(weights, indent=1) + "\n", encoding="utf-8")
        print(f"Wrote {WEIGHTS.name}; run again to measure it.")
        return
    result = {"words only": report("words only", reported, [None] * len(reported))}
    if not options.words:
        result["with the embedder"] = report("with the embedder", reported, similarities(reported))
        report("with the embedder, on the half that was used for fitting", fitted, similarities(fitted))
    print("\n" + json.dumps({"cpus": os.cpu_count(), **result}))


if __name__ == "__main__":
    main()
