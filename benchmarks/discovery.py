"""Discovery of fifty executables that take 100 ms each to print their schema: the first start, and the next one.

    python benchmarks/discovery.py [--tools 50] [--rounds 5] [--boxed]

With --boxed, they are asked in the sandbox, as in mode `auto`.

The baseline in the same run queries the same executables one after the other, without a cache.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path

import anyio
from turn_cpu import versions

from satchel.clock import SystemClock
from satchel.config import Settings
from satchel.runtime.background import Background
from satchel.sandbox.bubblewrap import Bubblewrap
from satchel.sandbox.port import Sandbox
from satchel.tools.boxed import Workspaces
from satchel.tools.external import ExternalTools, ToolFolder

WAIT_S = 0.1


def make_tools(folder: Path, count: int) -> None:
    """Write shell scripts that wait before they answer."""
    folder.mkdir(mode=0o755)
    for number in range(count):
        said = {"name": f"tool_{number}", "description": "Waits.", "parameters": {"x": {"type": "string"}}}
        path = folder / f"tool_{number}"
        path.write_text(
            f"#!/bin/sh\nsleep {WAIT_S}\ncat <<'JSON'\n{json.dumps(said)}\nJSON\n", encoding="utf-8"
        )
        path.chmod(0o755)


async def discover(folder: Path, home: Path, count: int, *, boxed: bool) -> float:
    """The seconds until all schemas are known."""
    sandbox = Bubblewrap()

    async def get() -> Sandbox:
        return sandbox

    async with anyio.create_task_group() as group:
        boxes = Workspaces(
            get,
            Settings(
                home=home,
                config_path=home / "config.toml",
                cwd=home,
                environ={**os.environ, "XDG_CACHE_HOME": str(home / "cache")},
            ),
            spawn=Background(group, report=print).start,
            tell=print,
            tools=[folder],
        )
        external = ExternalTools(
            [ToolFolder(path=folder, kind="user")],
            home=home,
            environ=dict(os.environ),
            clock=SystemClock(),
            boxes=boxes,
            asks_boxed=boxed,
        )
        started_s = time.perf_counter()
        await external.discover()
        took_s = time.perf_counter() - started_s
        await boxes.aclose()
    await sandbox.aclose()
    if len(await external.tools()) != count:
        raise RuntimeError(f"{[entry for entry in external.entries if entry.status != 'available']}")
    return took_s


def one_after_the_other(folder: Path) -> float:
    """The seconds of the baseline."""
    started_s = time.perf_counter()
    for path in sorted(folder.iterdir()):
        subprocess.run([path, "--schema"], capture_output=True, check=True)
    return time.perf_counter() - started_s


def main() -> None:
    """Run the benchmark and print the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tools", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--boxed", action="store_true")
    arguments = parser.parse_args()
    first: list[float] = []
    again: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        make_tools(place / "tools", arguments.tools)
        baseline = one_after_the_other(place / "tools")
        for number in range(arguments.rounds):
            home = place / f"home_{number}"
            home.mkdir(mode=0o700)
            look = partial(discover, place / "tools", home, arguments.tools, boxed=arguments.boxed)
            first.append(anyio.run(look))
            again.append(anyio.run(look))
    result = {
        "what": f"{arguments.tools} executables that take {WAIT_S * 1000:g} ms each for --schema",
        "versions": versions(),
        "boxed": arguments.boxed,
        "rounds": arguments.rounds,
        "first_ms": round(statistics.median(first) * 1000, 1),
        "first_ms_best_and_worst": [round(min(first) * 1000, 1), round(max(first) * 1000, 1)],
        "next_ms": round(statistics.median(again) * 1000, 1),
        "one_after_the_other_ms": round(baseline * 1000, 1),
        "ratio_first_to_one_after_the_other": round(statistics.median(first) / baseline, 3),
        "ratio_next_to_first": round(statistics.median(again) / statistics.median(first), 4),
        "aim": "first at most 500 ms on two cores, next at most 30 ms",
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
