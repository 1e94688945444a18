"""How well search finds what answers a question: recall, hits and rank on a set of conversations.

    python benchmarks/retrieval.py SET.json [--embedder minilm] [--mode hybrid] [--home FOLDER] [--out FILE]

SET.json has `conversations[] {id, sessions[] {session, date, turns[] {id, speaker, text}}, questions[] {id,
question,
category, evidence[]}}`. One memory is stored for each turn, each conversation in a scope of its own; every
question is
asked as it stands. A question counts once, whatever number of turns answer it:

    r@k    the share of those turns among the first k
    hit@20 whether any of them is among the first 20
    mrr    1 / the rank of the first of them, 0 beyond 100
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections import defaultdict
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import anyio

from satchel.memory import Episode, Memory, Mode

CUTS = (5, 10, 20)


def score(ranks: list[int | None]) -> dict[str, float]:
    """One question's figures.

    Args:
        ranks: Of each turn that answers it, counted from 1; None where it was not found.
    """
    found = [rank for rank in ranks if rank is not None]
    figures = {f"r@{cut}": sum(rank <= cut for rank in found) / len(ranks) for cut in CUTS}
    best = min(found, default=None)
    figures["hit@20"] = float(best is not None and best <= 20)
    figures["mrr"] = 1 / best if best is not None and best <= 100 else 0.0
    return figures


def mean(rows: list[dict[str, float]]) -> dict[str, float]:
    """The average of every figure, and how many questions it is of."""
    return {"questions": len(rows)} | {
        name: round(statistics.fmean(row[name] for row in rows), 4) for name in rows[0]
    }


async def run(data: dict[str, Any], *, embedder: str, mode: Mode, home: Path | None) -> dict[str, Any]:
    """Store and ask everything."""
    by_category: dict[str, list[dict[str, float]]] = defaultdict(list)
    seconds = {"store": 0.0, "embed": 0.0, "search": 0.0}
    turns = 0
    for conversation in data["conversations"]:
        async with Memory.open(
            ":memory:", embedder=embedder, scope=str(conversation["id"]), home=home, back_fill=False
        ) as memory:
            episodes = [
                Episode(
                    session=str(session["session"]),
                    turn=number,
                    speaker=turn["speaker"],
                    text=turn["text"],
                    said_at=datetime.fromisoformat(session["date"]) if session.get("date") else None,
                )
                for session in conversation["sessions"]
                for number, turn in enumerate(session["turns"], 1)
            ]
            names = [turn["id"] for session in conversation["sessions"] for turn in session["turns"]]
            turns += len(episodes)
            start = time.perf_counter()
            ids = await memory.add_episodes(episodes)
            seconds["store"] += time.perf_counter() - start
            name_of = dict(zip(ids, names, strict=True))
            start = time.perf_counter()
            await memory.embed_pending()
            seconds["embed"] += time.perf_counter() - start
            for question in conversation["questions"]:
                evidence = [name for name in dict.fromkeys(question["evidence"]) if name in set(names)]
                if not evidence:
                    continue
                start = time.perf_counter()
                hits = await memory.search(question["question"], limit=100, mode=mode)
                seconds["search"] += time.perf_counter() - start
                ranks = {name_of[hit.memory.id]: rank for rank, hit in enumerate(hits, 1)}
                by_category[question["category"]].append(score([ranks.get(name) for name in evidence]))
            if memory.degraded:
                raise SystemExit(f"Not measured: {memory.degraded}")
    every = [row for rows in by_category.values() for row in rows]
    return {
        "embedder": embedder,
        "mode": mode,
        "turns": turns,
        "all": mean(every),
        "by_category": {name: mean(rows) for name, rows in sorted(by_category.items())},
        "seconds": {name: round(value, 2) for name, value in seconds.items()},
        "ms_per_search": round(1000 * seconds["search"] / len(every), 2),
        "versions": {
            "satchel": version("satchel"),
            "numpy": version("numpy"),
            "python": platform.python_version(),
        },
    }


def main() -> None:
    """Read the arguments, run, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("set", type=Path, help="the conversations and questions, JSON")
    parser.add_argument("--embedder", default="minilm", help='as in the settings; "none" for words alone')
    parser.add_argument("--mode", default="hybrid", choices=["hybrid", "lexical", "dense"])
    parser.add_argument("--home", type=Path, default=None, help="SATCHEL_HOME, for the model")
    parser.add_argument("--out", type=Path, default=None, help="write the JSON there too")
    arguments = parser.parse_args()
    data = json.loads(arguments.set.read_text(encoding="utf-8"))
    result = anyio.run(
        lambda: run(data, embedder=arguments.embedder, mode=arguments.mode, home=arguments.home)
    )
    text = json.dumps(result, indent=2)
    print(text)
    if arguments.out:
        arguments.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
