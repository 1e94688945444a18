"""Fit what is worth showing before a message (`memory/choosing.py`) to lives, and report on persons that were left out.

    python benchmarks/fit_surfacing.py FOLDER [--write] [--report] [--kept FILE] [--out FILE] [--associations]

FOLDER holds persons as `lives.py` reads them. Every message is measured by the program itself (`Surface.weigh`), with
turns only, with facts, and with facts and their cues; all three are fitted together. Then, for each fifth of the
persons, everything is fitted to the others: which words of a message speak for a need, the three regressions, and both
thresholds. `--write` fits to all of them and writes `memory/data/surface_weights.json`. `--kept` keeps what was
measured in a file.
`--associations` embeds the shipped table of associations with the default embedder instead.

The figures are those of `lives.py`. "profile" counts the program's own profile and agenda, as a session that begins
with the message has them; "ideal profile" the facts marked `profile`, as far as 300 tokens reach. Both leave out of
what is surfaced what stands there. While a person is measured, what else is fitted to lives has not seen the person
(`unseen.py`).
"""

from __future__ import annotations

import argparse
import json
import math
import pickle
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import anyio
import numpy as np
from lives import (
    QUIET,
    STORES,
    Judged,
    Shown,
    figures,
    ideal_profile,
    intervals,
    judge,
    people_in,
    standing,
    store,
)
from sets import cached_embedder, closing, read, second_of
from unseen import Unseen

from satchel.clock import ManualClock
from satchel.memory import Memory
from satchel.memory.associations import centres_of, group_key, pack_centres, read_associations
from satchel.memory.block import block_of
from satchel.memory.choosing import (
    LATER_FEATURES,
    LINE_FEATURES,
    MESSAGE_FEATURES,
    Logistic,
    Weights,
    features_with,
    message_features,
    need_of,
    need_words,
)
from satchel.memory.filters import Filter
from satchel.memory.outdating import strength_of
from satchel.memory.records import Hit
from satchel.memory.renewal import later_features, later_turns, renew
from satchel.memory.surface import choose
from satchel.memory.weighed import Weighed
from satchel.models.port import Embedder

DATA = Path(__file__).parents[1] / "src" / "satchel" / "memory" / "data"
LIMIT, BUDGET = 8, 500
HARMLESS = 0.3
"""What a line counts that is harmless: the model is not fitted to tell it from what is needed."""
LINE_RIDGE = 1.0
NEED_RIDGE = 3.0
LEAST_PERSONS = 3
"""A word that fewer persons use tells who writes, and not what is asked."""
QUIET_SHARE = 0.68
LEAST_PRECISION = {True: 0.42, False: 0.36}
"""What thresholds are set to reach on the persons that were fitted to: more than is required of others."""
LOOSER = {"line_from": 0.083, "turn_from": 0.453, "message_from": -1.047}
"""Added to the thresholds in the end, with an embedder. On persons that were left out, these show .75 of what is needed
where facts and cues are stored, with 150 tokens; more for turns shows more values that are out of date."""
BEYOND_DOUBT = {True: 1.747, False: -1.0}
"""See `Weights.beyond_doubt`: it lets plain questions pass. The first cost nothing on the persons that were fitted to;
-1 was set by hand and is not measured."""
EVERY = 5
"""Every fifth message sets the threshold of lines: with all of them, it moves by less than .1."""


LATER_FROM, LATER_MOST = 0.2, 10
"""Of a message, so many of the lines that are sure enough are compared with what was said later."""

Standing = Literal["real", "ideal", "none"]
STANDING: dict[str, Standing] = {", profile": "real", ", ideal profile": "ideal", ", no profile": "none"}
PARTS = 5
"""Persons are left out in so many parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One message before one store.

    Attributes:
        lines: Of each weighed memory, the memories that it counts as.
        profile: Which of them stand in the ideal profile already.
        standing: The memories in the real profile and agenda; `whole`: the ids of those that stand there whole.
        strengths: `outdating.strength_of` an earlier and a later turn, by their ids.
        later: Of each later memory by its id, the memories that it counts as.
    """

    person: Mapping[str, Any]
    message: Mapping[str, Any]
    weighed: Weighed
    lines: tuple[frozenset[str], ...]
    profile: tuple[bool, ...]
    standing: frozenset[str]
    whole: frozenset[str]
    strengths: Mapping[tuple[str, str], tuple[float, float]]
    later: Mapping[str, tuple[str, ...]]

    def stands(self, at: int, id: str, standing: Standing) -> bool:
        """Whether a line stands in the profile or the agenda already."""
        return (standing == "ideal" and self.profile[at]) or (standing == "real" and id in self.whole)

    def strengths_of(self, at: int, others: Sequence[int]) -> list[tuple[float, float]]:
        """Of a turn and each of some later ones, by their places."""
        records = self.weighed.records
        return [self.strengths[records[at].id, records[place].id] for place in others]


async def measure(folder: Path, embedder: Embedder) -> dict[str, list[Measured]]:
    """Measure every message of every person, by store."""
    found: dict[str, list[Measured]] = {name: [] for name in STORES}
    people = [{**read(path), "person": path.stem} for path in people_in(folder, ())]
    unseen = await Unseen.of(people, embedder)
    for person in people:
        with unseen.without(person["person"]):
            for name in STORES:
                found[name] += await _measure_one(person, embedder, name)
        print(person["person"], flush=True)
    return found


async def _measure_one(person: Mapping[str, Any], embedder: Embedder, name: str) -> list[Measured]:
    clock = ManualClock()
    measured = []
    strengths: dict[tuple[str, str], tuple[float, float]] = {}
    ideal = set(ideal_profile(person))
    async with Memory.open(
        ":memory:", embedder=embedder, second_embedder=second_of(embedder), clock=clock, back_fill=False
    ) as memory:
        stored = await store(memory, clock, person, facts=name != "turns", cues=name == "cues")
        await memory.embed_pending()
        await memory.group()
        await memory._space.refresh()
        surface = memory._surface
        for message in person["messages"]:
            clock.at = datetime.fromisoformat(message["at"])
            texts = [one["text"] for one in message["context"]][-2:] + [message["text"]]
            visible = memory._search.visible(Filter(), include_superseded=False)
            weighed = await surface.weigh(texts, visible)
            if weighed is None:
                continue
            lines = tuple(frozenset(stored.sources[one.id]) for one in weighed.records)
            for at, earlier in enumerate(weighed.records):
                for later in (weighed.records[place] for place in later_turns(weighed, at)):
                    if (earlier.id, later.id) not in strengths:
                        strengths[earlier.id, later.id] = strength_of(earlier.content, later.content)
            always, whole = await standing(memory, stored)
            measured.append(
                Measured(
                    person={key: person[key] for key in ("person", "language")} | {"ideal": tuple(ideal)},
                    message=message,
                    weighed=weighed,
                    lines=lines,
                    profile=tuple(
                        one.kind == "fact" and line <= ideal
                        for one, line in zip(weighed.records, lines, strict=True)
                    ),
                    standing=always,
                    whole=whole,
                    strengths=strengths,
                    later={
                        one.memory.id: stored.sources[one.memory.id] for some in weighed.later for one in some
                    },
                )
            )
    return measured


# Fitting.


def fit_logistic(rows: Any, wanted: Any, counts: Any, names: Sequence[str], *, ridge: float) -> Logistic:
    """A ridge-penalised logistic regression by Newton's method, on standardised features."""
    mean, spread = rows.mean(axis=0), rows.std(axis=0) + 1e-9
    scaled = np.hstack([(rows - mean) / spread, np.ones((len(rows), 1))])
    found = np.zeros(scaled.shape[1])
    penalty = np.eye(len(found)) * ridge
    penalty[-1, -1] = 0
    for _ in range(30):
        likely = 1 / (1 + np.exp(-np.clip(scaled @ found, -30, 30)))
        certain = counts * likely * (1 - likely) + 1e-9
        step = np.linalg.solve(
            (scaled * certain[:, None]).T @ scaled + penalty,
            scaled.T @ (counts * (wanted - likely)) - penalty @ found,
        )
        found += step
        if np.abs(step).max() < 1e-6:
            break
    weights = found[:-1] / spread
    return Logistic(
        {name: float(weight) for name, weight in zip(names, weights, strict=True)},
        float(found[-1] - mean @ weights),
    )


def fit_need(messages: Iterable[tuple[str, Mapping[str, Any]]]) -> dict[str, float]:
    """Which words speak for a need: a ridge regression of messages on whether they need a memory."""
    people: dict[str, set[str]] = defaultdict(set)
    found = {(person, one["id"]): one for person, one in messages}
    for (person, _), one in found.items():
        for word in need_words(one["text"]):
            people[word].add(person)
    words = sorted(word for word, some in people.items() if len(some) >= LEAST_PERSONS)
    at = {word: place for place, word in enumerate(words)}
    rows = np.zeros((len(found), len(words)))
    for place, one in enumerate(found.values()):
        said = need_words(one["text"])
        for word in said:
            if word in at:
                rows[place, at[word]] = 1 / math.sqrt(len(said) + 1)
    wanted = (
        np.array([float(one["kind"] not in QUIET) + float(bool(one["must"])) for one in found.values()]) / 2
    )
    bias = float(wanted.mean())
    weights = np.linalg.solve(rows.T @ rows + NEED_RIDGE / 10 * np.eye(len(words)), rows.T @ (wanted - bias))
    kept = {word: round(float(weight), 3) for word, weight in zip(words, weights, strict=True)}
    return {"": round(bias, 4)} | {word: weight for word, weight in kept.items() if abs(weight) >= 0.02}


def _with_need(one: Measured, need: Mapping[str, float]) -> Measured:
    value = need_of(one.weighed.text, need)
    features = {**one.weighed.features, "need": np.full(len(one.lines), value)}
    return replace(one, weighed=replace(one.weighed, need=value, features=features))


def fit(measured: Sequence[Measured], *, with_vectors: bool) -> tuple[Weights, list[Measured]]:
    """Fit everything to some messages; also returns them with the need that was fitted.

    The need that the regressions see is that of words learned from other persons, a fifth of them left out in turn.
    """
    people = sorted({one.person["person"] for one in measured})
    need = fit_need((one.person["person"], one.message) for one in measured)
    folds: dict[str, dict[str, float]] = {}
    for fold in range(5):
        out = set(people[fold::5])
        inner = fit_need(
            (one.person["person"], one.message) for one in measured if one.person["person"] not in out
        )
        folds |= dict.fromkeys(out, inner)
    seen = [_with_need(one, folds[one.person["person"]]) for one in measured]
    names = features_with(LINE_FEATURES, with_vectors=with_vectors)
    rows = np.concatenate(
        [np.stack([one.weighed.features[name] for name in names], axis=1) for one in seen if one.lines]
    )
    wanted = np.concatenate(
        [[float(bool(line & set(one.message["must"]))) for line in one.lines] for one in seen if one.lines]
    )
    harmless = np.concatenate(
        [[bool(line & set(one.message["may"])) for line in one.lines] for one in seen if one.lines]
    )
    counts = np.where((wanted == 0) & harmless, HARMLESS, 1.0)
    line = fit_logistic(rows, wanted, counts, names, ridge=LINE_RIDGE)
    about = features_with(MESSAGE_FEATURES, with_vectors=with_vectors)
    told = [
        message_features(
            one.weighed.features,
            np.clip(line.log_odds(one.weighed.features), -20, 20),
            text=one.weighed.text,
            need=one.weighed.need,
        )
        for one in seen
        if one.lines
    ]
    concerns = np.array([float(one.message["kind"] not in QUIET) for one in seen if one.lines])
    rows = np.array([[one[name] for name in about] for one in told])
    message = fit_logistic(rows, concerns, np.ones(len(rows)), about, ridge=LINE_RIDGE)
    quiet = np.array([message.log_odds(one) for one, yes in zip(told, concerns, strict=True) if not yes])
    later_names = features_with(LATER_FEATURES, with_vectors=with_vectors)
    weights = Weights(
        line=line,
        later=Logistic(dict.fromkeys(later_names, 0.0), -30.0),
        message=message,
        line_from=0.0,
        turn_from=0.0,
        message_from=float(np.quantile(quiet, QUIET_SHARE)),
        need=need,
        beyond_doubt=BEYOND_DOUBT[with_vectors],
    )
    weights = weights._replace(later=fit_later(seen, weights, later_names))
    return _with_line_from(weights, seen, least=LEAST_PRECISION[with_vectors]), seen


def fit_later(seen: Sequence[Measured], weights: Weights, names: Sequence[str]) -> Logistic:
    """Fit which later turn a message needs instead of one that is out of date, where there are no facts."""
    rows, wanted = [], []
    for one in seen:
        if any(record.kind == "fact" for record in one.weighed.records):
            continue
        _, chosen, _ = choose(one.weighed, weights, at_least=LATER_FROM, limit=LATER_MOST)
        stale, needed = set(one.message["stale"]), set(one.message["must"] or one.message["may"])
        for at in chosen[:LATER_MOST]:
            others = later_turns(one.weighed, at)
            if not others:
                continue
            features = later_features(one.weighed, weights, at, others, one.strengths_of(at, others))
            rows.append(np.stack([features[name] for name in names], axis=1))
            is_stale = bool(one.lines[at] & stale)
            wanted += [float(is_stale and bool(one.lines[place] & needed)) for place in others]
    if not any(wanted):
        return weights.later
    return fit_logistic(np.concatenate(rows), np.array(wanted), np.ones(len(wanted)), names, ridge=LINE_RIDGE)


def _with_line_from(weights: Weights, seen: Sequence[Measured], *, least: float) -> Weights:
    """Set the threshold of lines so that precision is reached with facts; turns only are less precise."""
    some = [one for one in seen if any(record.kind == "fact" for record in one.weighed.records)] or list(seen)
    some = some[::EVERY]
    low, high = -5.0, 1.0
    for _ in range(7):
        middle = (low + high) / 2
        tried = weights._replace(line_from=middle, turn_from=middle)
        precision = figures([judged(one, tried, 0.5, standing="real") for one in some])["precision"]
        if precision is not None and precision < least:
            low = middle
        else:
            high = middle
    loosened = {"line_from": high, "turn_from": high, "message_from": weights.message_from}
    if "message" in weights.line.weights:
        loosened = {name: value + LOOSER[name] for name, value in loosened.items()}
    return weights._replace(**{name: round(value, 3) for name, value in loosened.items()})


def judged(
    one: Measured,
    weights: Weights,
    at_least: float,
    *,
    standing: Standing,
    blocks: bool = False,
) -> Judged:
    """What the program would show, counted as `lives.py` counts it; tokens only with `blocks`."""
    weighed, lines = one.weighed, one.lines
    kept = [at for at, record in enumerate(weighed.records) if not one.stands(at, record.id, standing)]
    if len(kept) < len(lines):
        weighed = replace(
            weighed,
            records=[weighed.records[at] for at in kept],
            features={name: values[kept] for name, values in weighed.features.items()},
            alike=weighed.alike[np.ix_(kept, kept)],
            passages=weighed.passages[kept],
            later=[weighed.later[at] for at in kept],
            told=[weighed.told[at] for at in kept],
        )
        lines = tuple(lines[at] for at in kept)
    sure, chosen, _ = choose(weighed, weights, at_least=at_least, limit=LIMIT)
    shown, _ = renew(chosen, weighed, weights, strength=lambda old, new: one.strengths[old.id, new.id])
    sources = {record.id: tuple(line) for record, line in zip(weighed.records, lines, strict=True)}
    sources = {id: tuple(some) for id, some in one.later.items()} | sources
    shown = [(at, record) for at, record in shown if standing != "real" or record.id not in one.whole]
    tokens = 0
    if blocks:
        hits = [Hit(memory=record, score=float(sure[at]), signals={}) for at, record in shown]
        best = {record.id: int(at) for record, at in zip(weighed.records, weighed.passages, strict=True)}
        context = block_of(hits, stems=weighed.question.stems, budget_tokens=BUDGET, limit=LIMIT, best=best)
        tokens, records = context.tokens, [hit.memory for hit in context.memories]
    else:
        records = [record for _, record in shown[:LIMIT]]
    always = {"real": one.standing, "ideal": frozenset(one.person["ideal"]), "none": frozenset()}
    return judge(
        one.person,
        one.message,
        Shown(
            lines=tuple(sources[record.id] for record in records), tokens=tokens, standing=always[standing]
        ),
    )


def left_out(measured: Mapping[str, Sequence[Measured]], thresholds: Sequence[float]) -> dict[str, Any]:
    """Every person by what was fitted to others: by store, with the real profile along the threshold."""
    every: dict[str, list[Judged]] = defaultdict(list)
    people = sorted({one.person["person"] for some in measured.values() for one in some})
    for part in range(PARTS):
        out = set(people[part::PARTS])
        if not out:
            continue
        others = [one for some in measured.values() for one in some if one.person["person"] not in out]
        weights, _ = fit(others, with_vectors=True)
        for name, some in measured.items():
            own = [_with_need(one, weights.need) for one in some if one.person["person"] in out]
            for title, profile in STANDING.items():
                for at in thresholds if profile == "real" else (0.5,):
                    every[f"{name}{title}, {at}"] += [
                        judged(one, weights, at, standing=profile, blocks=True) for one in own
                    ]
        print(", ".join(sorted(out)), "left out", flush=True)
    report = {}
    for name, some in every.items():
        report[name] = {"all": figures(some), "intervals": intervals(some)}
        if name.endswith(", 0.5"):
            for what in ("kind", "language", "person"):
                groups: dict[str, list[Judged]] = defaultdict(list)
                for one in some:
                    groups[getattr(one, what)].append(one)
                report[name][what] = {key: figures(group) for key, group in sorted(groups.items())}
    return report


def as_json(weights: Weights) -> dict[str, Any]:
    """Weights as the data file has them."""

    def one(found: Logistic) -> dict[str, Any]:
        return {
            "weights": {name: round(weight, 4) for name, weight in found.weights.items()},
            "bias": round(found.bias, 4),
        }

    return {
        "line": one(weights.line),
        "message": one(weights.message),
        "later": one(weights.later),
        "line_from": weights.line_from,
        "turn_from": weights.turn_from,
        "message_from": weights.message_from,
        "beyond_doubt": weights.beyond_doubt,
    }


async def write_associations(embedder: Embedder) -> None:
    """Embed the shipped table and keep it as package data."""
    groups = read_associations(None).groups
    vectors = await embedder.embed([text for group in groups for text in group], "query")
    centres = dict(zip(map(group_key, groups), centres_of(groups, vectors), strict=True))
    (DATA / "associations.npz").write_bytes(pack_centres(embedder.info.id, centres))


def main() -> None:
    """Read the arguments, measure, fit, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?", help="the folder with the persons")
    parser.add_argument("--kept", type=Path, help="read what was measured from this file, or write it there")
    parser.add_argument("--thresholds", nargs="*", type=float, default=(0.3, 0.4, 0.5, 0.6, 0.7))
    parser.add_argument("--write", action="store_true", help="fit to all persons and write the weights")
    parser.add_argument(
        "--report", action="store_true", help="fit with each person left out and print the figures"
    )
    parser.add_argument("--out", type=Path, help="write the figures to this file as JSON")
    parser.add_argument("--associations", action="store_true", help="embed the table of associations")
    parser.add_argument("--home", type=Path, default=None, help="SATCHEL_HOME, for the models")
    parser.add_argument("--second", default="use-multilingual", help="for other languages; or none")
    arguments = parser.parse_args()

    async def measured_now() -> dict[str, list[Measured]]:
        async with closing(
            cached_embedder("minilm", home=arguments.home, second=arguments.second)
        ) as embedder:
            if arguments.associations:
                await write_associations(embedder)
            return {} if arguments.folder is None else await measure(arguments.folder, embedder)

    if arguments.kept and arguments.kept.exists():
        measured = pickle.loads(arguments.kept.read_bytes())
    else:
        measured = anyio.run(measured_now)
        if arguments.kept:
            arguments.kept.write_bytes(pickle.dumps(measured))
    if not measured:
        print("No folder with lives was given; nothing is fitted.")
        return
    if arguments.write:
        every = [one for some in measured.values() for one in some]
        weights, _ = fit(every, with_vectors=True)
        by_words, _ = fit(every, with_vectors=False)
        found = {"with_vectors": as_json(weights), "by_words": as_json(by_words), "need": weights.need}
        text = json.dumps(found, indent=1, ensure_ascii=False)
        (DATA / "surface_weights.json").write_text(text + "\n", encoding="utf-8")
        print(Counter(len(one.lines) for one in every).most_common(3), len(weights.need), "words")
    if arguments.report:
        report = left_out(measured, arguments.thresholds)
        for name, found in report.items():
            print(name, ", ".join(f"{key} {value}" for key, value in found["all"].items()))
        if arguments.out:
            arguments.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
