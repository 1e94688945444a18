"""Takes facts to the page of a store until it is killed: its main program is forked for each round."""

from __future__ import annotations

from pathlib import Path

from satchel.memory import Memory
from satchel.models import ScriptedModel
from tests.killing import serve, tell

FACTS = 3


async def write(path: str, batch: int) -> None:
    """Store some facts, then take them to the page, telling what is done."""
    async with Memory.open(Path(path), embedder="none", back_fill=False) as memory:
        for number in range(FACTS):
            await memory.add(f"The number {batch}x{number} was drawn.")
        tell("stored", batch)
        await memory.distill(model=ScriptedModel([]), page_tokens=100_000)
        (newest,) = await memory.page_versions(limit=1)
        tell("written", newest.number)


if __name__ == "__main__":
    serve(write, warm_up=lambda folder: write(str(folder / "m.db"), 0))
