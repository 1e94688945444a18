"""The speed of storing and searching memories, compared with a bare numpy product of the same size in the same run.

    python benchmarks/memory_search.py [--sizes 1000 10000 100000] [--queries 200] [--writes 20] [--no-tokens]
                                       [--store FOLDER] [--out FILE]

Texts and vectors are generated: sentences whose words have natural frequencies (Zipf), vectors of 384 numbers, and 64
numbers for each token. The embedder costs nothing, so that only the store is measured. Stores are built by one process,
searched by a second, and written to by a third meanwhile. `--store` keeps them, for another run to measure again.

CPU times include the whole process; wall times are those of a caller. The baseline of ratios is `matrix @ query` and
its ten best rows; baseline and searches take turns, so that both meet the same load. `first_search` is what a new
process needs for its first search, the opening of the store included. `lexical` is the search without vectors;
`after_write` is the first search after another process stored one memory.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

# One thread for the baseline and for the search: on a shared machine, two threads would measure the load of others.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import anyio
import numpy as np

from satchel.memory import Episode, Memory
from satchel.models.port import EmbedderInfo, EmbedRole, TokenVectors

DIMENSION = 384
TOKEN_DIMENSION = 64
VOCABULARY = 30_000
WORDS = 20
TURNS = 25
SINGLES = 500
"""Memories that are stored one by one; the others come as episodes."""


class MadeUp:
    """An embedder that returns random unit vectors."""

    def __init__(self, *, tokens: bool) -> None:
        """Seed the generator with a fixed number."""
        self._random = np.random.default_rng(7)
        self.info = EmbedderInfo(
            id="made-up" if tokens else "made-up-plain",
            dimension=DIMENSION,
            max_tokens=256,
            threshold=0.5,
            token_dimension=TOKEN_DIMENSION if tokens else 0,
        )

    def _rows(self, count: int, width: int) -> Any:
        rows = self._random.standard_normal((count, width), dtype=np.float32)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        return rows

    async def embed(self, texts: Sequence[str], role: EmbedRole) -> Any:
        """A random vector for each text."""
        return self._rows(len(texts), DIMENSION)

    async def embed_tokens(self, texts: Sequence[str], role: EmbedRole) -> Any:
        """The vectors of texts, and of each of their words."""
        return await self.embed(texts, role), [self.tokens_of(text) for text in texts]

    def tokens_of(self, text: str) -> TokenVectors:
        """A random vector for each word."""
        spans = np.array([match.span() for match in re.finditer(r"\w+", text)], np.int32).reshape(-1, 2)
        return TokenVectors(vectors=self._rows(len(spans), TOKEN_DIMENSION), spans=spans)

    async def aclose(self) -> None:
        """There is nothing to close."""


def made_up_texts(count: int) -> list[str]:
    """Sentences whose words have the frequencies of natural language."""
    random = np.random.default_rng(3)
    letters = "bcdfghklmnprstvz"
    names = [
        f"{letters[i % 16]}a{letters[i // 16 % 16]}o{letters[i // 256 % 16]}{i}" for i in range(VOCABULARY)
    ]
    ranks = np.minimum(random.zipf(1.3, count * WORDS) - 1, VOCABULARY - 1)
    return [" ".join(names[rank] for rank in ranks[at : at + WORDS]) for at in range(0, count * WORDS, WORDS)]


def resident_mb() -> int:
    """What this process has in memory now, mapped files included."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return round(pages * resource.getpagesize() / 1e6)


class Times:
    """The times of many calls."""

    def __init__(self) -> None:
        self._cpu: list[float] = []
        self._wall: list[float] = []

    async def of(self, call: Awaitable[object]) -> None:
        """Await a call and note what it took."""
        start_cpu, start = time.process_time(), time.perf_counter()
        await call
        self._cpu.append(time.process_time() - start_cpu)
        self._wall.append(time.perf_counter() - start)

    def summary(self) -> dict[str, float]:
        """Milliseconds: CPU and wall, median and 95th percentile."""
        return {
            f"{kind}_ms_p{share}": round(float(np.percentile(values, share)) * 1000, 3)
            for kind, values in (("cpu", self._cpu), ("wall", self._wall))
            for share in (50, 95)
        }


# ---- The three processes


async def build(place: Path, size: int, *, tokens: bool) -> dict[str, Any]:
    """Store memories and give each its vectors."""
    texts = made_up_texts(size)
    async with Memory.open(place, embedder=MadeUp(tokens=tokens), back_fill=False) as memory:
        singles = min(size, SINGLES)
        start, start_cpu = time.perf_counter(), time.process_time()
        for text in texts[:singles]:
            await memory.add(text)
        add_s, add_cpu_s = time.perf_counter() - start, time.process_time() - start_cpu
        episodes = [
            Episode(session=f"s{at // TURNS}", turn=at % TURNS, speaker=("Ann", "Bob")[at % 2], text=text)
            for at, text in enumerate(texts[singles:])
        ]
        start = time.perf_counter()
        for at in range(0, len(episodes), 500):
            await memory.add_episodes(episodes[at : at + 500])
        episodes_s = time.perf_counter() - start
        await memory.embed_pending()
        start_cpu = time.process_time()
        await memory.search("first")
        return {
            "adds_per_s": round(singles / add_s),
            "adds_per_cpu_s": round(singles / add_cpu_s),
            "episodes_per_s": round(len(episodes) / episodes_s) if episodes else None,
            "first_search_ever_cpu_s": round(time.process_time() - start_cpu, 3),
        }


async def write(place: Path, *, tokens: bool) -> None:
    """Store one memory for each line that arrives, and say when it is stored."""
    async with Memory.open(place, embedder=MadeUp(tokens=tokens), back_fill=False) as memory:
        print("ready", flush=True)
        for number, _ in enumerate(sys.stdin):
            await memory.add(f"A note of another process, number {number}, at {time.time_ns()}.")
            print("stored", flush=True)


@contextmanager
def another_process(place: Path, *, tokens: bool) -> Iterator[Callable[[], None]]:
    """A function that lets another process store a memory."""
    command = [sys.executable, __file__, "--phase", "write", "--place", str(place)]
    with subprocess.Popen(
        command + ([] if tokens else ["--no-tokens"]),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()

        def store() -> None:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("\n")
            process.stdout.readline()

        yield store
        process.stdin.close()


async def search(place: Path, size: int, queries: int, writes: int, *, tokens: bool) -> dict[str, Any]:
    """Measure searches."""
    asked = [" ".join(text.split()[:7]) for text in made_up_texts(size + queries)[size:]]
    embedder = MadeUp(tokens=tokens)
    imported_mb = resident_mb()
    start, start_cpu = time.perf_counter(), time.process_time()
    async with Memory.open(place, embedder=embedder, back_fill=False) as memory:
        await memory.search(asked[0])
        first = {
            "wall_s": round(time.perf_counter() - start, 3),
            "cpu_s": round(time.process_time() - start_cpu, 3),
        }
        warm, again, lexical, after_write, bare_times = Times(), Times(), Times(), Times(), Times()
        for question in asked:
            await memory.search(question)
        steady_mb = resident_mb()
        with another_process(place, tokens=tokens) as store:
            for number in range(writes):
                store()
                await after_write.of(memory.search(asked[number % queries]))
        after_writes_mb = resident_mb()
        matrix = await embedder.embed([""] * size, "document")
        vectors = await embedder.embed(asked, "query")

        async def bare(number: int) -> None:
            scores = matrix @ vectors[number]
            np.argpartition(scores, -10)[-10:]

        await bare(0)
        for number, question in enumerate(made_up_texts(size + 2 * queries)[size + queries :]):
            await bare_times.of(bare(number))
            await warm.of(memory.search(" ".join(question.split()[:7])))
            await bare_times.of(bare(number))
            await again.of(memory.search(asked[number]))
            await lexical.of(memory.search(asked[number], mode="lexical"))
    result: dict[str, Any] = {
        "first_search": first,
        "bare_dot": bare_times.summary(),
        "search": warm.summary(),
        "search_again": again.summary(),
        "lexical": lexical.summary(),
        "after_write": after_write.summary(),
        "rss_mb": {"imports": imported_mb, "steady": steady_mb, "after_writes": after_writes_mb},
    }
    for name in ("search", "search_again", "lexical", "after_write"):
        for kind in ("cpu_ms_p50", "wall_ms_p50"):
            result[name][f"{kind}_ratio"] = round(result[name][kind] / result["bare_dot"][kind], 2)
    result["after_write"]["cpu_of_warm"] = round(
        result["after_write"]["cpu_ms_p50"] / result["search"]["cpu_ms_p50"], 2
    )
    return result


# ---- All of it


def in_process(phase: str, place: Path, arguments: argparse.Namespace, size: int) -> dict[str, Any]:
    """Run a phase in a new process and give what it printed."""
    command = [sys.executable, __file__, "--phase", phase, "--place", str(place), "--sizes", str(size)]
    command += ["--queries", str(arguments.queries), "--writes", str(arguments.writes)]
    command += ["--no-tokens"] if arguments.no_tokens else []
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def measure(size: int, folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure a store of one size; it is built where it isn't there."""
    place = folder / f"{size}{'-plain' if arguments.no_tokens else ''}" / "satchel.db"
    built: dict[str, Any] = {}
    if not place.exists():
        place.parent.mkdir(parents=True)
        built = in_process("build", place, arguments, size)
    return {"memories": size, **built, **in_process("search", place, arguments, size)}


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure all sizes."""
    if arguments.store is None:
        with tempfile.TemporaryDirectory() as folder:
            results = [measure(size, Path(folder), arguments) for size in arguments.sizes]
    else:
        results = [measure(size, arguments.store, arguments) for size in arguments.sizes]
    return {
        "results": results,
        "token_vectors": not arguments.no_tokens,
        "threads": os.environ["OPENBLAS_NUM_THREADS"],
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
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 10_000, 100_000])
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument(
        "--writes", type=int, default=20, help="memories that another process stores meanwhile"
    )
    parser.add_argument("--no-tokens", action="store_true", help="an embedder without token vectors")
    parser.add_argument("--store", type=Path, default=None, help="keep the stores in this folder")
    parser.add_argument("--out", type=Path, default=None, help="also write the JSON to this file")
    parser.add_argument("--phase", choices=["build", "search", "write"], help=argparse.SUPPRESS)
    parser.add_argument("--place", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    place, size, tokens = arguments.place, arguments.sizes[0], not arguments.no_tokens
    match arguments.phase:
        case "build":
            print(json.dumps(anyio.run(lambda: build(place, size, tokens=tokens))))
        case "write":
            anyio.run(lambda: write(place, tokens=tokens))
        case "search":
            found = anyio.run(lambda: search(place, size, arguments.queries, arguments.writes, tokens=tokens))
            print(json.dumps(found))
        case _:
            text = json.dumps(run(arguments), indent=2)
            print(text)
            if arguments.out:
                arguments.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
