"""How often `satchel.memory.compare` is right: confusion and error rates on the half that was not used for fitting.

    python benchmarks/compare.py [--words] [--fit]
    python benchmarks/compare.py PAIRS.json ... [--refit FILE.py] [--home FOLDER] [--out FILE]

`--words` measures without the embedder; `--fit` fits new weights on the other half and writes them to the package. The
set is tests/memory/data/pairs.json; the reported half is every second pair of each relation.

With files of other authors' pairs (`old`, `new`, `label`), each author is measured with the shipped weights, and with
weights fitted to all the other authors' pairs and none of their own. Labels come from `Memory.compare`; what would
become of each pair in a store, from two `add` and one `group`:

    right        the share of pairs with the right one of five labels
    superseding  the share of corrections among the pairs of which the newer superseded the older
    untied       the share of the corrections that got no tie at all
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args
from unittest import mock

import anyio
import numpy as np
from sets import cached_embedder, closing, interval, is_fitted, read, refit_from, without

from satchel.clock import ManualClock
from satchel.memory import Memory, comparing
from satchel.memory.comparing import FEATURES, Relation, compare, features_of, judge_pair
from satchel.models.port import Embedder
from satchel.storage import Database

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What was said of one pair, and what became of it in a store."""

    language: str
    truth: str
    said: str
    superseded: bool
    tied: bool


def pairs_of(path: Path) -> list[dict[str, str]]:
    """The pairs of one author, in the form of tests/memory/data/pairs.json."""
    return [
        {
            "older": pair.get("older") or pair["old"],
            "newer": pair.get("newer") or pair["new"],
            "relation": pair.get("relation") or pair["label"],
            "language": pair.get("language", "en"),
        }
        for pair in read(path)
    ]


async def outcome(
    pair: dict[str, str], *, database: Database, scope: str, clock: ManualClock, embedder: Embedder
) -> Outcome:
    """Say how a pair stands, and store both in a scope of their own, a day apart."""
    async with Memory.open(database, embedder=embedder, clock=clock, scope=scope, back_fill=False) as memory:
        said = await memory.compare(pair["older"], pair["newer"])
        older = await memory.add(pair["older"])
        clock.advance(86_400)
        newer = await memory.add(pair["newer"])
        await memory.group()
        same = older == newer  # The same words are one memory.
        return Outcome(
            language=pair["language"],
            truth=pair["relation"],
            said=said.relation,
            superseded=not same and (await memory.get(older)).valid_to is not None,
            tied=same or bool(await memory.edges(older)),
        )


async def outcomes(pairs: Sequence[dict[str, str]], embedder: Embedder) -> list[Outcome]:
    """What is said of each pair, and what becomes of it."""
    clock = ManualClock()
    async with Database.open(":memory:", clock=clock) as database:
        return [
            await outcome(pair, database=database, scope=f"pair {at}", clock=clock, embedder=embedder)
            for at, pair in enumerate(pairs)
        ]


async def refitted(pairs: Sequence[dict[str, str]], embedder: Embedder) -> dict[str, Any]:
    """Both models of the comparison, fitted to these pairs."""
    rows = await embedder.embed([pair[side] for pair in pairs for side in ("older", "newer")], "document")
    cosines: list[float | None] = [float(rows[at] @ rows[at + 1]) for at in range(0, len(rows), 2)]
    return {"meaning": fit(list(pairs), cosines), "words": fit(list(pairs), [None] * len(pairs))}


@contextmanager
def comparing_with(weights: dict[str, Any]) -> Iterator[None]:
    """Compare with other weights in this block."""
    with mock.patch.object(comparing, "_weights", return_value=weights):
        yield


def summary(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The figures of one author's pairs."""
    right = [float(one.said == one.truth) for one in outcomes]
    superseded = [one for one in outcomes if one.superseded]
    corrections = [one for one in outcomes if one.truth == "corrects"]
    wrong = sum(one.truth != "corrects" for one in superseded)
    return {
        "pairs": len(outcomes),
        "right": round(sum(right) / len(right), 4),
        "right_interval": interval(right),
        "superseded": len(superseded),
        "wrongly_superseded": wrong,
        "superseding": round(1 - wrong / len(superseded), 4) if superseded else None,
        "corrections": len(corrections),
        "untied": round(sum(not one.tied for one in corrections) / max(1, len(corrections)), 4),
        "confusion": {
            truth: {
                said: sum(one.truth == truth and one.said == said for one in outcomes) for said in RELATIONS
            }
            for truth in RELATIONS
        },
    }


def _by_language(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The figures of all pairs, and of each language where there are several."""
    languages = sorted({one.language for one in outcomes})
    found = summary(outcomes)
    if len(languages) > 1:
        found["languages"] = {
            name: summary([o for o in outcomes if o.language == name]) for name in languages
        }
    return found


async def measure(paths: Sequence[Path], *, embedder: Embedder, refit: Any = None) -> dict[str, Any]:
    """Every author, with the shipped weights and with weights that have seen none of the author's pairs."""
    authors = {path.stem: pairs_of(path) for path in [PAIRS, *paths]}
    found: dict[str, Any] = {}
    for name, pairs in authors.items():
        others = [pair for other, some in authors.items() if other != name for pair in some]
        with without(refit, name):
            shipped = await outcomes(pairs, embedder)
        found[name] = {"fitted": refit is None and is_fitted("comparison", name), **_by_language(shipped)}
        if others:
            with comparing_with(await refitted(others, embedder)):
                found[f"{name}, fitted to the other authors"] = {
                    "fitted": False,
                    **_by_language(await outcomes(pairs, embedder)),
                }
    for name, figures in found.items():
        mark = " (fitted)" if figures["fitted"] else ""
        print(
            f"{name}{mark}: right {figures['right']} {figures['right_interval']} of {figures['pairs']}; superseded "
            f"{figures['superseded']}, {figures['wrongly_superseded']} wrongly; corrections untied {figures['untied']}"
        )
    return found


def main() -> None:
    """Measure, or fit the weights with `--fit`."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pairs", type=Path, nargs="*", help="pairs of other authors, one file each")
    parser.add_argument("--words", action="store_true")
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--refit", type=Path, help="a file with `left_out(set, part)`; see sets.py")
    parser.add_argument("--home", type=Path, default=None, help="SATCHEL_HOME, for the model")
    parser.add_argument("--out", type=Path, default=None, help="write the JSON to this file")
    options = parser.parse_args()
    if options.pairs:

        async def run() -> dict[str, Any]:
            async with closing(cached_embedder("minilm", home=options.home)) as embedder:
                return await measure(options.pairs, embedder=embedder, refit=refit_from(options.refit))

        found = anyio.run(run)
        if options.out:
            options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        return
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
