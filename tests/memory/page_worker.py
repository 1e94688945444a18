"""Writes the page of a store until it is killed: its main program is forked for each round."""

from __future__ import annotations

import json
from pathlib import Path

from satchel.memory import Memory
from satchel.models import ModelRequest, ScriptedModel
from tests.killing import serve, tell

FACTS = 3


def copying(request: ModelRequest) -> str:
    """A page of all facts in their own words, and of all lines that there were."""
    found = [json.loads(line) for line in request.messages[0].text.splitlines()]
    lines = [
        {"section": "user", "text": one["says"], "facts": [one["fact"]], "until": ""}
        for one in found
        if "says" in one
    ]
    return json.dumps({"keep": [one["line"] for one in found if "line" in one], "lines": lines})


async def write(path: str, batch: int) -> None:
    """Store some facts, then write the page, telling what is done."""
    async with Memory.open(Path(path), embedder="none", back_fill=False) as memory:
        for number in range(FACTS):
            await memory.add(f"The number {batch}x{number} was drawn.")
        tell("stored", batch)
        written = await memory.write_page(model=ScriptedModel(copying), budget_tokens=100_000)
        if written is not None and written.version is not None:
            tell("written", written.version.number)


if __name__ == "__main__":
    serve(write, warm_up=lambda folder: write(str(folder / "m.db"), 0))
