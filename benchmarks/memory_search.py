"""The speed of storing and searching memories, compared with a bare numpy product of the same matrix in the same run.

    python benchmarks/memory_search.py [--sizes 1000 10000 100000] [--queries 200] [--no-tokens] [--out FILE]

Texts and vectors are generated: sentences whose words have natural frequencies (Zipf), vectors of 384 numbers, and 64
numbers for each token. The embedder costs nothing, so that only the store is measured. CPU times include the whole
process; wall times are those of a caller. The baseline of ratios is `matrix @ query` and its ten best rows. `lexical`
is the search without vectors.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import resource
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

# One thread for the baseline and for the search: on a shared machine, two threads would measure the load of others.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import anyio
import numpy as np

from satchel.memory import Episode, Memory
from satchel.memory.tokens import pack
from satchel.memory.vector_rows import Embedded, pending_vectors, write_vectors
from satchel.models.port import EmbedderInfo, EmbedRole, TokenVectors

DIMENSION = 384
TOKEN_DIMENSION = 64
VOCABULARY = 30_000
WORDS = 20
TURNS = 25


class MadeUp:
    """An embedder that returns random unit vectors, the same ones in each run."""

    def __init__(self, *, tokens: bool) -> None:
        """Seed the generator with a fixed number."""
        self._random = np.random.default_rng(7)
        self.info = EmbedderInfo(
            id="made-up",
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


async def timed(run: Callable[[int], Awaitable[object]], times: int) -> dict[str, float]:
    """Milliseconds of each call: CPU and wall, median and 95th percentile."""
    cpu, wall = [], []
    for number in range(times):
        start_cpu, start = time.process_time(), time.perf_counter()
        await run(number)
        cpu.append(time.process_time() - start_cpu)
        wall.append(time.perf_counter() - start)
    return {
        "cpu_ms_p50": round(float(np.percentile(cpu, 50)) * 1000, 3),
        "cpu_ms_p95": round(float(np.percentile(cpu, 95)) * 1000, 3),
        "wall_ms_p50": round(float(np.percentile(wall, 50)) * 1000, 3),
        "wall_ms_p95": round(float(np.percentile(wall, 95)) * 1000, 3),
    }


async def measure(size: int, queries: int, folder: Path, *, tokens: bool) -> dict[str, Any]:
    """Measure a store of one size."""
    texts = made_up_texts(size)
    asked = [" ".join(text.split()[:7]) for text in made_up_texts(size + queries)[size:]]
    embedder = MadeUp(tokens=tokens)
    async with Memory.open(folder / f"{size}.db", embedder=embedder, back_fill=False) as memory:
        singles = min(size, 1000)
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
        matrix = await fill(memory, size)
        start, start_cpu = time.perf_counter(), time.process_time()
        await memory.search(asked[0])
        first = {
            "wall_s": round(time.perf_counter() - start, 3),
            "cpu_s": round(time.process_time() - start_cpu, 3),
        }
        vectors = await embedder.embed(asked, "query")

        async def bare(number: int) -> None:
            scores = matrix @ vectors[number]
            np.argpartition(scores, -10)[-10:]

        result: dict[str, Any] = {
            "memories": size,
            "adds_per_s": round(singles / add_s),
            "adds_per_cpu_s": round(singles / add_cpu_s),
            "episodes_per_s": round(len(episodes) / episodes_s) if episodes else None,
            "first_search": first,
            "bare_dot": await timed(bare, queries),
            "search": await timed(lambda number: memory.search(asked[number]), queries),
            "search_again": await timed(lambda number: memory.search(asked[number]), queries),
            "lexical": await timed(lambda number: memory.search(asked[number], mode="lexical"), queries),
        }
        for name in ("search", "search_again", "lexical"):
            for kind in ("cpu_ms_p50", "wall_ms_p50"):
                result[name][f"{kind}_ratio"] = round(result[name][kind] / result["bare_dot"][kind], 2)
        return result


async def fill(memory: Memory, size: int) -> Any:
    """Write a vector for every memory, in large batches, and return the matrix of all vectors."""
    dense = memory._dense  # The benchmark writes vectors as the store does, without its batches.
    assert dense is not None
    await dense.open()
    model = dense.model
    assert model is not None
    embedder = dense.embedder
    assert isinstance(embedder, MadeUp)
    matrix = await embedder.embed([""] * size, "document")
    done = 0
    while done < size:
        pending = await memory._database.read(
            lambda connection: pending_vectors(
                connection, memory._space, model, limit=5000, max_chars=100_000_000
            )
        )
        made = [
            Embedded(
                pending=one,
                vectors=matrix[one.rid - 1].tobytes(),
                tokens=pack([one.content], [embedder.tokens_of(one.content)]) if dense.has_tokens else None,
            )
            for one in pending
        ]
        await memory._database.write(lambda connection, made=made: write_vectors(connection, model, made))
        done += len(pending)
    return matrix


async def run(sizes: Sequence[int], queries: int, tokens: bool) -> dict[str, Any]:
    """Measure all sizes."""
    with tempfile.TemporaryDirectory() as folder:
        results = [await measure(size, queries, Path(folder), tokens=tokens) for size in sizes]
    return {
        "results": results,
        "token_vectors": tokens,
        "peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
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
    parser.add_argument("--no-tokens", action="store_true", help="an embedder without token vectors")
    parser.add_argument("--out", type=Path, default=None, help="also write the JSON to this file")
    arguments = parser.parse_args()
    text = json.dumps(anyio.run(run, arguments.sizes, arguments.queries, not arguments.no_tokens), indent=2)
    print(text)
    if arguments.out:
        arguments.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
