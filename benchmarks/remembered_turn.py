"""What a turn costs that remembers: CPU of its parts, beside one pass of the embedder, at turn 10 and at turn 1,000.

Every turn surfaces memories for a message, asks an instant model once, writes the log, and stores both sides as
memories, which the next turn embeds. With the address of an empty PostgreSQL database as argument, the turns run there
once more, and the CPU is that of the client. The messages are the statements of `benchmarks/data/own_facts.json`, with
a number so that none repeats. The turns run four times in sessions of their own: whole, without the embedder, without
memory, and the embedder alone on the same texts. CPU is that of the whole process, threads included.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import mean
from typing import Any

from long_session import AIM, Forgetful
from turn_cpu import versions

from satchel import Satchel
from satchel.clock import SystemClock
from satchel.config import load
from satchel.messages import Usage
from satchel.models.embedding import open_embedder
from satchel.models.scripted import Reply

TURNS = int(os.environ.get("TURNS", "1000"))
AROUND = 50
"""Turns in a mean: the tenth and those after it, the last and those before it. Both have the same messages,
apart from their numbers, because a turn's cost depends on what its message finds."""
EARLY = 10
AIM_MS = 60.0
DATA = Path(__file__).parent / "data"


def messages() -> list[str]:
    """Different messages of ordinary length, as many as turns."""
    said = words(json.loads((DATA / "own_facts.json").read_text(encoding="utf-8"))["entries"])
    late = TURNS - AROUND
    chosen = [turn if turn < late else EARLY + turn - late for turn in range(TURNS)]
    return [f"{said[at % len(said)]} (number {turn})" for turn, at in enumerate(chosen)]


def words(data: object) -> list[str]:
    """Every text of 20 to 400 characters in a set of ours."""
    if isinstance(data, str):
        return [data] if 20 <= len(data) <= 400 else []
    if isinstance(data, dict):
        data = list(data.values())
    return [text for part in data for text in words(part)] if isinstance(data, list) else []


async def session(said: list[str], **overrides: object) -> list[float]:
    """CPU of each turn, in milliseconds."""
    spent = []
    with tempfile.TemporaryDirectory() as folder:
        settings = load(
            {**{k: v for k, v in os.environ.items() if k in ("PATH", "HOME")}, "OLLAMA_HOST": "127.0.0.1:9"},
            cwd=Path(folder),
            home=Path(folder) / "home",
            overrides={"memory.distill": "off", **overrides},
        )
        model = Forgetful(
            lambda _: Reply(text="I see, thank you.", usage=Usage(input_tokens=900, output_tokens=9))
        )
        async with Satchel.open(settings, model=model) as satchel:
            opened = await satchel.session()
            for text in said:
                before = time.process_time()
                ended = await opened.run_turn(text)
                spent.append((time.process_time() - before) * 1000)
                assert ended.status == "done", ended
    return spent


async def embedder(said: list[str]) -> list[float]:
    """CPU of one pass over one message, in milliseconds."""
    spent = []
    async with AsyncExitStack() as stack:
        home = Path(os.environ.get("SATCHEL_HOME") or Path.home() / ".satchel")
        opened = open_embedder("minilm", home=home, environ=os.environ, clock=SystemClock())
        stack.push_async_callback(opened.aclose)
        for text in said:
            before = time.process_time()
            await opened.embed([text], "query")
            spent.append((time.process_time() - before) * 1000)
    return spent


def summary(spent: list[float]) -> dict[str, float]:
    """The early and the late median, and their ratio."""
    early, late = mean(spent[EARLY : EARLY + AROUND]), mean(spent[-AROUND:])
    return {
        "turn_10_ms": round(early, 2),
        f"turn_{len(spent)}_ms": round(late, 2),
        "ratio": round(late / early, 2),
    }


def main() -> None:
    """Print the parts, with the targets."""
    said = messages()
    gc.collect()
    result: dict[str, Any] = {
        "versions": versions(),
        "aim": AIM,
        "aim_ms": AIM_MS,
        "one_pass": summary(asyncio.run(embedder(said[:100]))),
        "whole": summary(asyncio.run(session(said))),
        "without_embedder": summary(asyncio.run(session(said, **{"memory.embedder": "none"}))),
        "without_memory": summary(asyncio.run(session(said, **{"memory.enabled": False}))),
    }
    if len(sys.argv) > 1:
        on_server = summary(asyncio.run(session(said, database=sys.argv[1])))
        whole = result["whole"]
        result["on_a_server"] = on_server | {
            "beside_the_file": round(on_server["turn_10_ms"] / whole["turn_10_ms"], 2)
        }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
