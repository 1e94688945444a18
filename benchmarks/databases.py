"""What a PostgreSQL server costs beside a file: the CPU time of storing and of searching, in one run.

    python benchmarks/databases.py postgresql://USER@HOST/NAME

The database must be empty; its rows stay. The server's own CPU time is not counted where it is another machine's.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio

from satchel.memory import Memory

STORED = 1_000
SEARCHES = 200
WORDS = [
    "boiler",
    "plumber",
    "harbour",
    "kitchen",
    "ticket",
    "garden",
    "invoice",
    "dentist",
    "cellar",
    "violin",
]


def server_s() -> float:
    """The CPU time of all server processes of this machine that live now."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            name, _, rest = path.read_text().partition(") ")
            if name.endswith("(postgres"):
                ticks += sum(map(int, rest.split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


async def measure(where: str) -> dict[str, tuple[float, float]]:
    """Milliseconds of CPU for each call: this process's and the server's."""
    found: dict[str, tuple[float, float]] = {}
    async with Memory.open(where, embedder="none") as memory:
        for what, count in (("add", STORED), ("search", SEARCHES)):
            own, server = time.process_time(), server_s()
            for number in range(count):
                first, second = WORDS[number % 10], WORDS[number // 10 % 10]
                if what == "add":
                    await memory.add(f"The {first} beside the {second} has the number {number}.")
                else:
                    await memory.search(f"{first} {second} {number}")
            found[what] = (
                (time.process_time() - own) / count * 1000,
                (server_s() - server) / count * 1000,
            )
    return found


def main() -> None:
    """Print a table."""
    with TemporaryDirectory() as folder:
        file = anyio.run(measure, str(Path(folder) / "m.db"))
    server = anyio.run(measure, sys.argv[1])
    print(f"{'CPU ms a call':>14} {'file':>8} {'client':>8} {'ratio':>6} {'server':>8}")
    for what, (base, _) in file.items():
        own, other = server[what]
        print(f"{what:>14} {base:8.2f} {own:8.2f} {own / base:6.2f} {other:8.2f}")


if __name__ == "__main__":
    main()
