"""Whether the memories shown before a turn help, and whether none are shown where none help.

    python benchmarks/surfacing.py [SET.json] [--embedder minilm] [--home FOLDER] [--budget 500] [--verbose]

SET.json is a set that `retrieval.py` can read, with some questions that no memory answers (empty `evidence`). The
default is data/own_surface.json, written for this project: 123 messages over 185 memories. For 49 of the messages, no
memory would help, although many of them are about people and things that are stored.

    precision       of the messages with memories shown, the share where at least one of them helps
    recall          of the messages that a stored memory would help with, the share where one was shown
    item_precision  of all memories shown, the share that helps
    tokens          of the shown block, if there is one; `over_budget` must be 0
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
from importlib.metadata import version
from pathlib import Path
from typing import Any

import anyio
from retrieval import OWN, Scope, scopes_of, store

from satchel.memory import Memory


async def run(
    scopes: list[Scope], *, embedder: str, home: Path | None, budget: int, verbose: bool
) -> dict[str, Any]:
    """Store the entries, surface memories for every message, and count."""
    shown_for = helped = items = helpful_items = wanted = nothing_stored = false_alarms = over = 0
    tokens: list[int] = []
    for scope in scopes:
        async with Memory.open(
            ":memory:", embedder=embedder, scope=scope.name, home=home, back_fill=False
        ) as memory:
            name_of = await store(memory, scope.entries)
            await memory.embed_pending()
            for message, _, answers in scope.questions:
                context = await memory.surface(message, budget_tokens=budget)
                names = [name_of[hit.memory.id] for hit in context.memories]
                good = [name for name in names if name in answers]
                wanted += bool(answers)
                nothing_stored += not answers
                false_alarms += bool(names) and not answers
                shown_for += bool(names)
                helped += bool(good)
                items += len(names)
                helpful_items += len(good)
                over += context.tokens > budget
                if names:
                    tokens.append(context.tokens)
                if verbose and bool(names) != bool(answers):
                    print("missed" if answers else "unneeded", json.dumps(message), names)
            if memory.degraded:
                raise SystemExit(f"Not measured: {memory.degraded}")
    return {
        "messages": wanted + nothing_stored,
        "something_stored": wanted,
        "nothing_stored": nothing_stored,
        "precision": round(helped / max(shown_for, 1), 4),
        "recall": round(helped / max(wanted, 1), 4),
        "item_precision": round(helpful_items / max(items, 1), 4),
        "shown_where_nothing_helps": false_alarms,
        "items_per_message_shown": round(items / max(shown_for, 1), 2),
        "tokens_mean": round(statistics.fmean(tokens), 1) if tokens else 0,
        "tokens_most": max(tokens, default=0),
        "over_budget": over,
    }


def main() -> None:
    """Read the arguments, run, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("set", type=Path, nargs="?", default=OWN[-1])
    parser.add_argument(
        "--embedder", default="minilm", help='as in the settings; "none" searches by words only'
    )
    parser.add_argument("--home", type=Path, default=None, help="SATCHEL_HOME, for the model")
    parser.add_argument("--budget", type=int, default=500, help="tokens")
    parser.add_argument("--verbose", action="store_true", help="print the messages with wrong results")
    arguments = parser.parse_args()
    scopes = scopes_of(json.loads(arguments.set.read_text(encoding="utf-8")), arguments.set.stem)
    result = anyio.run(
        lambda: run(
            scopes,
            embedder=arguments.embedder,
            home=arguments.home,
            budget=arguments.budget,
            verbose=arguments.verbose,
        )
    )
    result["embedder"] = arguments.embedder
    result["versions"] = {"satchel": version("satchel"), "python": platform.python_version()}
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
