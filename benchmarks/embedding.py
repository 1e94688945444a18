"""The cost of the default embedder: texts per CPU-second compared with the bare runtime, and a cold start.

    python benchmarks/embedding.py [--home FOLDER] [--texts 300]

The baseline, where it is installed, is onnxruntime with the same tokens, one text at a time, in the same process. A
cold start is a new process that embeds one question, compared with one that only imports numpy. `stored` counts
memories that are added one by one and then embedded, including a vector for each token. CPU times include the whole
process.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anyio
import numpy as np

from satchel.clock import SystemClock
from satchel.memory import Memory
from satchel.models.embedding import MINILM, fetch_weights, open_embedder
from satchel.models.embedding.wordpiece import WordPiece
from satchel.models.port import Embedder

TEXT = """
the a network garden violin meeting budget sister allergic shellfish database decided yesterday morning to of and in on
with for because before after train Lisbon recipe cook repair router window letter
"""

PEAK = """
def peak_mb():
    # Not getrusage, because its peak includes that of the parent process.
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024
"""
COLD = """
import sys, time
from pathlib import Path
import anyio
from satchel.clock import SystemClock
from satchel.memory import Memory
from satchel.models.embedding import open_embedder
embedder = open_embedder("minilm", home=Path(sys.argv[1]), environ={}, clock=SystemClock())
anyio.run(embedder.embed, ["What should I keep in mind when I cook for Mara?"], "query")
print(time.process_time(), peak_mb())
"""
NUMPY = """
import time
import numpy
print(time.process_time(), peak_mb())
"""


async def rate(count: int, work: Callable[[], Awaitable[None]]) -> float:
    """Texts per CPU-second, the best of three runs."""
    best = 0.0
    for _ in range(3):
        start = time.process_time()
        await work()
        best = max(best, count / (time.process_time() - start))
    return round(best, 1)


def bare(folder: Path, texts: list[str]) -> Callable[[], Awaitable[None]]:
    """Onnxruntime alone: one tokenized text at a time, and the mean of its output."""
    import onnxruntime

    tokenizer = WordPiece.of_file(folder / "tokenizer.json")
    tokens = [np.array([tokenizer.encode(text)[0][: MINILM.max_tokens]]) for text in texts]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder))
    graph = (Path(__file__).parent / "data/minilm.onnx").read_bytes()
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])

    async def run() -> None:
        for ids in tokens:
            lengths = np.array([ids.shape[1]], np.int32)
            session.run(["hidden"], {"input_ids": ids, "lengths": lengths})[0][0].mean(axis=0)

    return run


def cold(program: str, *arguments: str) -> dict[str, float]:
    """CPU seconds and peak memory of a new process, the lowest of five runs."""
    runs = []
    for _ in range(5):
        done = subprocess.run(
            [sys.executable, "-c", PEAK + program, *arguments], capture_output=True, text=True, check=True
        )
        runs.append([float(number) for number in done.stdout.split()])
    return {
        "cpu_s": round(min(run[0] for run in runs), 3),
        "peak_rss_mb": round(min(run[1] for run in runs), 1),
    }


async def measure(home: Path, count: int) -> dict[str, Any]:
    """All figures, as data."""
    folder = await anyio.to_thread.run_sync(lambda: fetch_weights(home, environ=dict(os.environ)))
    dice = random.Random(1)
    figures: dict[str, Any] = {}
    for words in (6, 18, 38, 150):
        texts = [
            " ".join(dice.choices(TEXT.split(), k=words)) for _ in range(max(10, count * 18 // words // 2))
        ]
        embedder = open_embedder("minilm", home=home, environ={}, clock=SystemClock())
        await embedder.embed(texts[:1], "document")

        async def one_by_one(texts: list[str] = texts, embedder: Embedder = embedder) -> None:
            for text in texts:
                await embedder.embed([text], "document")

        async def together(texts: list[str] = texts, embedder: Embedder = embedder) -> None:
            await embedder.embed(texts, "document")

        baseline = await rate(len(texts), bare(folder, texts)) if find_spec("onnxruntime") else None
        rates = {"bare": baseline}
        async with Memory.open(":memory:", embedder=embedder, back_fill=False) as memory:

            async def stored(texts: list[str] = texts, memory: Memory = memory) -> None:
                for text in texts:
                    await memory.add(text)
                await memory.reindex()

            await stored(texts[:1])  # a new store embeds some examples once
            for name, work in (("one_by_one", one_by_one), ("together", together), ("stored", stored)):
                rates[name] = done = await rate(len(texts), work)
                if baseline:
                    rates[f"{name}_ratio"] = round(done / baseline, 2)
        figures[f"{words} words"] = rates
        await embedder.aclose()
    first, import_numpy = cold(COLD, str(home)), cold(NUMPY)
    return {
        "embedder": MINILM.id,
        "texts_per_cpu_second": figures,
        "cold_first_question": first,
        "cold_import_numpy": import_numpy,
        "cold_cpu_over_numpy_s": round(first["cpu_s"] - import_numpy["cpu_s"], 3),
        "versions": {
            "python": platform.python_version(),
            "machine": f"{platform.system()} {platform.machine()}",
            **{name: version(name) for name in ("numpy", "onnxruntime", "satchel") if find_spec(name)},
        },
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--home", type=Path, default=Path.home() / ".satchel", help="SATCHEL_HOME, for the model"
    )
    parser.add_argument(
        "--texts",
        type=int,
        default=300,
        help="the number of texts of 18 words; there are fewer of the longer ones",
    )
    arguments = parser.parse_args()
    print(json.dumps(anyio.run(measure, arguments.home, arguments.texts), indent=2))
