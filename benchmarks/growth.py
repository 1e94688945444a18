"""What grows with the memories of a home: bytes on disk, forgetting one of them, and `memory doctor`.

    python benchmarks/growth.py [--sizes 6000 17000 50000] [--store FOLDER] [--out FILE]

Stores are those of `memory_search.py`: generated texts, and an embedder that costs nothing and returns as many random
numbers as the default one; it is not asked while anything is measured. `--store` keeps them, for another run.

`bytes` are those of the database, by table, divided by the memories. While one memory is
forgotten, another process writes and says how long it ever waited: a warm-up without forgetting gives the same figure
for a quiet database. CPU is that of the whole process. `per_memory_us` tells whether a cost grows faster than the
memories.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio

from satchel.memory import Memory

sys.path.insert(0, str(Path(__file__).parent))
from memory_search import MadeUp, build

FORGOTTEN = 5

WRITER = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)
longest = 0.0
print("ready", flush=True)
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    start = time.perf_counter()
    connection.execute("UPDATE memory_spaces SET requests = requests + 1")
    longest = max(longest, time.perf_counter() - start)
    time.sleep(0.005)
print(longest)
"""


def bytes_per_memory(place: Path) -> dict[str, int]:
    """Of the database and its largest tables."""
    with sqlite3.connect(place) as direct:
        (count,) = direct.execute("SELECT count(*) FROM memories").fetchone()
        direct.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        tables = dict(
            direct.execute(
                "SELECT name, sum(pgsize) FROM dbstat GROUP BY name ORDER BY 2 DESC LIMIT 4"
            ).fetchall()
        )
    direct.close()
    sizes = {"database": place.stat().st_size, **tables}
    return {name: round(size / count) for name, size in sizes.items()}


@contextmanager
def somebody_writing(place: Path, seconds: float) -> Iterator[list[float]]:
    """Another process that writes every 5 ms; at the end, the list has the longest time that a write took."""
    found: list[float] = []
    command = [sys.executable, "-c", WRITER, str(place), str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield found
        found.append(float(process.stdout.readline()))


async def measure(place: Path, size: int) -> dict[str, Any]:
    """Measure a copy of a store."""
    # A store of an older program is upgraded first.
    async with Memory.open(place, embedder=MadeUp(tokens=True), back_fill=False) as memory:
        await memory.search("first")
    result: dict[str, Any] = {"memories": size, "bytes_per_memory": bytes_per_memory(place)}
    async with Memory.open(place, embedder=MadeUp(tokens=True), back_fill=False) as memory:
        await memory.search("first")
        ids = [found.id for found in await memory.list(limit=FORGOTTEN)]
        with somebody_writing(place, 2) as quiet:
            pass
        cpu, wall = [], []
        with somebody_writing(place, 4 + size / 2_000) as waited:
            for id in ids:
                start, start_cpu = time.perf_counter(), time.process_time()
                receipt = await memory.forget(id)
                cpu.append(time.process_time() - start_cpu)
                wall.append(time.perf_counter() - start)
                assert receipt.log_emptied
        result["forget"] = {
            "first_cpu_s": round(cpu[0], 3),
            "cpu_s": round(sorted(cpu)[len(cpu) // 2], 3),
            "wall_s": round(sorted(wall)[len(wall) // 2], 3),
            "others_waited_at_most_s": round(waited[0], 3),
            "others_waited_before_s": round(quiet[0], 3),
        }
        start_cpu = time.process_time()
        await memory.check()
        doctor = time.process_time() - start_cpu
    result["doctor"] = {"cpu_s": round(doctor, 2), "per_memory_us": round(doctor / size * 1e6)}
    return result


def in_copy(size: int, folder: Path) -> dict[str, Any]:
    """Measure a store of one size, which is built where it isn't there, and leave it as it was."""
    store = folder / str(size)
    if not store.exists():
        store.mkdir(parents=True)
        anyio.run(lambda: build(store / "satchel.db", size, tokens=True))
    with tempfile.TemporaryDirectory(dir=folder) as copy:
        shutil.copytree(store, copy, dirs_exist_ok=True)
        return anyio.run(measure, Path(copy) / "satchel.db", size)


def main() -> None:
    """Read the arguments, run, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[6_000, 17_000, 50_000])
    parser.add_argument("--store", type=Path, default=None, help="keep the stores in this folder")
    parser.add_argument("--out", type=Path, default=None, help="also write the JSON to this file")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.store or Path(temporary)
        text = json.dumps([in_copy(size, folder) for size in arguments.sizes], indent=2)
    print(text)
    if arguments.out:
        arguments.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
