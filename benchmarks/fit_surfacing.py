"""Fit what is worth showing before a message (`memory/show/choosing.py`) to lives, and report on persons left out.

    python benchmarks/fit_surfacing.py FOLDER [--write] [--report] [--own] [--kept FILE] [--out FILE] [--associations]

FOLDER holds persons as `lives.py` reads them. Every message is measured by the program itself (`Surface.weigh`), with
turns only, with facts, and with facts and their cues, and before smaller and larger stores that are drawn from the
lives ("facts, 5"): five memories are somebody's first day. All are fitted together. Then, for each fifth of the
persons, everything is fitted to the others: which words of a message speak for a need, both regressions, and the
thresholds. `--write` fits to all of them and writes `memory/data/surface_weights.json`. `--kept` keeps what was
measured in a file. `--own` asks what a judge of one's own would bring: what was fitted to others is fitted on to the
labels of the first half of each person's messages, and the second half is scored (docs/decisions/0110-*.md).
`--associations` embeds the shipped table of associations with the default embedder instead.

The figures are those of `lives.py`. "profile" counts the program's own profile and agenda, as a session that begins
with the message has them; "ideal profile" the facts marked `profile`, as far as 300 tokens reach. Both leave out of
what is surfaced what stands there. While a person is measured, what else is fitted to lives has not seen the person
(`unseen.py`).

A drawn store holds the memories of some messages, and others of the same life at random; where the life has too few,
those of other lives beside it. Each of the life's sixty messages is asked there: what it needs is what it needs of
this store, and *nothing* is of all messages that nothing in the store helps with. Profile and agenda don't count.
"""

from __future__ import annotations

import argparse
import json
import math
import pickle
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

import anyio
import numpy as np
from lives import (
    NOWHERE,
    QUIET,
    STORES,
    Judged,
    Shown,
    Stored,
    figures,
    ideal_profile,
    intervals,
    judge,
    people_in,
    standing,
    store,
    store_facts,
)
from sets import cached_embedder, closing, read, second_of
from unseen import Unseen

from satchel.clock import ManualClock
from satchel.memory import Memory
from satchel.memory.records import Hit
from satchel.memory.show.choosing import (
    LINE_FEATURES,
    MESSAGE_FEATURES,
    Logistic,
    NeedWeights,
    message_features,
    need_of,
    need_words,
)
from satchel.memory.show.surface import choose, may_stand, with_later
from satchel.memory.show.weighing import Weighed, weigh
from satchel.memory.store.filters import CheckedFilters
from satchel.memory.text.block import block_of
from satchel.memory.text.newest import newest_of_each
from satchel.models.port import Embedder

DATA = Path(__file__).parents[1] / "src" / "satchel" / "memory" / "data"
LIMIT, BUDGET = 8, 500
HARMLESS = 0.3
"""What a line counts that is harmless: the model is not fitted to tell it from what is needed."""
LINE_RIDGE = 1.0
NEED_RIDGE = 3.0
LEAST_PERSONS = 3
"""A word that fewer persons use tells who writes, and not what is asked."""


class Bound(NamedTuple):
    """What thresholds have to reach with one kind of memory, on the persons that are fitted to.

    Attributes:
        precision: In whole lives, with the real profile; `nothing` likewise.
        nothing_drawn: *Nothing* in small drawn stores.
    """

    precision: float
    nothing: float
    nothing_drawn: float


WHOLE = {"facts": ("cues", "facts"), "turns": ("turns",)}
SMALL = {"facts": ("facts, 5", "facts, 10"), "turns": ("turns, 5", "turns, 10")}
BOUNDS = {"facts": Bound(0.48, 0.80, 0.74), "turns": Bound(0.53, 0.80, 0.80)}
"""On persons that were left out, whole lives reach precision .46 with facts and cues and .50 with turns, *nothing* .85
and .91; small stores *nothing* .75 with facts. A bound that is far exceeded leaves a threshold to chance. See `Lines`
for the precision with turns."""
MISSED = 6.0
"""What a bound that is missed by one costs, in *needed*."""
LINE_FROM = np.linspace(-2.6, 0.0, 27)
MESSAGE_FROM = np.linspace(0.1, 0.9, 17)
"""The thresholds that are tried; for messages, as shares of those that nothing is to be shown for."""

DRAWS = (
    ("facts", 5, 2),
    ("facts", 10, 2),
    ("facts", 30, 1),
    ("turns", 5, 2),
    ("turns", 10, 2),
    ("turns", 30, 1),
    ("cues", 10, 1),
    ("facts", 100, 1),
    ("turns", 100, 1),
)
"""Stores that are drawn from each life: of what, how many, and how often."""
WITHOUT_OLD = 10
"""Stores up to this size have no facts that were replaced, and what some messages need."""
WITHOUT_OTHERS = 60
"""Larger stores have memories of other lives beside those of one; nothing is fitted to them."""
EVERY_LANGUAGE_FROM = 1_000
MOST_NEEDED = 3
"""What needs more memories than that is drawn by chance only."""

Standing = Literal["real", "ideal", "none"]
STANDING: dict[str, Standing] = {", profile": "real", ", ideal profile": "ideal", ", no profile": "none"}
DRAWN: dict[str, Standing] = {"": "none"}
PARTS = 5
"""Persons are left out in so many parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One message before one store.

    Attributes:
        lines: Of each weighed memory, the memories that it counts as.
        profile: Which of them stand in the ideal profile already.
        standing: The memories in the real profile and agenda; `whole`: the ids of those that stand there whole.
        later: Of each later memory by its id, the memories that it counts as.
    """

    person: Mapping[str, Any]
    message: Mapping[str, Any]
    weighed: Weighed
    lines: tuple[frozenset[str], ...]
    profile: tuple[bool, ...]
    standing: frozenset[str]
    whole: frozenset[str]
    later: Mapping[str, tuple[str, ...]]

    def stands(self, at: int, id: str, standing: Standing) -> bool:
        """Whether a line stands in the profile or the agenda already."""
        return (standing == "ideal" and self.profile[at]) or (standing == "real" and id in self.whole)


async def measure(folder: Path, embedder: Embedder, second: Embedder | str) -> dict[str, list[Measured]]:
    """Measure every message of every person, by store."""
    found: dict[str, list[Measured]] = defaultdict(list)
    people = [{**read(path), "person": path.stem} for path in people_in(folder, ())]
    unseen = Unseen(people)
    for person in people:
        with unseen.without(person["person"]):
            for name in STORES:
                async with _opened(embedder, second) as (memory, clock):
                    stored = await store(memory, clock, person, facts=name != "turns", cues=name == "cues")
                    found[name] += await _measure(memory, clock, person, stored)
        rng = random.Random(person["person"])
        for kind, size, times in DRAWS:
            for _ in range(times):
                async with _opened(embedder, second) as (memory, clock):
                    stored = await _store_drawn(memory, clock, person, people, kind=kind, size=size, rng=rng)
                    found[f"{kind}, {size}"] += await _measure(memory, clock, _within(person, stored), stored)
        print(person["person"], flush=True)
    return dict(found)


@asynccontextmanager
async def _opened(embedder: Embedder, second: Embedder | str) -> AsyncIterator[tuple[Memory, ManualClock]]:
    clock = ManualClock()
    async with Memory.open(
        ":memory:", embedder=embedder, second_embedder=second, clock=clock, back_fill=False
    ) as memory:
        yield memory, clock


async def _measure(
    memory: Memory, clock: ManualClock, person: Mapping[str, Any], stored: Stored
) -> list[Measured]:
    await memory.embed_pending()
    await memory._space.candidates.refresh()
    measured = []
    ideal = set(ideal_profile(person))
    for message in person["messages"]:
        clock.at = datetime.fromisoformat(message["at"])
        texts = [one["text"] for one in message["context"]][-2:] + [message["text"]]
        visible = memory._search.visible(CheckedFilters(), include_superseded=False)
        weighed = await weigh(memory._space, texts, visible)
        if weighed is None:
            continue
        lines = tuple(frozenset(stored.sources[one.id]) for one in weighed.records)
        always, whole = (frozenset(), frozenset()) if "drawn" in message else await standing(memory, stored)
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
                later={
                    one.memory.id: stored.sources[one.memory.id] for some in weighed.later for one in some
                },
            )
        )
    return measured


# Drawn stores.


async def _store_drawn(
    memory: Memory,
    clock: ManualClock,
    person: Mapping[str, Any],
    people: Sequence[Mapping[str, Any]],
    *,
    kind: str,
    size: int,
    rng: random.Random,
) -> Stored:
    """Store so many turns or facts of one life, and beside them those of others if it has too few."""
    named = "memories" if kind == "turns" else "facts"
    own = drawn(person, named, min(size, len(person["memories"])), rng)
    lives = [own]
    if size > WITHOUT_OTHERS:
        others = [one for one in people if one is not person and one["language"] == person["language"]]
        if size >= EVERY_LANGUAGE_FROM or not others:
            others += [one for one in people if one["language"] != person["language"]]
        rng.shuffle(others)
        left = size - len(own[named])
        for other in others:
            held = [one for one in other[named] if not one.get("replaced_by")][:left]
            lives.append({**other, named: held})
            left -= len(held)
    sources: dict[str, tuple[str, ...]] = {}
    for life in lives:
        mark = "" if life is own else life["person"]
        if kind == "turns":
            turns = [{**one, "session": mark + one["session"]} for one in life["memories"]]
            found = await store(memory, clock, {**life, "memories": turns}, facts=False, cues=False)
            kept = found.sources
        else:
            kept = await store_facts(memory, clock, life, cues=kind == "cues")
        sources |= {id: tuple(mark + one for one in some) for id, some in kept.items()}
    return Stored(sources=sources)


def drawn(person: Mapping[str, Any], named: str, size: int, rng: random.Random) -> dict[str, Any]:
    """A life with only so many of its "memories" or "facts"; half of a small store is what some messages need."""
    pool = [one for one in person[named] if size > WITHOUT_OLD or not one.get("replaced_by")]
    counts = {one["id"]: set(one.get("sources", (one["id"],))) for one in pool}
    chosen: list[str] = []
    asking = [one for one in person["messages"] if one["must"]] if size <= WITHOUT_OLD else []
    rng.shuffle(asking)
    for message in asking:
        if len(chosen) >= max(1, size / 2):
            break
        must = set(message["must"])
        needed = [one for one, some in counts.items() if some & must]
        if 0 < len(needed) <= MOST_NEEDED and must <= set().union(*(counts[one] for one in needed)):
            chosen += [one for one in needed if one not in chosen]
    rest = [one for one in counts if one not in chosen]
    rng.shuffle(rest)
    kept = set([*chosen, *rest][:size])
    return {
        **person,
        named: [
            {**one, "replaced_by": one["replaced_by"] if one["replaced_by"] in kept else None}
            if named == "facts"
            else one
            for one in person[named]
            if one["id"] in kept
        ],
    }


def _within(person: Mapping[str, Any], stored: Stored) -> dict[str, Any]:
    """A person whose messages need no more than what is stored."""
    there = {one for some in stored.sources.values() for one in some}
    return {
        **person,
        "messages": [
            {**one, "drawn": True}
            | {name: [id for id in one[name] if id in there] for name in ("must", "may", "stale")}
            for one in person["messages"]
        ],
    }


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


def fit(measured: Mapping[str, Sequence[Measured]], *, with_vectors: bool) -> NeedWeights:
    """Fit everything to some messages, by store.

    The need that the regressions see is that of words learned from other persons, a fifth of them left out in turn.
    """
    messages = [(one.person["person"], one.message) for one in measured["turns"]]
    people = sorted({person for person, _ in messages})
    need = fit_need(messages)
    folds: dict[str, dict[str, float]] = {}
    for fold in range(5):
        out = set(people[fold::5])
        folds |= dict.fromkeys(out, fit_need(one for one in messages if one[0] not in out))
    named = {
        name: [_with_need(one, folds[one.person["person"]]) for one in some if one.lines]
        for name, some in measured.items()
        if _is_fitted(name)
    }
    seen = [one for some in named.values() for one in some]
    names = features_with(LINE_FEATURES, with_vectors=with_vectors)
    rows = np.concatenate([np.stack([one.weighed.features[name] for name in names], axis=1) for one in seen])
    wanted = np.concatenate(
        [[float(bool(line & set(one.message["must"]))) for line in one.lines] for one in seen]
    )
    harmless = np.concatenate([[bool(line & set(one.message["may"])) for line in one.lines] for one in seen])
    counts = np.where((wanted == 0) & harmless, HARMLESS, 1.0)
    line = fit_logistic(rows, wanted, counts, names, ridge=LINE_RIDGE)
    about = features_with(MESSAGE_FEATURES, with_vectors=with_vectors)
    told = np.array([[_told(one, line)[name] for name in about] for one in seen])
    concerns = np.array([float(one.message["kind"] not in QUIET) for one in seen])
    message = fit_logistic(told, concerns, np.ones(len(told)), about, ridge=LINE_RIDGE)
    weights = NeedWeights(
        line=line, message=message, line_from=0.0, turn_from=0.0, message_from=0.0, need=need
    )
    return _with_thresholds(weights, named)


def _is_fitted(name: str) -> bool:
    return name in STORES or int(name.split(", ")[1]) <= WITHOUT_OTHERS


def _told(one: Measured, line: Logistic) -> dict[str, float]:
    log_odds = np.clip(line.log_odds(one.weighed.features), -20, 20)
    return message_features(one.weighed.features, log_odds, text=one.weighed.text, need=one.weighed.need)


class Lines:
    """All lines before one kind of store, with what they are worth, to try thresholds on.

    Lines that say the same count twice here, old values count as if the new one were beside them, and the lines of a
    message are not bounded. With turns, *precision* is .09 above what `judged` finds on persons that were left out,
    with facts .01.
    """

    def __init__(self, weights: NeedWeights, seen: Sequence[Measured]) -> None:
        """Weigh the lines of some messages."""
        log_odds: list[float] = []
        at, good, needed_by, standing, needs = [], [], [], [], 0
        self.message = np.zeros(len(seen))
        self.quiet = np.array([_kind_of(one) in QUIET for one in seen])
        for place, one in enumerate(seen):
            self.message[place] = weights.message.log_odds(_told(one, weights.line))
            must = sorted(one.message["must"])
            helps = {*must, *one.message["may"], *one.message["stale"]}
            standing += [id in one.standing for id in must]
            found = np.clip(weights.line.log_odds(one.weighed.features), -20, 20)
            for record, line, odds in zip(one.weighed.records, one.lines, found.tolist(), strict=True):
                if record.id in one.whole:
                    continue
                needed_by += [(needs + must.index(id), len(log_odds)) for id in line & set(must)]
                log_odds.append(odds)
                at.append(place)
                good.append(bool(line & helps))
            needs += len(must)
        self.log_odds, self.at, self.good = np.array(log_odds), np.array(at), np.array(good)
        self.needed_by = np.array(needed_by, dtype=np.int64).reshape(-1, 2)
        self.standing = np.array(standing, dtype=bool)

    def figures(self, line_from: float, message_from: float) -> tuple[float, float, float]:
        """*Needed*, *precision* and *nothing* with thresholds."""
        shown = self.log_odds + np.minimum(self.message - message_from, 0)[self.at] >= line_from
        found = self.standing.copy()
        found[self.needed_by[shown[self.needed_by[:, 1]], 0]] = True
        spoken = np.zeros(len(self.message), dtype=bool)
        spoken[self.at[shown]] = True
        return (
            float(found.mean()),
            float(self.good[shown].mean()) if shown.any() else 1.0,
            float((~spoken[self.quiet]).mean()),
        )


def _with_thresholds(weights: NeedWeights, seen: Mapping[str, Sequence[Measured]]) -> NeedWeights:
    """Set the thresholds so that the most of what is needed is shown within `BOUNDS`."""
    lines = {
        name: Lines(weights, seen[name])
        for some in (WHOLE, SMALL)
        for names in some.values()
        for name in names
    }

    def worth(kind: str, line_from: float, message_from: float) -> float:
        whole = [lines[name].figures(line_from, message_from) for name in WHOLE[kind]]
        small = [lines[name].figures(line_from, message_from) for name in SMALL[kind]]
        bound = BOUNDS[kind]
        nothing_drawn = sum(one[2] for one in small) / len(small)
        missed = (
            bound.precision - whole[0][1],
            bound.nothing - whole[0][2],
            bound.nothing_drawn - nothing_drawn,
        )
        needed = sum(one[0] for one in (*whole, *small))
        return needed - MISSED * sum(max(one, 0.0) for one in missed)

    # By words alone, it is unknown from which sessions facts were drawn: there, turns have the threshold of facts.
    apart = "message" in weights.line.weights
    quiet = lines["cues"].message[lines["cues"].quiet]
    found = []
    for message_from in np.quantile(quiet, MESSAGE_FROM):
        facts = [worth("facts", one, message_from) for one in LINE_FROM]
        turns = [worth("turns", one, message_from) for one in LINE_FROM]
        line, turn = int(np.argmax(facts)), int(np.argmax(turns))
        if not apart:
            line = turn = int(np.argmax(np.add(facts, turns)))
        found.append((facts[line] + turns[turn], LINE_FROM[line], LINE_FROM[turn], message_from))
    _, line_from, turn_from, message_from = max(found)
    return weights._replace(
        line_from=round(float(line_from), 3),
        turn_from=round(float(turn_from), 3),
        message_from=round(float(message_from), 3),
    )


def _kind_of(one: Measured) -> str:
    """The kind of a message; in a drawn store, `NOWHERE` if nothing there helps."""
    if "drawn" in one.message and not one.message["must"] and not one.message["may"]:
        return NOWHERE
    return str(one.message["kind"])


WITHOUT_VECTORS = frozenset(
    {"words", "covered", "fact", "own", "need", "best", "second", "expected", "length"}
)


def features_with(names: Mapping[str, str], *, with_vectors: bool) -> list[str]:
    """The names of the features that can be measured."""
    return [name for name in names if with_vectors or name in WITHOUT_VECTORS]


def only(weighed: Weighed, places: Sequence[int]) -> Weighed:
    """The same of some of the memories."""
    records = [weighed.records[at] for at in places]
    return replace(
        weighed,
        records=records,
        features={name: values[list(places)] for name, values in weighed.features.items()},
        alike=weighed.alike[np.ix_(places, places)],
        passages=weighed.passages[list(places)],
        later=[weighed.later[at] for at in places],
        outdated=[weighed.outdated[at] for at in places],
        told=[weighed.told[at] for at in places],
        kinds=newest_of_each(records),
    )


def judged(
    one: Measured,
    weights: NeedWeights,
    at_least: float,
    *,
    standing: Standing,
    blocks: bool = False,
) -> Judged:
    """What the program would show, counted as `lives.py` counts it; tokens only with `blocks`."""
    weighed, lines = one.weighed, one.lines
    kept = [at for at, record in enumerate(weighed.records) if not one.stands(at, record.id, standing)]
    if len(kept) < len(lines):
        weighed = only(weighed, kept)
        lines = tuple(lines[at] for at in kept)
    sure, chosen = choose(weighed, weights, at_least=at_least, limit=LIMIT)
    there = one.whole if standing == "real" else ()
    shown = [(line.at, line.record) for line in may_stand(with_later(chosen, weighed, there=there))]
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
        {**one.message, "kind": _kind_of(one)},
        Shown(
            lines=tuple(sources[record.id] for record in records), tokens=tokens, standing=always[standing]
        ),
    )


def left_out(
    measured: Mapping[str, Sequence[Measured]], thresholds: Sequence[float], *, parts: int = PARTS
) -> dict[str, Any]:
    """Every person by what was fitted to others: by store, with the real profile along the threshold."""
    every: dict[str, list[Judged]] = defaultdict(list)
    people = sorted({one.person["person"] for one in measured["turns"]})
    for part in range(parts):
        out = set(people[part::parts])
        if not out:
            continue
        weights = fit(
            {
                name: [one for one in some if one.person["person"] not in out]
                for name, some in measured.items()
            },
            with_vectors=True,
        )
        for name, some in measured.items():
            own = [_with_need(one, weights.need) for one in some if one.person["person"] in out]
            for title, profile in (STANDING if name in STORES else DRAWN).items():
                for at in thresholds if profile == "real" else (0.5,):
                    every[f"{name}{title}, {at}"] += [
                        judged(one, weights, at, standing=profile, blocks=True) for one in own
                    ]
        print(", ".join(sorted(out)), "left out", flush=True)
    report = {}
    for name, of_store in every.items():
        report[name] = {"all": figures(of_store), "intervals": intervals(of_store)}
        if name.endswith(", 0.5"):
            for what in ("kind", "language", "person"):
                groups: dict[str, list[Judged]] = defaultdict(list)
                for verdict in of_store:
                    groups[getattr(verdict, what)].append(verdict)
                report[name][what] = {key: figures(group) for key, group in sorted(groups.items())}
    return report


def fitted_on(line: Logistic, names: Sequence[str], seen: Sequence[Measured], *, ridge: float) -> Logistic:
    """A line's regression, fitted on to what was needed in some messages; `ridge` holds it to what it was."""
    seen = [one for one in seen if one.lines]
    rows = np.concatenate([np.stack([one.weighed.features[name] for name in names], axis=1) for one in seen])
    must = [set(one.message["must"]) for one in seen]
    may = [set(one.message["may"]) for one in seen]
    wanted = np.array([bool(line & some) for one, some in zip(seen, must, strict=True) for line in one.lines])
    harmless = np.array(
        [bool(line & some) for one, some in zip(seen, may, strict=True) for line in one.lines]
    )
    counts = np.where(harmless & ~wanted, HARMLESS, 1.0)
    spread = rows.std(axis=0) + 1e-9
    scaled = np.hstack([rows / spread, np.ones((len(rows), 1))])
    before = np.append([line.weights[name] for name in names] * spread, line.bias)
    found = before.copy()
    for _ in range(30):
        likely = 1 / (1 + np.exp(-np.clip(scaled @ found, -30, 30)))
        certain = counts * likely * (1 - likely) + 1e-9
        found += np.linalg.solve(
            (scaled * certain[:, None]).T @ scaled + np.eye(len(found)) * ridge,
            scaled.T @ (counts * (wanted - likely)) - ridge * (found - before),
        )
    weights = dict(zip(names, map(float, found[:-1] / spread), strict=True))
    return Logistic(weights, float(found[-1]))


def own_halves(
    measured: Mapping[str, Sequence[Measured]], thresholds: Sequence[float], ridges: Sequence[float]
) -> dict[str, Any]:
    """The second half of every person's messages: by what was fitted to others, and fitted on to their first half."""
    found: dict[str, list[Judged]] = defaultdict(list)
    people = sorted({one.person["person"] for one in measured["turns"]})
    names = features_with(LINE_FEATURES, with_vectors=True)
    for part in range(PARTS):
        out = set(people[part::PARTS])
        others = {
            name: [one for one in some if one.person["person"] not in out] for name, some in measured.items()
        }
        shipped = fit(others, with_vectors=True)
        for name, person in ((name, person) for name in STORES for person in sorted(out)):
            own = [_with_need(one, shipped.need) for one in measured[name] if one.person["person"] == person]
            own.sort(key=lambda one: one.message["at"])
            first, second = own[: len(own) // 2], own[len(own) // 2 :]
            weights = {"others'": shipped} | {
                f"ridge {ridge:g}": shipped._replace(line=fitted_on(shipped.line, names, first, ridge=ridge))
                for ridge in ridges
            }
            for (title, one), at in ((pair, at) for pair in weights.items() for at in thresholds):
                found[f"{name}, {title}, {at}"] += [judged(each, one, at, standing="real") for each in second]
    return {name: {"all": figures(some)} for name, some in found.items()}


def as_json(weights: NeedWeights) -> dict[str, Any]:
    """NeedWeights as the data file has them."""

    def one(found: Logistic) -> dict[str, Any]:
        return {
            "weights": {name: round(weight, 4) for name, weight in found.weights.items()},
            "bias": round(found.bias, 4),
        }

    return {
        "line": one(weights.line),
        "message": one(weights.message),
        "line_from": weights.line_from,
        "turn_from": weights.turn_from,
        "message_from": weights.message_from,
    }


async def write_associations(embedder: Embedder) -> None:
    """Embed the table and keep it as package data: the mean of each topic's and each situation's examples."""
    table = json.loads((Path(__file__).parent / "data" / "associations.json").read_text(encoding="utf-8"))
    topics, situations = table["topics"], table["situations"]
    groups = [one["examples"] for one in (*topics.values(), *situations.values())]
    vectors = await embedder.embed([text for group in groups for text in group], "query")
    sums = np.add.reduceat(vectors, np.cumsum([0, *map(len, groups)])[:-1], axis=0)
    # One byte for each number, which changes no cosine by more than .01.
    rows = np.rint(sums * (127 / np.abs(sums).max(axis=1, keepdims=True))).astype(np.int8)
    np.savez_compressed(
        DATA / "associations.npz",
        embedder=np.array(embedder.info.id),
        topics=rows[: len(topics)],
        situations=rows[len(topics) :],
        weights=np.array(
            [[one["topics"].get(name, 0.0) for name in topics] for one in situations.values()], np.float32
        ),
        spheres=np.array([one.get("sphere", "") for one in topics.values()]),
    )


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
    parser.add_argument("--own", action="store_true", help="fit on to the first half of each person")
    parser.add_argument("--parts", type=int, default=PARTS, help="leave the persons out in so many parts")
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
            if arguments.folder is None:
                return {}
            return await measure(arguments.folder, embedder, second_of(embedder))

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
        weights = fit(measured, with_vectors=True)
        by_words = fit(measured, with_vectors=False)
        found = {"with_vectors": as_json(weights), "by_words": as_json(by_words), "need": weights.need}
        text = json.dumps(found, indent=1, ensure_ascii=False)
        (DATA / "surface_weights.json").write_text(text + "\n", encoding="utf-8")
        print(weights._replace(need={}), by_words._replace(need={}), len(weights.need), "words", sep="\n")
    if arguments.report or arguments.own:
        report = (
            own_halves(measured, arguments.thresholds, (3, 30, 100))
            if arguments.own
            else left_out(measured, arguments.thresholds, parts=arguments.parts)
        )
        for name, found in report.items():
            print(name, ", ".join(f"{key} {value}" for key, value in found["all"].items()))
        if arguments.out:
            arguments.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
