"""The quality of search: recall, hits and rank on sets of memories and questions.

    python benchmarks/retrieval.py [SET.json ...] [--embedder minilm] [--modes hybrid lexical] [--ablate]
                                   [--home FOLDER] [--out FILE]

Without SET.json, the sets in data/ are used (see data/README.md): pages, one-line facts, and facts among turns. A set
has `entries[] {id, text, session?, speaker?, date?}` and `queries[] {query, evidence[], kind?}`, or it consists of
conversations: `conversations[] {id, sessions[] {session, date, turns[] {id, speaker, text}}, questions[] {id, question,
category, evidence[]}}`, each in its own scope. One memory is stored for each entry or turn, and every question is asked
unchanged. A question counts once, however many memories answer it:

    r@k    the share of the answering memories that are among the first k
    hit@20 whether any of them is among the first 20
    mrr    1 / the rank of the first of them, 0 beyond 100

`--ablate` repeats the measurement without each signal in turn, with all other weights unchanged.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unittest import mock

import anyio

from satchel.memory import Episode, Memory, Mode
from satchel.memory.find.candidates import ranking
from satchel.memory.find.candidates.weights import WEIGHTS
from satchel.memory.find.embedding import DenseArm

CUTS = (5, 10, 20)
OWN = tuple(Path(__file__).parent / "data" / f"own_{name}.json" for name in ("long", "facts", "surface"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Memories that are searched together, and the questions about them: (question, kind, ids that answer it)."""

    name: str
    entries: list[dict[str, Any]]
    questions: list[tuple[str, str, list[str]]]


def scopes_of(data: dict[str, Any], name: str) -> list[Scope]:
    """The scopes of a set in either form."""
    if "entries" in data:
        questions = [(q["query"], q.get("kind", "all"), q["evidence"]) for q in data["queries"]]
        return [Scope(name=name, entries=data["entries"], questions=questions)]
    return [
        Scope(
            name=str(conversation["id"]),
            entries=[
                {**turn, "session": str(session["session"]), "date": session.get("date")}
                for session in conversation["sessions"]
                for turn in session["turns"]
            ],
            questions=[(q["question"], q["category"], q["evidence"]) for q in conversation["questions"]],
        )
        for conversation in data["conversations"]
    ]


async def store(memory: Memory, entries: list[dict[str, Any]]) -> dict[str, str]:
    """Store entries in their order, and return the name of each id."""
    turns: dict[str, int] = defaultdict(int)
    episodes, names, name_of = [], [], {}
    for entry in entries:
        said_at = datetime.fromisoformat(entry["date"]) if entry.get("date") else None
        if entry.get("session"):
            turns[entry["session"]] += 1
            names.append(entry["id"])
            episodes.append(
                Episode(
                    session=entry["session"],
                    turn=turns[entry["session"]],
                    speaker=entry.get("speaker") or "",
                    text=entry["text"],
                    said_at=said_at,
                )
            )
        else:
            id = await memory.add(entry["text"], speaker=entry.get("speaker") or "", said_at=said_at)
            name_of[id] = entry["id"]
    ids = await memory.add_episodes(episodes)
    return name_of | dict(zip(ids, names, strict=True))


def score(ranks: list[int | None]) -> dict[str, float]:
    """One question's figures.

    Args:
        ranks: Of each memory that answers it, counted from 1; None where it was not found.
    """
    found = [rank for rank in ranks if rank is not None]
    figures = {f"r@{cut}": sum(rank <= cut for rank in found) / len(ranks) for cut in CUTS}
    best = min(found, default=None)
    figures["hit@20"] = float(best is not None and best <= 20)
    figures["mrr"] = 1 / best if best is not None and best <= 100 else 0.0
    return figures


def mean(rows: list[dict[str, float]]) -> dict[str, float]:
    """The average of every figure, and the number of questions."""
    return {"questions": len(rows)} | {
        name: round(statistics.fmean(row[name] for row in rows), 4) for name in rows[0]
    }


@contextmanager
def weights(**changed: float) -> Iterator[None]:
    """Search with some weights changed in this block."""
    with mock.patch.object(ranking, "WEIGHTS", MappingProxyType(dict(WEIGHTS) | changed)):
        yield


@contextmanager
def no_tokens() -> Iterator[None]:
    """Search without token vectors in this block."""
    with mock.patch.object(DenseArm, "has_tokens", False):
        yield


def variants(modes: list[Mode], *, ablate: bool) -> dict[str, tuple[Mode, list[Any]]]:
    """The measured variants: a mode, and what is changed in it."""
    found: dict[str, tuple[Mode, list[Any]]] = {mode: (mode, []) for mode in modes}
    if not ablate:
        return found
    only = dict.fromkeys(WEIGHTS, 0.0) | {"words": 1.0}
    found["lexical, BM25 alone"] = ("lexical", [lambda: weights(**only)])
    found["hybrid, no token vectors"] = ("hybrid", [no_tokens])
    for name in WEIGHTS:
        found[f"hybrid, no {name}"] = ("hybrid", [partial(weights, **{name: 0.0})])
    return found


async def run(
    scopes: list[Scope], *, embedder: str, modes: list[Mode], ablate: bool, home: Path | None
) -> dict[str, Any]:
    """Store all entries and ask all questions."""
    measured = variants(modes, ablate=ablate)
    rows: dict[str, dict[str, list[dict[str, float]]]] = {name: defaultdict(list) for name in measured}
    seconds = {"store": 0.0, "embed": 0.0, "search": 0.0}
    searches = 0
    for scope in scopes:
        async with Memory.open(
            ":memory:", embedder=embedder, scope=scope.name, home=home, back_fill=False
        ) as memory:
            start = time.perf_counter()
            name_of = await store(memory, scope.entries)
            seconds["store"] += time.perf_counter() - start
            start = time.perf_counter()
            await memory.embed_pending()
            seconds["embed"] += time.perf_counter() - start
            known = set(name_of.values())
            for name, (mode, changes) in measured.items():
                for question, kind, answers in scope.questions:
                    evidence = [id for id in dict.fromkeys(answers) if id in known]
                    if not evidence:
                        continue
                    start = time.perf_counter()
                    if changes:
                        with changes[0]():
                            hits = await memory.search(question, limit=100, mode=mode)
                    else:
                        hits = await memory.search(question, limit=100, mode=mode)
                    seconds["search"] += time.perf_counter() - start
                    searches += 1
                    ranks = {name_of[hit.memory.id]: rank for rank, hit in enumerate(hits, 1)}
                    rows[name][kind].append(score([ranks.get(id) for id in evidence]))
            if memory.degraded:
                raise SystemExit(f"Not measured: {memory.degraded}")
    return {
        "memories": sum(len(scope.entries) for scope in scopes),
        "results": {
            name: {"all": mean([row for kind in kinds.values() for row in kind])}
            | ({kind: mean(some) for kind, some in sorted(kinds.items())} if len(kinds) > 1 else {})
            for name, kinds in rows.items()
        },
        "seconds": {name: round(value, 2) for name, value in seconds.items()},
        "ms_per_search": round(1000 * seconds["search"] / max(searches, 1), 2),
    }


def main() -> None:
    """Read the arguments, run, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sets", type=Path, nargs="*", help="JSON files; default: the sets in data/")
    parser.add_argument(
        "--embedder", default="minilm", help='as in the settings; "none" searches by words only'
    )
    parser.add_argument("--modes", nargs="+", default=["hybrid", "lexical"])
    parser.add_argument("--ablate", action="store_true", help="also without each signal in turn")
    parser.add_argument("--home", type=Path, default=None, help="SATCHEL_HOME, for the model")
    parser.add_argument("--out", type=Path, default=None, help="also write the JSON to this file")
    arguments = parser.parse_args()
    result: dict[str, Any] = {"embedder": arguments.embedder, "sets": {}}
    for path in arguments.sets or OWN:
        scopes = scopes_of(json.loads(path.read_text(encoding="utf-8")), path.stem)
        result["sets"][path.stem] = anyio.run(
            partial(
                run,
                scopes,
                embedder=arguments.embedder,
                modes=arguments.modes,
                ablate=arguments.ablate,
                home=arguments.home,
            )
        )
    result["versions"] = {
        "satchel": version("satchel"),
        "numpy": version("numpy"),
        "python": platform.python_version(),
    }
    text = json.dumps(result, indent=2)
    print(text)
    if arguments.out:
        arguments.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
