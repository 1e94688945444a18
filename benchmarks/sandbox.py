"""What the sandbox costs, in ratios to a bare Python in the same run. Run it as an ordinary user.

    python benchmarks/sandbox.py [--runs 40]

The contenders take turns, so that what disturbs the machine disturbs all. Wall times are medians; CPU times are those
of all processes of a contender together, this one included.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio

from satchel.sandbox.bubblewrap import Bubblewrap
from satchel.sandbox.job import python_program
from satchel.sandbox.landlock import Landlock
from satchel.sandbox.port import PythonEntry, RunSpec, WorkspaceBox
from satchel.sandbox.process import run_process

ENVIRON = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
MODULES = 200
"""In the layer, so that a cost of its size would show."""
SPARE_READY_S = 0.3
"""How long a spare has to start before it is used. Between two calls a model takes longer."""

Contender = Callable[[], Awaitable[None]]


def cpu_s() -> float:
    """Processor time of this process and of all that have ended and were waited for."""
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


async def measure(contenders: dict[str, Contender], runs: int, pause_s: float) -> dict[str, list[float]]:
    """Wall times in milliseconds."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(runs):
        for name, contender in contenders.items():
            began_s = time.perf_counter()
            await contender()
            times[name].append((time.perf_counter() - began_s) * 1000)
            await anyio.sleep(pause_s)
    return times


async def command_cpu_ms(run: Contender, runs: int) -> float:
    """The mean of many; what one costs is below the resolution of the clock."""
    before_s = cpu_s()
    for _ in range(runs):
        await run()
    # bwrap leaves its first process to whoever adopts orphans: this one.
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:  # noqa: ASYNC222
            pass
    return (cpu_s() - before_s) / runs * 1000


def own_subreaper() -> None:
    """Make orphans children of this process, so that the processor time of bwrap's first process is counted too."""
    import ctypes

    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)


async def main(runs: int, home: Path) -> dict[str, object]:
    """All figures."""
    with tempfile.TemporaryDirectory(prefix="satchel-bench-") as name:
        folder = Path(name)
        os.chmod(name, 0o755)  # noqa: PTH101
        code = folder / "code"
        code.mkdir()
        (code / "main.py").write_text("def run(args):\n    return 'hi ' + args['name']\n")
        using = folder / "using"
        using.mkdir()
        (using / "main.py").write_text("import pack1\ndef run(args):\n    return pack1.word\n")
        layer = folder / "layer"
        layer.mkdir()
        for n in range(MODULES):
            (layer / f"pack{n}.py").write_text("word = 'hi'\n")
        compile_all = [str(python_program()), "-m", "compileall", "-q", str(layer)]
        await run_process(compile_all, cwd=folder, environ=ENVIRON)
        workspace = folder / "workspace"
        workspace.mkdir()
        args = {"name": "Ann"}
        fresh, spares, landlock = Bubblewrap(), Bubblewrap(spares=2), Landlock()
        plain_spec = RunSpec(entry=PythonEntry(code_dir=code, args=args))
        layer_spec = RunSpec(entry=PythonEntry(code_dir=using, args=args), layer=layer)

        probe = await fresh.probe()
        if not probe.works:
            return {"skipped": f"bubblewrap doesn't work here: {probe.reason} {probe.fix}"}

        async def python() -> None:
            # Nothing but the interpreter: our own way to start processes would make the base larger.
            subprocess.run([python_program(), "-c", "pass"], env=ENVIRON, check=True)  # noqa: ASYNC221

        async def play(sandbox: Bubblewrap | Landlock, spec: RunSpec) -> None:
            result = await sandbox.run(spec)
            assert result.ok, result

        contenders: dict[str, Contender] = {
            "python -c pass": python,
            "fresh": lambda: play(fresh, plain_spec),
            "fresh, with a layer": lambda: play(fresh, layer_spec),
            "spare": lambda: play(spares, plain_spec),
        }
        if (await landlock.probe()).works:
            contenders["landlock, fresh"] = lambda: play(landlock, plain_spec)
        await play(spares, plain_spec)
        times = await measure(contenders, runs, SPARE_READY_S)
        await spares.aclose()
        medians = {name: statistics.median(values) for name, values in times.items()}
        base = medians["python -c pass"]

        own_subreaper()
        async with fresh.box(WorkspaceBox(workspace=workspace, home=home)) as box:

            async def bash(boxed: bool) -> None:
                result = await run_process(
                    ["bash", "-c", "true"], cwd=workspace, environ=ENVIRON, box=box if boxed else None
                )
                assert result.exit_code == 0, result

            cpu: dict[str, list[float]] = {"plain": [], "boxed": []}
            for _ in range(10):
                cpu["plain"].append(await command_cpu_ms(lambda: bash(False), runs // 2))
                cpu["boxed"].append(await command_cpu_ms(lambda: bash(True), runs // 2))
        plain_ms, boxed_ms = (statistics.median(cpu[name]) for name in ("plain", "boxed"))
    return {
        "python": platform.python_version(),
        "uid": os.geteuid(),
        "runs": runs,
        "median_ms": {name: round(value, 1) for name, value in medians.items()},
        "ratio": {name: round(value / base, 2) for name, value in medians.items()},
        "layer_ms_more": round(
            statistics.median(
                more - less for more, less in zip(times["fresh, with a layer"], times["fresh"], strict=True)
            ),
            1,
        ),
        "bash_cpu_ms": {
            "plain": round(plain_ms, 1),
            "boxed": round(boxed_ms, 1),
            "more": round(boxed_ms - plain_ms, 1),
        },
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=40)
    options = parser.parse_args()
    if os.geteuid() == 0:
        print("as root, other figures come out: run this as an ordinary user", file=sys.stderr)
    print(json.dumps(anyio.run(main, options.runs, Path.home()), indent=2))
