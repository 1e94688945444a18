"""Distils a store until it is killed: its main program is forked for each round."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from satchel.clock import ManualClock
from satchel.memory import Episode, Memory
from satchel.memory.distill.records import WindowResult
from satchel.models import ModelRequest, ScriptedModel
from tests.killing import serve, tell

EPISODES = 5
FIRST = datetime(2026, 5, 6, 14, tzinfo=UTC)


def reply(request: ModelRequest) -> str:
    """A fact for each number that is said for the first time."""
    if request.system.startswith("You decide"):
        return json.dumps({"worth": True, "reason": "numbers"})
    conversation = request.messages[0].text.partition("\n\nknown:")[0]
    lines = [json.loads(line) for line in conversation.splitlines() if line.startswith("{")]
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


async def distil(path: str, batch: int) -> None:
    """Say some numbers, in three conversations; then their day is over, and they are read, telling each window."""
    clock = ManualClock(at=FIRST + timedelta(days=batch))
    async with Memory.open(Path(path), embedder="none", clock=clock) as memory:
        filler = " and so on" * 60
        await memory.add_episodes(
            Episode(
                session=f"s{batch}.{turn % 3}",
                turn=turn,
                speaker="user",
                text=f"We drew {batch}x{turn} today{filler}",
                said_at=clock.now(),
            )
            for turn in range(EPISODES)
        )
        tell("said", batch)
        clock.advance(86_400)

        async def say(window: WindowResult) -> None:
            tell("window", sorted(window.turns), window.facts)

        await memory.distill(model=ScriptedModel(reply), closed=(100, 600), progress=say)


if __name__ == "__main__":
    serve(distil, warm_up=lambda folder: distil(str(folder / "m.db"), 0))
