"""Takes in files until it is killed: its main program is forked for each round."""

from __future__ import annotations

from pathlib import Path

from satchel.memory import Memory, TransferProgress
from tests.killing import serve, tell


async def work(path: str, files: list[str]) -> None:
    """Take in one file after the other, and tell how many of each one's memories are stored."""
    async with Memory.open(Path(path), embedder="none") as memory:
        for file in files:

            def told(at: TransferProgress, file: str = file) -> None:
                tell(file, at.new + at.known)

            report = await memory.import_from(file, progress=told)
            tell("whole", file, report.new + report.known)


if __name__ == "__main__":
    serve(work)
