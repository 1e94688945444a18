"""Fits the judge of lasting statements (`satchel.memory.text.statements`), and measures it on persons left out.

    python benchmarks/statements.py FOLDER [--write]

FOLDER holds one person in a file (see `lives.py`). A sentence of the user is lasting if it is the one of its turn that
is nearest, by the words that they share, to a fact that a good secretary noted of that turn and that still holds.
Each person is judged by a regression that was fitted to the others:

    auc        the chance that a lasting sentence is judged higher than another one
    covered    of all memories that the person's messages need, those of which 300 tokens of the likeliest sentences
               hold the lasting one; "oracle": with the true ones; "facts": with facts by importance instead

With --write, the weights of all persons together are written to `memory/data/statements.json`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from sets import interval, read

from satchel.memory.show.profile import PROFILE_TOKENS, fact_weight, statement_weight
from satchel.memory.text import lexicon
from satchel.memory.text.framing import SHORT_ID_CHARS, tokens_of
from satchel.memory.text.statements import Sentence, features_of, sentences_of

DATA = Path(__file__).parents[1] / "src/satchel/memory/data/statements.json"
RIDGE = 10.0
FRAME_TOKENS = 35


def cost_of(words: str, *, day_chars: int = 0) -> float:
    """Tokens of a line of the profile with these words, not rounded."""
    return tokens_of(f'{"x" * (SHORT_ID_CHARS + day_chars)} "{words}"\n')


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A sentence of a person."""

    person: str
    language: str
    turn: str
    text: str
    sentence: Sentence
    age_days: float
    is_lasting: bool

    @property
    def words(self) -> str:
        """The sentence."""
        return self.text[self.sentence.start : self.sentence.end]


def rows_of(person: Mapping[str, Any], name: str) -> list[Row]:
    """The sentences of the user's turns."""
    end = max(datetime.fromisoformat(turn["said_at"]) for turn in person["memories"])
    rows: list[Row] = []
    for turn in person["memories"]:
        if turn["speaker"] != "user":
            continue
        sentences = sentences_of(turn["text"])
        lasting: set[int] = set()
        for fact in person["facts"]:
            if turn["id"] in fact["sources"] and not fact["until"] and sentences:
                said = set(lexicon.words_of(fact["text"]))
                shared = [
                    len(said & set(lexicon.words_of(turn["text"][one.start : one.end]))) for one in sentences
                ]
                lasting.add(int(np.argmax(shared)))
        age = end - datetime.fromisoformat(turn["said_at"])
        rows += [
            Row(
                person=name,
                language=person["language"],
                turn=turn["id"],
                text=turn["text"],
                sentence=one,
                age_days=age.days,
                is_lasting=at in lasting,
            )
            for at, one in enumerate(sentences)
        ]
    return rows


def fit(features: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Weights and, last, the bias of a ridge logistic regression, by Newton's method."""
    mean, spread = features.mean(axis=0), features.std(axis=0) + 1e-6
    x = np.c_[(features - mean) / spread, np.ones(len(features))]
    ridge = np.full(x.shape[1], RIDGE)
    ridge[-1] = 1e-6
    weights = np.zeros(x.shape[1])
    for _ in range(50):
        shares = 1 / (1 + np.exp(-(x @ weights)))
        gradient = x.T @ (shares - wanted) + ridge * weights
        step = np.linalg.solve((x * (shares * (1 - shares))[:, None]).T @ x + np.diag(ridge), gradient)
        weights -= step
        if np.abs(step).max() < 1e-7:
            break
    plain = weights[:-1] / spread
    fitted: np.ndarray = np.r_[plain, weights[-1] - plain @ mean]
    return fitted


def auc(strengths: np.ndarray, wanted: np.ndarray) -> float:
    """The area under the curve; ties in the order that they come."""
    ranks = np.argsort(np.argsort(strengths))
    positive = int(wanted.sum())
    return float(
        (ranks[wanted > 0].sum() - positive * (positive - 1) / 2) / (positive * (len(wanted) - positive))
    )


def _filled(costs: Sequence[float], weights: Sequence[float]) -> list[int]:
    """The heaviest that fit."""
    left: float = PROFILE_TOKENS - FRAME_TOKENS
    taken = []
    for at in sorted(range(len(costs)), key=lambda one: -weights[one]):
        if costs[at] <= left:
            left -= costs[at]
            taken.append(at)
    return taken


def covered(person: Mapping[str, Any], rows: Sequence[Row], strengths: Sequence[float]) -> tuple[int, int]:
    """How many of the needed memories the profile has, and how many are needed."""
    costs = [cost_of(row.words, day_chars=11) for row in rows]
    weights = [
        statement_weight(strength, row.words, age_days=row.age_days, tokens=cost)
        for row, strength, cost in zip(rows, strengths, costs, strict=True)
    ]
    best: dict[str, int] = {}
    for at, row in enumerate(rows):
        if row.turn not in best or strengths[at] > strengths[best[row.turn]]:
            best[row.turn] = at
    chosen = sorted(best.values())
    taken = [chosen[at] for at in _filled([costs[at] for at in chosen], [weights[at] for at in chosen])]
    there = {rows[at].turn for at in taken if rows[at].is_lasting}
    needed = [id for message in person["messages"] for id in message["must"]]
    return sum(id in there for id in needed), len(needed)


def covered_by_facts(person: Mapping[str, Any]) -> tuple[int, int]:
    """The same for facts by importance, the flag `profile` unknown."""
    said = {turn["id"]: datetime.fromisoformat(turn["said_at"]) for turn in person["memories"]}
    end = max(said.values())
    facts = [fact for fact in person["facts"] if not fact["until"]]
    costs = [cost_of(fact["text"]) for fact in facts]
    weights = [
        fact_weight(
            fact["importance"], fact["text"], age_days=(end - said[fact["sources"][0]]).days, tokens=cost
        )
        for fact, cost in zip(facts, costs, strict=True)
    ]
    there = {id for at in _filled(costs, weights) for id in facts[at]["sources"]}
    needed = [id for message in person["messages"] for id in message["must"]]
    return sum(id in there for id in needed), len(needed)


def main() -> None:
    """Read the arguments, fit, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", action="store_true", help="write the weights")
    arguments = parser.parse_args()
    people = {path.stem: read(path) for path in sorted(arguments.folder.glob("*.json"))}
    if not people:
        raise SystemExit(f"There is no person in {arguments.folder}.")
    rows = [row for name, person in people.items() for row in rows_of(person, name)]
    features = np.array([list(features_of(row.text, row.sentence).values()) for row in rows])
    wanted = np.array([float(row.is_lasting) for row in rows])
    names = np.array([row.person for row in rows])
    strengths = np.zeros(len(rows))
    counts: dict[str, list[tuple[int, int]]] = {"left out": [], "oracle": [], "facts": []}
    for name, person in people.items():
        here = names == name
        weights = fit(features[~here], wanted[~here])
        strengths[here] = features[here] @ weights[:-1] + weights[-1]
        own = [row for row in rows if row.person == name]
        counts["left out"].append(covered(person, own, list(strengths[here])))
        counts["oracle"].append(covered(person, own, [9.0 if row.is_lasting else -9.0 for row in own]))
        counts["facts"].append(covered_by_facts(person))
    languages = np.array([row.language for row in rows])
    print(f"{len(rows)} sentences, {int(wanted.sum())} lasting; auc {auc(strengths, wanted):.3f}")
    for language in sorted(set(languages)):
        here = languages == language
        print(f"  {language}: auc {auc(strengths[here], wanted[here]):.3f} of {int(here.sum())}")
    for name, found in counts.items():
        parts, wholes = [part for part, _ in found], [whole for _, whole in found]
        ends = interval(parts, of=wholes)
        print(f"covered, {name}: {sum(parts) / sum(wholes):.3f} {ends}")
    weights = fit(features, wanted)
    if arguments.write:
        data = json.loads(DATA.read_text(encoding="utf-8"))
        data["weights"] = {
            "bias": round(float(weights[-1]), 4),
            **{
                name: round(float(weight), 4)
                for name, weight in zip(features_of(rows[0].text, rows[0].sentence), weights, strict=False)
            },
        }
        DATA.write_text(json.dumps(data, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        print(f"Written to {DATA.name}.")


if __name__ == "__main__":
    main()
