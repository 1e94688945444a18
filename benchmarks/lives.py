"""What a model would have before it in a life: the needed memories, the spare ones, the tokens, and stale values.

    python benchmarks/lives.py FOLDER [--only PERSON ...] [--thresholds 0.1 0.3 ...] [--refit FILE.py]
                               [--home FOLDER] [--out FILE] [--misses]

FOLDER holds one person in a file: memories (turns), facts that a good secretary would have noted, and messages, each
judged by hand: what it needs (`must`), what is harmless (`may`) and what no longer holds (`stale`). Everything goes
through the public API: turns by `add_episodes`, session by session; facts by `add` with the session and turn of their
first source, without and with their cues, `supersede` where a fact was replaced, `valid_to` where it only
ended. The clock is the message's. Each message is asked for itself, with its context, by `recall`: what `surface` would
show, without counting it as used. A fact counts as its sources.

    needed     all `must` found in profile or surfaced, over all `must`
    precision  surfaced lines that are `must` or `may`, over all surfaced lines; a stale line counts if the new value
               (one of `must`, or of `may` where nothing must be shown) is there too
    nothing    world, task and chat messages without a surfaced line
    tokens     of the surfaced block, mean over all messages
    stale      messages for which a stale value is shown and the new one is not

Profile and agenda count for `needed` and as a new value, and for nothing else. Baselines in the same run: the first
five and ten of a plain search; the facts marked `profile` as far as 300 tokens reach, alone ("ideal profile", which
no store is told). Everything is measured with turns only, with facts, and with facts and their cues, by kind, person
and language, and along the threshold.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time
from pathlib import Path
from typing import Any, get_args

import anyio
from sets import Refit, cached_embedder, closing, interval, is_fitted, read, refit_from, second_of, without

from satchel.clock import ManualClock
from satchel.memory import Episode, Memory, MemoryType
from satchel.memory.store.cues import MOST_CUES
from satchel.memory.text.framing import estimate_tokens
from satchel.models.port import Embedder

NOWHERE = "nowhere"
"""The kind of a message that nothing in a drawn store helps with; see `fit_surfacing.py`."""
QUIET = ("world", "task", "chat", NOWHERE)
PROFILE_TOKENS = 300
THRESHOLDS = (0.1, 0.3, 0.7, 0.9)
STORES = ("turns", "facts", "cues")
"""What is stored: turns; facts too; facts with their cues too."""
FIGURES = ("needed", "precision", "nothing", "tokens", "lines", "stale")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What is in the store: of each id, the memories that it counts as, and of what always stands before the model."""

    sources: Mapping[str, tuple[str, ...]]
    standing: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What one message was shown.

    Attributes:
        lines: Of each line, the memories that it counts as.
        standing: The memories in profile and agenda.
    """

    lines: tuple[tuple[str, ...], ...]
    tokens: int
    standing: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One message's counts, to be added up."""

    person: str
    language: str
    kind: str
    must: int
    found: int
    lines: int
    good: int
    tokens: int
    stale: bool
    has_stale: bool
    missed: tuple[str, ...] = field(default=(), compare=False)
    spare: tuple[tuple[str, ...], ...] = field(default=(), compare=False)
    message: str = field(default="", compare=False)


def judge(person: Mapping[str, Any], message: Mapping[str, Any], shown: Shown) -> Judged:
    """Count what one message was shown against what it needed."""
    must, may, stale = (set(message[name]) for name in ("must", "may", "stale"))
    there = {id for line in shown.lines for id in line} | shown.standing
    renewed = bool(there & (must or may))  # `may` stands in where nothing must be shown.
    stale_lines = [line for line in shown.lines if not set(line) & (must | may) and set(line) & stale]
    good = [line for line in shown.lines if set(line) & (must | may) or (renewed and line in stale_lines)]
    return Judged(
        person=person["person"],
        language=person["language"],
        kind=message["kind"],
        must=len(must),
        found=len(must & there),
        lines=len(shown.lines),
        good=len(good),
        tokens=shown.tokens,
        stale=bool(stale_lines) and not renewed,
        has_stale=bool(stale),
        missed=tuple(sorted(must - there)),
        spare=tuple(line for line in shown.lines if line not in good),
        message=message["id"],
    )


def figures(judged: Sequence[Judged]) -> dict[str, float | int | None]:
    """The figures of some messages; None where there is nothing to count."""
    quiet = [one for one in judged if one.kind in QUIET]
    must, lines = sum(one.must for one in judged), sum(one.lines for one in judged)
    return {
        "messages": len(judged),
        "needed": round(sum(one.found for one in judged) / must, 4) if must else None,
        "precision": round(sum(one.good for one in judged) / lines, 4) if lines else None,
        "nothing": round(sum(not one.lines for one in quiet) / len(quiet), 4) if quiet else None,
        "tokens": round(sum(one.tokens for one in judged) / len(judged), 1),
        "lines": round(lines / len(judged), 2),
        "stale": sum(one.stale for one in judged),
        "of_stale": sum(one.has_stale for one in judged),
    }


def intervals(judged: Sequence[Judged]) -> dict[str, dict[str, tuple[float, float] | None]]:
    """95 % intervals of the shares, drawing messages and drawing persons."""
    shares: dict[str, list[tuple[float, float, str]]] = {
        "needed": [(one.found, one.must, one.person) for one in judged if one.must],
        "precision": [(one.good, one.lines, one.person) for one in judged if one.lines],
        "nothing": [(not one.lines, 1, one.person) for one in judged if one.kind in QUIET],
    }
    return {
        name: {
            "messages": interval([part for part, _, _ in rows], of=[whole for _, whole, _ in rows]),
            "persons": interval(
                [part for part, _, _ in rows],
                [person for _, _, person in rows],
                of=[whole for _, whole, _ in rows],
            ),
        }
        for name, rows in shares.items()
    }


def report(judged: Sequence[Judged]) -> dict[str, Any]:
    """Figures of all messages, and by kind, person and language."""

    def by(of: Callable[[Judged], str]) -> dict[str, Any]:
        groups: dict[str, list[Judged]] = defaultdict(list)
        for one in judged:
            groups[of(one)].append(one)
        return {name: figures(some) for name, some in sorted(groups.items())}

    return {
        "all": figures(judged),
        "intervals": intervals(judged),
        "by_kind": by(lambda one: one.kind),
        "by_person": by(lambda one: one.person),
        "by_language": by(lambda one: one.language),
    }


async def store(
    memory: Memory, clock: ManualClock, person: Mapping[str, Any], *, facts: bool, cues: bool
) -> Stored:
    """Store a life as it was said, and beside it the facts, with their cues or without."""
    sources: dict[str, tuple[str, ...]] = {}
    sessions: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for turn in person["memories"]:
        sessions[turn["session"]].append(turn)
    for session, turns in sessions.items():
        clock.at = datetime.fromisoformat(turns[-1]["said_at"])
        ids = await memory.add_episodes(
            Episode(
                session=session,
                turn=turn["turn"],
                speaker=turn["speaker"],
                text=turn["text"],
                said_at=datetime.fromisoformat(turn["said_at"]),
            )
            for turn in turns
        )
        sources |= {id: (turn["id"],) for id, turn in zip(ids, turns, strict=True)}
    if facts:
        sources |= await store_facts(memory, clock, person, cues=cues)
    return Stored(sources=sources)


async def store_facts(
    memory: Memory, clock: ManualClock, person: Mapping[str, Any], *, cues: bool
) -> dict[str, tuple[str, ...]]:
    """Store a life's facts alone; returns the memories that each counts as, by its id."""
    turns = {turn["id"]: turn for turn in person["memories"]}
    ids: dict[str, str] = {}
    for fact in sorted(person["facts"], key=lambda one: turns[one["sources"][0]]["said_at"]):
        source = turns[fact["sources"][0]]
        clock.at = said_at = datetime.fromisoformat(source["said_at"])
        ends = fact["until"] if not fact["replaced_by"] else None
        ids[fact["id"]] = await memory.add(
            fact["text"],
            memory_type=fact["type"] if fact["type"] in get_args(MemoryType) else "general",
            importance=fact["importance"],
            said_at=said_at,
            valid_to=datetime.combine(date.fromisoformat(ends), time.max, said_at.tzinfo) if ends else None,
            session=source["session"],
            turn=source["turn"],
            cues=fact["cues"][:MOST_CUES] if cues else (),
        )
    for fact in person["facts"]:
        if fact["replaced_by"]:
            await memory.supersede(ids[fact["id"]], ids[fact["replaced_by"]])
    return {ids[fact["id"]]: tuple(fact["sources"]) for fact in person["facts"]}


async def standing(memory: Memory, stored: Stored) -> tuple[frozenset[str], frozenset[str]]:
    """What stands in the profile and the agenda of a session that begins now: the memories, and the ids of those that
    stand there whole and so are not shown again.
    """
    lines = [*(await memory.standing()).memories, *(await memory.agenda()).memories]
    return (
        frozenset(id for line in lines for id in stored.sources[line.memory.id]),
        frozenset(line.memory.id for line in lines if line.words == line.memory.content),
    )


def ideal_profile(person: Mapping[str, Any]) -> tuple[str, ...]:
    """The memories of the facts marked `profile` that hold at the end, the most important first, in 300 tokens."""
    left, found = PROFILE_TOKENS, []
    marked = [fact for fact in person["facts"] if fact["profile"] and not fact["until"]]
    for fact in sorted(marked, key=lambda one: -one["importance"]):
        left -= estimate_tokens(fact["text"])
        if left < 0:
            break
        found += fact["sources"]
    return tuple(found)


async def live(
    person: Mapping[str, Any], *, embedder: Embedder, name: str, thresholds: Iterable[float]
) -> dict[str, list[Judged]]:
    """All messages of one person before one of `STORES`, by system: "surfaced", "threshold X", "first 5", "first 10",
    "ideal profile".
    """
    clock = ManualClock()
    judged: dict[str, list[Judged]] = defaultdict(list)
    async with Memory.open(
        ":memory:", embedder=embedder, second_embedder=second_of(embedder), clock=clock, back_fill=False
    ) as memory:
        stored = await store(memory, clock, person, facts=name != "turns", cues=name == "cues")
        await memory.embed_pending()
        ideal = frozenset(ideal_profile(person))
        for message in person["messages"]:
            clock.at = datetime.fromisoformat(message["at"])
            said = [{"role": one["speaker"], "content": one["text"]} for one in message["context"]]
            said.append({"role": "user", "content": message["text"]})
            always, whole = await standing(memory, stored)
            for name, threshold in [("surfaced", None), *((f"threshold {at}", at) for at in thresholds)]:
                context = (await memory.recall(said, threshold=threshold, exclude=whole)).context
                lines = tuple(stored.sources[hit.memory.id] for hit in context.memories)
                shown = Shown(lines=lines, tokens=context.tokens, standing=always)
                judged[name].append(judge(person, message, shown))
            hits = await memory.search(message["text"], limit=10)
            for most in (5, 10):
                shown = Shown(
                    lines=tuple(stored.sources[hit.memory.id] for hit in hits[:most]),
                    tokens=sum(estimate_tokens(hit.memory.content) for hit in hits[:most]),
                )
                judged[f"first {most}"].append(judge(person, message, shown))
            judged["ideal profile"].append(judge(person, message, Shown(lines=(), tokens=0, standing=ideal)))
        if memory.degraded:
            raise SystemExit(f"Not measured: {memory.degraded}")
    return judged


def people_in(folder: Path, only: Sequence[str]) -> list[Path]:
    """The files of a folder's persons, or of those named."""
    return [path for path in sorted(folder.glob("*.json")) if not only or path.stem in only]


async def measure(
    folder: Path,
    *,
    embedder: Embedder,
    only: Sequence[str] = (),
    thresholds: Sequence[float] = THRESHOLDS,
    refit: Refit | None = None,
) -> dict[str, Any]:
    """All persons of a folder: by store (`STORES`) and system; `left_out` says whether none was fitted to."""
    all_judged: dict[str, dict[str, list[Judged]]] = {name: defaultdict(list) for name in STORES}
    people = people_in(folder, only)
    if not people:
        raise SystemExit(f"There is no person in {folder}.")
    for path in people:
        person = {**read(path), "person": path.stem}
        for name, systems in all_judged.items():
            with without(refit, folder.name, path.stem):
                found = await live(person, embedder=embedder, name=name, thresholds=thresholds)
            for system, judged in found.items():
                systems[system] += judged
            print(path.stem, name, _line(figures(found["surfaced"])), flush=True)
    seen = refit is None and any(is_fitted("surfacing", folder.name, path.stem) for path in people)
    return {
        "fitted": seen,
        "persons": len(people),
        **{
            name: {system: report(judged) for system, judged in systems.items()}
            for name, systems in all_judged.items()
        },
        "misses": [
            {
                "person": one.person,
                "message": one.message,
                "kind": one.kind,
                "missed": one.missed,
                "spare": one.spare,
            }
            for one in all_judged["cues"]["surfaced"]
            if one.missed or one.spare
        ],
    }


def _line(found: Mapping[str, float | int | None]) -> str:
    return ", ".join(f"{name} {found[name]}" for name in FIGURES)


def main() -> None:
    """Read the arguments, run, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?", help="the folder with the persons")
    parser.add_argument("--only", nargs="+", default=[], help="these persons")
    parser.add_argument("--thresholds", nargs="*", type=float, default=THRESHOLDS, help="for the curve")
    parser.add_argument("--embedder", default="minilm", help="as in the settings")
    parser.add_argument("--second", default="use-multilingual", help="for other languages; or none")
    parser.add_argument("--refit", type=Path, help="a file with `left_out(set, person)`; see sets.py")
    parser.add_argument("--home", type=Path, default=None, help="SATCHEL_HOME, for the model")
    parser.add_argument("--out", type=Path, default=None, help="write the JSON to this file")
    parser.add_argument("--misses", action="store_true", help="print every miss and every spare line")
    arguments = parser.parse_args()

    async def run() -> dict[str, Any]:
        async with closing(
            cached_embedder(arguments.embedder, home=arguments.home, second=arguments.second)
        ) as embedder:
            return await measure(
                arguments.folder,
                embedder=embedder,
                only=arguments.only,
                thresholds=arguments.thresholds,
                refit=refit_from(arguments.refit),
            )

    if arguments.folder is None:
        print("No folder with lives was given; nothing is measured.")
        return
    result = anyio.run(run)
    for name in STORES:
        for system, found in result[name].items():
            print(f"{name}, {system}: {_line(found['all'])}")
    if arguments.misses:
        for miss in result["misses"]:
            print(json.dumps(miss))
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
