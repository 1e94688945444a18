"""How often comparing statements is right, each author with weights that have seen none of the author's pairs.

    python benchmarks/compare.py [FOLDER] [--fit] [--home FOLDER] [--out FILE]

An author is a file of pairs (`old`, `new`, `label`), or a folder of invented lives. tests/memory/data/pairs.json and
benchmarks/data/pairs-*.json are always measured; FOLDER brings more: `pairs-*.json` and `life-*/`. Files by the same
author are left out together. `--fit` fits the weights to all authors and writes them to the package.

From lives come pairs of facts: a fact and what replaced it (corrects), a fact and the short turn that it was drawn from
(restates), a fact and the nearest one of the same person (related), and one of another person (unrelated).

Turns of lives are measured apart: whether a later turn of the user makes an earlier turn out of date, as the labels of
the messages say (`stale` and `must`), with whole persons left out.

Labels come from `Memory.compare`; what would become of each pair in a store, from two `add` and one `group`:

    right        the share of pairs with the right one of five labels
    superseding  the share of corrections among the pairs of which the newer superseded the older
    untied       the share of the corrections that got no tie at all
    tied         the share of related and unrelated pairs that were tied as `may_replace`
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args
from unittest import mock

import anyio
import numpy as np
from sets import HERE, cached_embedder, closing, interval, is_fitted, read, refit_from, without

from satchel.clock import ManualClock
from satchel.memory import Memory, comparing
from satchel.memory.comparing import Relation, features_of
from satchel.memory.outdating import features_of_turns
from satchel.memory.passages import passages
from satchel.memory.wording import read_statement
from satchel.models.port import Embedder
from satchel.storage import Database

OWN = (
    HERE.parent / "tests" / "memory" / "data" / "pairs.json",
    *(HERE / "data" / f"pairs-{name}.json" for name in ("notes", "talk", "named")),
)
WEIGHTS = HERE.parent / "src" / "satchel" / "memory" / "data" / "comparison_weights.json"
RELATIONS: tuple[Relation, ...] = get_args(Relation)
ONE_HAND = ({"pairs-notes", "pairs-talk", "pairs-named"},)
"""Files by the same author."""
RIDGE = 10.0
"""On the sum of the losses, for features of unit deviation. 3 and 30 do as well within .01."""
LIFE_WEIGHT = 0.3
"""Of a pair from a life. At 1, labels of the other authors fall by .03, since lives have no elaborations, and their
restatements and relations are made by rule."""
NEWTON_STEPS = 30
FOLDS = 10
MAX_TURN_CHARS = 200
NEAREST, LEAST_COSINE = 0.5, 0.35
"""Of the facts of a life, the share that is paired with the nearest one, if its cosine is no less."""
STRANGERS, FARTHEST = 0.35, 0.15
"""The share that is paired with a fact of somebody else, and with the farthest of the same person."""

Pair = dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What was said of one pair, and what became of it in a store."""

    language: str
    truth: str
    said: str
    superseded: bool
    tied: bool
    may_replace: bool


def pairs_of(path: Path) -> list[Pair]:
    """The pairs of one author."""
    return [
        {
            "older": pair.get("older") or pair["old"],
            "newer": pair.get("newer") or pair["new"],
            "relation": pair.get("relation") or pair["label"],
            "language": pair.get("language", "en"),
        }
        for pair in read(path)
    ]


async def pairs_of_lives(lives: Sequence[Any], embedder: Embedder) -> list[Pair]:
    """Pairs of the facts of invented lives; the same lives give the same pairs."""
    facts = [(at, fact) for at, life in enumerate(lives) for fact in life["facts"]]
    rows = await embedder.embed([fact["text"] for _, fact in facts], "document")
    random = np.random.default_rng(3)
    pairs: list[Pair] = []

    def add(older: str, newer: str, relation: Relation) -> None:
        language = lives[at]["language"]
        pairs.append({"older": older, "newer": newer, "relation": relation, "language": language})

    for row, (at, fact) in enumerate(facts):
        text = fact["text"]
        own = {other["id"]: place for place, (life, other) in enumerate(facts) if life == at}
        turns = {turn["id"]: turn["text"] for turn in lives[at]["memories"]}
        if fact["replaced_by"]:
            add(text, facts[own[fact["replaced_by"]]][1]["text"], "corrects")
        if len(fact["sources"]) == 1 and len(turns[fact["sources"][0]]) <= MAX_TURN_CHARS:
            add(turns[fact["sources"][0]], text, "restates")
        others = [
            place
            for id, place in own.items()
            if place != row and id != fact["replaced_by"] and facts[place][1]["replaced_by"] != fact["id"]
        ]
        others.sort(key=lambda place: -float(rows[place] @ rows[row]))
        if not others:
            continue
        if float(rows[others[0]] @ rows[row]) > LEAST_COSINE and random.random() < NEAREST:
            add(text, facts[others[0]][1]["text"], "related")
        life, stranger = facts[int(random.integers(len(facts)))]
        if life != at and lives[life]["language"] == lives[at]["language"] and random.random() < STRANGERS:
            add(text, stranger["text"], "unrelated")
        elif random.random() < FARTHEST:
            add(text, facts[others[-1]][1]["text"], "unrelated")
    return pairs


def pair_files(folder: Path | None) -> dict[str, list[Pair]]:
    """The pairs in files, by the author's name."""
    more = () if folder is None else sorted(folder.glob("pairs-*.json"))
    return {path.stem: pairs_of(path) for path in (*OWN, *more)}


def life_folders(folder: Path | None) -> dict[str, list[Any]]:
    """The lives in each folder of them, by its name."""
    found = () if folder is None else sorted(path for path in folder.glob("life-*") if path.is_dir())
    return {lives.name: [read(path) for path in sorted(lives.glob("*.json"))] for lives in found}


async def authors_of(folder: Path | None, embedder: Embedder) -> dict[str, list[Pair]]:
    """The pairs of every author, by name."""
    lives = {name: await pairs_of_lives(some, embedder) for name, some in life_folders(folder).items()}
    return pair_files(folder) | lives


def fit(
    rows: Sequence[Mapping[str, float]],
    truths: Sequence[str],
    shares: Sequence[float],
    classes: Sequence[str],
) -> dict[str, Any]:
    """Softmax regression with a ridge, by Newton's method from zero: the same data give the same weights.

    Args:
        rows: The features of each pair.
        truths: The class of each.
        shares: What each counts.
        classes: All of them.
    """
    names = [name for name in rows[0] if name != "bias"]
    x = np.array([[row[name] for name in names] for row in rows])
    mean, deviation = x.mean(axis=0), x.std(axis=0)
    deviation[deviation == 0] = 1.0
    x = np.hstack([np.ones((len(x), 1)), (x - mean) / deviation])
    y = np.eye(len(classes))[[list(classes).index(truth) for truth in truths]]
    share = np.asarray(shares)
    width, kinds = x.shape[1], len(classes)
    # The bias has almost none, so that every step has one solution.
    ridge = np.diag(np.tile([1e-3, *[RIDGE] * (width - 1)], kinds))
    weights = np.zeros(width * kinds)
    for _ in range(NEWTON_STEPS):
        z = x @ weights.reshape(kinds, width).T
        p = np.exp(z - z.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        slope = ((p - y) * share[:, None]).T @ x
        bend = np.zeros((kinds, width, kinds, width))
        for one in range(kinds):
            for other in range(kinds):
                part = share * p[:, one] * ((one == other) - p[:, other])
                bend[one, :, other, :] = (x * part[:, None]).T @ x
        step = np.linalg.solve(
            bend.reshape(width * kinds, -1) + ridge, slope.reshape(-1) + np.diag(ridge) * weights
        )
        weights -= step
        if np.abs(step).max() < 1e-9:
            break
    found = weights.reshape(kinds, width)
    plain = found[:, 1:] / deviation
    bias = found[:, 0] - plain @ mean
    return {
        name: {
            "bias": round(float(bias[at]), 4),
            **{feature: round(float(value), 4) for feature, value in zip(names, plain[at], strict=True)},
        }
        for at, name in enumerate(classes)
    }


async def fitted_to(authors: Mapping[str, Sequence[Pair]], embedder: Embedder) -> dict[str, Any]:
    """Both classifiers of the comparison, fitted to these authors."""
    pairs = [(name, pair) for name, some in authors.items() for pair in some]
    texts = [pair[side] for _, pair in pairs for side in ("older", "newer")]
    rows = await embedder.embed(texts, "document")
    cosines = [float(rows[at] @ rows[at + 1]) for at in range(0, len(rows), 2)]
    truths = [pair["relation"] for _, pair in pairs]
    shares = [LIFE_WEIGHT if name.startswith("life-") else 1.0 for name, _ in pairs]

    def features(similarities: Sequence[float | None]) -> list[dict[str, float]]:
        return [
            features_of(read_statement(pair["older"]), read_statement(pair["newer"]), similarity)
            for (_, pair), similarity in zip(pairs, similarities, strict=True)
        ]

    return {
        "meaning": fit(features(cosines), truths, shares, RELATIONS),
        "words": fit(features([None] * len(pairs)), truths, shares, RELATIONS),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnPair:
    """Two turns of a life, of which the user said the later one.

    Attributes:
        features: See `outdating.TURN_FEATURES`.
        outdated: Whether a message needs the later one, and the earlier one is out of date for it.
    """

    person: str
    older: str
    newer: str
    features: Mapping[str, float]
    outdated: bool


async def turn_pairs(lives: Sequence[Any], embedder: Embedder) -> list[TurnPair]:
    """Every turn with every later turn of the user in another session."""
    found: list[TurnPair] = []
    for life in lives:
        turns = {turn["id"]: turn for turn in life["memories"]}
        parts = {id: passages(turn["text"]) for id, turn in turns.items()}
        rows = await embedder.embed([part for some in parts.values() for part in some], "document")
        vectors, at = {}, 0
        for id, some in parts.items():
            vectors[id], at = rows[at : at + len(some)], at + len(some)
        said = {
            (old, new) for message in life["messages"] for old in message["stale"] for new in message["must"]
        }
        found += [
            TurnPair(
                person=life["person"],
                older=old["id"],
                newer=new["id"],
                features=features_of_turns(
                    read_statement(old["text"]),
                    read_statement(new["text"]),
                    float((vectors[old["id"]] @ vectors[new["id"]].T).max()),
                ),
                outdated=(old["id"], new["id"]) in said,
            )
            for old in turns.values()
            for new in turns.values()
            if new["speaker"] == "user"
            and new["said_at"] > old["said_at"]
            and new["session"] != old["session"]
        ]
    return found


def fitted_to_turns(pairs: Sequence[TurnPair]) -> dict[str, Any]:
    """The classifier of turns, fitted to these pairs."""
    truths = ["outdated" if pair.outdated else "holds" for pair in pairs]
    return fit([pair.features for pair in pairs], truths, [1.0] * len(pairs), ("outdated", "holds"))


def measure_turns(pairs: Sequence[TurnPair]) -> dict[str, Any]:
    """How well turns that are out of date are found, by weights that have not seen the person."""
    people = sorted({pair.person for pair in pairs})
    strengths = np.zeros(len(pairs))
    for fold in range(FOLDS):
        held = {person for at, person in enumerate(people) if at % FOLDS == fold}
        weights = fitted_to_turns([pair for pair in pairs if pair.person not in held])
        for at, pair in enumerate(pairs):
            if pair.person in held:
                score = {
                    name: sum(some[feature] * value for feature, value in pair.features.items())
                    for name, some in weights.items()
                }
                strengths[at] = 1 / (1 + np.exp(score["holds"] - score["outdated"]))
    truths = np.array([pair.outdated for pair in pairs])
    found: dict[str, Any] = {"pairs": len(pairs), "outdated": int(truths.sum())}
    for least in (0.05, 0.1, 0.15, 0.2, 0.3, 0.5):
        said = strengths >= least
        found[f"at {least}"] = {
            "said": int(said.sum()),
            "recall": round(float(said[truths].mean()), 4),
            "precision": round(float(truths[said].mean()), 4),
            "of the others": round(float(said[~truths].mean()), 4),
        }
    ranked: dict[tuple[str, str], list[tuple[float, bool]]] = {}
    for pair, strength, truth in zip(pairs, strengths, truths, strict=True):
        ranked.setdefault((pair.person, pair.older), []).append((float(strength), bool(truth)))
    outdated = [sorted(some, reverse=True) for some in ranked.values() if any(truth for _, truth in some)]
    for first in (1, 2, 3):
        hits = [any(truth for _, truth in some[:first]) for some in outdated]
        found[f"what replaces it is among the first {first}"] = round(float(np.mean(hits)), 4)
    return found


@contextmanager
def comparing_with(weights: dict[str, Any]) -> Iterator[None]:
    """Compare with other weights in this block."""
    with mock.patch.object(comparing, "_weights", return_value=weights):
        yield


async def outcome(
    pair: Pair, *, database: Database, scope: str, clock: ManualClock, embedder: Embedder
) -> Outcome:
    """Say how a pair stands, and store both in a scope of their own, a day apart."""
    async with Memory.open(database, embedder=embedder, clock=clock, scope=scope, back_fill=False) as memory:
        said = await memory.compare(pair["older"], pair["newer"])
        older = await memory.add(pair["older"])
        clock.advance(86_400)
        newer = await memory.add(pair["newer"])
        await memory.group()
        same = older == newer  # The same words are one memory.
        edges = await memory.edges(older)
        return Outcome(
            language=pair["language"],
            truth=pair["relation"],
            said=said.relation,
            superseded=not same and (await memory.get(older)).valid_to is not None,
            tied=same or bool(edges),
            may_replace=any(edge.relation == "may_replace" for edge in edges),
        )


async def outcomes(pairs: Sequence[Pair], embedder: Embedder) -> list[Outcome]:
    """What is said of each pair, and what becomes of it."""
    clock = ManualClock()
    async with Database.open(":memory:", clock=clock) as database:
        return [
            await outcome(pair, database=database, scope=f"pair {at}", clock=clock, embedder=embedder)
            for at, pair in enumerate(pairs)
        ]


def summary(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The figures of one author's pairs."""
    right = [float(one.said == one.truth) for one in outcomes]
    superseded = [one for one in outcomes if one.superseded]
    corrections = [one for one in outcomes if one.truth == "corrects"]
    apart = [one for one in outcomes if one.truth in ("related", "unrelated")]
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
        "tied": round(sum(one.may_replace for one in apart) / max(1, len(apart)), 4),
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


def _others(name: str, authors: Mapping[str, Sequence[Pair]]) -> dict[str, Sequence[Pair]]:
    """The authors without one, and without what else the same hand wrote."""
    hand = next((names for names in ONE_HAND if name in names), {name})
    return {other: pairs for other, pairs in authors.items() if other not in hand}


async def measure(
    folder: Path | None,
    *,
    embedder: Embedder,
    refit: Any = None,
    shipped: Literal["all", "unseen", "none"] = "all",
    only: Sequence[str] = (),
) -> dict[str, Any]:
    """Every author, with the shipped weights and with weights that have seen none of the author's pairs.

    Args:
        folder: More authors.
        embedder: Compares meanings.
        refit: See `sets.without`.
        shipped: Which authors the shipped weights are measured with; "unseen" are those that they were not fitted to.
        only: These authors; all without names.
    """
    authors = await authors_of(folder, embedder)
    found: dict[str, Any] = {}
    for name, pairs in authors.items():
        if not pairs or (only and name not in only):
            continue
        seen = refit is None and is_fitted("comparison", name)
        if shipped == "all" or (shipped == "unseen" and not seen):
            with without(refit, name):
                found[name] = {"fitted": seen, **_by_language(await outcomes(pairs, embedder))}
        with comparing_with(await fitted_to(_others(name, authors), embedder)):
            found[f"{name}, left out"] = {"fitted": False, **_by_language(await outcomes(pairs, embedder))}
    for name, figures in found.items():
        mark = " (fitted)" if figures["fitted"] else ""
        print(
            f"{name}{mark}: right {figures['right']} {figures['right_interval']} of {figures['pairs']}; superseded "
            f"{figures['superseded']}, {figures['wrongly_superseded']} wrongly; corrections untied "
            f"{figures['untied']}; others tied {figures['tied']}"
        )
    return found


def main() -> None:
    """Measure, or fit the weights with `--fit`."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?", help="more authors: pairs-*.json and life-*/")
    parser.add_argument("--fit", action="store_true", help="fit the weights to all authors and write them")
    parser.add_argument("--turns", action="store_true", help="measure turns of lives, and nothing else")
    parser.add_argument("--left-out", action="store_true", help="don't measure the shipped weights")
    parser.add_argument("--refit", type=Path, help="a file with `left_out(set, part)`; see sets.py")
    parser.add_argument("--home", type=Path, default=None, help="SATCHEL_HOME, for the model")
    parser.add_argument("--out", type=Path, default=None, help="write the JSON to this file")
    options = parser.parse_args()

    async def run() -> dict[str, Any]:
        async with closing(cached_embedder("minilm", home=options.home)) as embedder:
            if options.turns:
                return {
                    name: measure_turns(await turn_pairs(lives, embedder))
                    for name, lives in life_folders(options.folder).items()
                }
            if not options.fit:
                return await measure(
                    options.folder,
                    embedder=embedder,
                    refit=refit_from(options.refit),
                    shipped="none" if options.left_out else "all",
                )
            authors = await authors_of(options.folder, embedder)
            weights = await fitted_to(authors, embedder)
            lives = [life for some in life_folders(options.folder).values() for life in some]
            weights["turns"] = fitted_to_turns(await turn_pairs(lives, embedder))
            WEIGHTS.write_text(json.dumps(weights, indent=1) + "\n", encoding="utf-8")
            print(f"Fitted to {dict(Counter({name: len(pairs) for name, pairs in authors.items()}))}.")
            return {}

    found = anyio.run(run)
    if options.turns:
        print(json.dumps(found, indent=1))
    if options.out:
        options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
