"""Distils a store in child processes until they are killed: a line in starts one, its pid and its windows come out."""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path

import anyio

from satchel.memory import Episode, Memory
from satchel.models import ModelRequest, ScriptedModel

EPISODES = 8


def reply(request: ModelRequest) -> str:
    """A fact for each number that is said for the first time."""
    if request.system.startswith("You decide"):
        return json.dumps({"worth": True, "reason": "numbers"})
    conversation = request.messages[0].text.partition("conversation:\n")[2].partition("\n\nknown:")[0]
    lines = [json.loads(line) for line in conversation.splitlines()]
    return json.dumps(
        {
            "facts": [
                {
                    "content": f"The number {line['text'].split()[2]} was drawn.",
                    "quote": " ".join(line["text"].split()[:3]),
                }
                for line in lines
                if not line.get("read_before")
            ]
        }
    )


async def distil(path: Path, batch: int) -> None:
    """Say some numbers, then read them, telling each window."""
    async with Memory.open(path, embedder="none") as memory:
        filler = " and so on" * 60
        await memory.add_episodes(
            Episode(
                session=f"s{batch}", turn=turn, speaker="user", text=f"We drew {batch}x{turn} today{filler}"
            )
            for turn in range(EPISODES)
        )
        tell(["said", batch])
        await memory.distill(
            model=ScriptedModel(reply), progress=lambda window: tell(["window", *window.facts])
        )


def tell(line: list[object]) -> None:
    """One line to the parent, in one write."""
    os.write(1, json.dumps(line).encode() + b"\n")


def main() -> None:
    """Serve the parent's lines: {"path", "batch"}."""
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            anyio.run(partial(distil, Path(order["path"]), order["batch"]))
            tell(["over"])
            os._exit(0)
        tell(["pid", child])
        os.waitpid(child, 0)
        tell(["reaped"])


if __name__ == "__main__":
    main()
