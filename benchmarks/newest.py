"""Whether the newest of statements that contradict each other is before the model, and the outdated one beside it.

    python benchmarks/newest.py FILE [--only facts turns] [--home FOLDER] [--misses] [--out FILE]
    python benchmarks/newest.py --pairs [FILE] [--home FOLDER]

FILE is in the form of FactConsolidation of MemoryAgentBench: `[{"source", "context", "questions", "answers"}]`. The
context has numbered statements, one on a line; of two that say the same with another value at their end, the later one
holds. They are stored half an hour apart, once as facts (`add`) and once as the user's turns (`add_episodes`), twenty
to a session, and each question is asked once, by `surface`, after the last of them.

    newest    the statement that answers the question is a line
    alone     an outdated one is a line, and the newest is not
    beside    both are lines
    history   the newest is a line, and the outdated value stands in the same line, as what held before
    nothing   no line at all

The statement that answers is the one that ends in the answer and has most words of the question before it. Where a
question takes steps, statements that hold lead from a name in it to that one, each ending in a name that the next has.

`--pairs` needs no FILE: for pairs of statements of which the newer one replaces the older one or doesn't
(data/value_pairs.json), how many of each kind are told as one line. Nothing may be fitted to that set.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
from sets import HERE, cached_embedder, closing, read, second_of

from satchel.clock import ManualClock
from satchel.memory import Episode, Memory
from satchel.models.port import Embedder

PAIRS = HERE / "data" / "value_pairs.json"
START = datetime(2026, 3, 2, 8, tzinfo=UTC)
APART = timedelta(minutes=30)
SESSION = 20
_NUMBERED = re.compile(r"^\d+\. (.+)$", re.MULTILINE)
_WORD = re.compile(r"\w+")


def stems_of(text: str) -> set[str]:
    """The beginnings of the words of a text: "citizenship" and "citizen" are one."""
    return {word[:5] for word in _WORD.findall(text.lower())}


def answering(statements: Sequence[str], question: str, answers: Sequence[str], *, steps: int) -> int | None:
    """The place of the statement that answers a question, or None where no statement ends in the answer."""
    asked = stems_of(question)
    found: list[tuple[float, int]] = []
    for at, statement in enumerate(statements):
        for answer in answers:
            if statement.endswith(f" {answer}."):
                before = statement.removesuffix(f" {answer}.")
                fit = len(stems_of(before) & asked)
                led = 0.0 if steps == 1 else _led(statements, before, question, left=steps)
                found.append((fit + led, at))
    return max(found)[1] if found else None


def _led(statements: Sequence[str], second: str, question: str, *, left: int) -> float:
    """How many words of the question stand in the best chain of statements that hold and lead to a name in another one,
    and begin with a name that the question has; -100 where none does.
    """
    best = -100.0
    asked = stems_of(question)
    for at, first in enumerate(statements):
        words = first.rstrip(".").split()
        for size in range(min(6, len(words) - 2), 0, -1):
            if f" {' '.join(words[-size:])} " not in f" {second} ":
                continue
            before = " ".join(words[:-size])
            if before == second or any(one.startswith(f"{before} ") for one in statements[at + 1 :]):
                break
            fit = float(len(stems_of(before) & asked))
            names = {word for word in _WORD.findall(before)[1:] if word[:1].isupper()} | {words[0]}
            if not names - {"The"} & set(_WORD.findall(question)[1:]):
                fit = -100.0 if left == 1 else 0.5 * fit + _led(statements, before, question, left=left - 1)
            best = max(best, fit)
            break
    return best


def state_of(shown: Sequence[Any], newest: str, outdated: Sequence[str]) -> list[str]:
    """What is before the model, as the names at the top of this file."""
    lines = [hit.memory.content for hit in shown]
    if not lines:
        return ["nothing"]
    has_newest = newest in lines
    has_old = any(one in lines for one in outdated)
    histories = [
        one.content for hit in shown if hit.memory.content == newest for one in getattr(hit, "before", ())
    ]
    found = ["newest"] if has_newest else []
    if has_old:
        found.append("beside" if has_newest else "alone")
    if any(one in histories for one in outdated):
        found.append("history")
    return found


async def measure(task: Any, store: str, embedder: Embedder, *, misses: bool) -> dict[str, Any]:
    """Ask the questions of one set."""
    statements = _NUMBERED.findall(task["context"])
    steps = 3 if "_mh_" in task["source"] else 1
    clock = ManualClock(START)
    counts: Counter[str] = Counter()
    async with Memory.open(
        ":memory:", embedder=embedder, second_embedder=second_of(embedder), clock=clock
    ) as memory:
        for number, statement in enumerate(statements):
            said_at = START + number * APART
            clock.advance(APART.total_seconds())
            if store == "facts":
                await memory.add(statement, said_at=said_at)
                continue
            session, turn = divmod(number, SESSION)
            await memory.add_episodes(
                [
                    Episode(
                        session=f"s{session}", turn=turn + 1, speaker="user", text=statement, said_at=said_at
                    )
                ]
            )
        clock.advance(APART.total_seconds())
        await memory.search("everything there is")
        for question, answers in zip(task["questions"], task["answers"], strict=True):
            at = answering(statements, question, answers, steps=steps)
            counts["questions"] += 1
            if at is None:
                counts["without an answer"] += 1
                continue
            newest = statements[at]
            before = max((newest.removesuffix(f" {one}.") for one in answers), key=lambda one: -len(one))
            outdated = [one for one in statements[:at] if one.startswith(f"{before} ")]
            context = await memory.surface(question)
            found = state_of(context.memories, newest, outdated)
            counts.update(found)
            counts["lines"] += len(context.memories)
            counts["tokens"] += context.tokens
            if misses and ("newest" not in found or "beside" in found):
                print(f"{store} {found} {question} -> {newest}\n{context.text}\n")
    return {"source": task["source"], "store": store, **counts}


async def told_as_one(older: str, newer: str, *, turns: bool) -> bool:
    """Whether the older of two statements is told on the newer one's line, by words alone."""
    clock = ManualClock(START)
    async with Memory.open(":memory:", embedder="none", clock=clock) as memory:
        for at, text in enumerate((older, newer)):
            if turns:
                await memory.add_episodes([Episode(session=f"s{at}", turn=1, speaker="user", text=text)])
            else:
                await memory.add(text)
            clock.advance(APART.total_seconds())
        context = await memory.surface(f"{older} {newer}", threshold=0.0)
        return any(hit.before for hit in context.memories)


async def run_pairs(path: Path) -> list[dict[str, Any]]:
    """Count the pairs that are told as one, by kind, and print no pair."""
    counts: Counter[str] = Counter()
    for pair in read(path):
        counts[pair["label"]] += 1
        for turns in (False, True):
            if await told_as_one(pair["older"], pair["newer"], turns=turns):
                counts[f"{pair['label']}, told as one, {'turns' if turns else 'facts'}"] += 1
    return [dict(counts)]


async def run(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure what was asked for."""
    rows: list[dict[str, Any]] = []
    async with closing(cached_embedder("minilm", home=arguments.home)) as embedder:
        for task in read(arguments.file):
            for store in arguments.only:
                rows.append(await measure(task, store, embedder, misses=arguments.misses))
                print(json.dumps(rows[-1]), flush=True)
    return rows


def main() -> None:
    """Read the arguments, run, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--only", nargs="+", default=["facts", "turns"], choices=["facts", "turns"])
    parser.add_argument("--misses", action="store_true")
    parser.add_argument("--pairs", action="store_true", help="count pairs of values instead")
    parser.add_argument("--home", type=Path, default=None)
    parser.add_argument("--out", type=Path, default=None, help="also write the JSON to this file")
    arguments = parser.parse_args()
    if arguments.pairs:
        rows = anyio.run(run_pairs, arguments.file or PAIRS)
        print(json.dumps(rows, indent=2))
    elif arguments.file is None:
        parser.error("name the file of sets")
    else:
        rows = anyio.run(run, arguments)
    if arguments.out:
        arguments.out.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
