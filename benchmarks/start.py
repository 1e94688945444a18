"""The cost of a new process: CPU of `satchel --version`, `memory search`, `memory add` and `ask`, and their peak
memory.

    python benchmarks/start.py [--home FOLDER] [--rounds 7]

The home is new, with the embedding model linked from FOLDER and five memories that are already embedded. `ask` is
answered by a scripted endpoint on loopback in OpenAI's wire format, and without a model, both without the embedder.
The baselines in the same run are a process that only imports the libraries that a search needs (`libraries`), and one
that does nothing (`python`). Rounds alternate, and the lowest figure of each counts. CPU is user and system time of the
whole process; memory is VmHWM.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from loopback import endpoint

from satchel.models.embedding import fetch_weights

MEMORIES = (
    "My sister Mara is allergic to shellfish.",
    "We decided on PostgreSQL for the bookings.",
    "The router is configured at 192.168.1.1.",
    "The spare key hangs behind the red door.",
    "I like green tea without sugar.",
)
LIBRARIES = "import asyncio, click, numpy, sqlalchemy.dialects.sqlite"
# A separate program reports its peak, because getrusage's peak includes that of the parent process.
PEAK = """
import sys
from satchel.cli import main
code = main(sys.argv[1:])
with open("/proc/self/status") as status:
    print("VmHWM", next(line.split()[1] for line in status if line.startswith("VmHWM")), file=sys.stderr)
sys.exit(code)
"""


def run(command: list[str], environ: dict[str, str]) -> tuple[float, str]:
    """The CPU seconds of a process, and its stderr."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, ended.stderr


def peak_mb(words: list[str], environ: dict[str, str]) -> float:
    """Peak memory of a command."""
    _, told = run([sys.executable, "-c", PEAK, *words], environ)
    return round(int(told.split("VmHWM")[-1]) / 1024, 1)


def measure(home: Path, models: Path, rounds: int, address: str) -> dict[str, Any]:
    """All figures, as data."""
    home.mkdir(mode=0o700)
    (home / "models").symlink_to(models.resolve())
    program = [sys.executable, "-c", "import sys; from satchel.cli import main; sys.exit(main(sys.argv[1:]))"]
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH") if name in os.environ}
    environ = {**kept, "SATCHEL_HOME": str(home)}
    bare = {**environ, "SATCHEL_MEMORY_EMBEDDER": "none"}
    scripted = {**bare, "OPENAI_BASE_URL": f"{address}/v1", "OPENAI_API_KEY": "k"}
    for words in MEMORIES:
        run([*program, "memory", "add", words], environ)
    search = ["memory", "search", "cook", "for", "Mara"]
    _, told = run([*program, *search], environ)  # embeds the five
    if told:
        raise SystemExit(told)
    commands: dict[str, tuple[list[str], dict[str, str]]] = {
        "python": ([sys.executable, "-c", "pass"], environ),
        "libraries": ([sys.executable, "-c", LIBRARIES], environ),
        "version": ([*program, "--version"], environ),
        "memory_search": ([*program, *search], environ),
        "memory_search_by_words": ([*program, *search, "--mode", "lexical"], environ),
        "memory_add": ([*program, "memory", "add", "One more."], environ),
        "ask_recall": ([*program, "ask", "--model", "none:recall", "Mara?"], bare),
        "ask_endpoint": ([*program, "ask", "--model", "openai:chain-0", "Hello"], scripted),
    }
    least = dict.fromkeys(commands, float("inf"))
    for _ in range(rounds):
        for name, (command, its) in commands.items():
            least[name] = min(least[name], run(command, its)[0])
    return {
        "cpu_s": {name: round(seconds, 3) for name, seconds in least.items()},
        "memory_search_over_libraries": round(least["memory_search"] / least["libraries"], 2),
        "peak_rss_mb": {
            "memory_search": peak_mb(search, environ),
            "ask_recall": peak_mb(["ask", "--model", "none:recall", "Mara?"], bare),
            "ask_endpoint": peak_mb(["ask", "--model", "openai:chain-0", "Hello"], scripted),
        },
        "aims": {"version": 0.15, "memory_search": 0.6, "ask_peak_rss_mb": 120},
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("satchel", "numpy", "sqlalchemy")},
        },
    }


def main() -> None:
    """Read the arguments, run, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--home", type=Path, default=Path.home() / ".satchel", help="SATCHEL_HOME, for the model"
    )
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    models = fetch_weights(arguments.home, environ=dict(os.environ)).parent
    with tempfile.TemporaryDirectory() as folder, endpoint() as address:
        figures = measure(Path(folder) / "home", models, arguments.rounds, address)
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
