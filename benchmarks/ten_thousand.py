"""How many machines 10,000 people need: a simulated day on costs that are measured first, in the same run.

    python benchmarks/ten_thousand.py [--people 10000] [--cores 16] [--memory-gb 64] [--turns 40] [--costs FILE]

Measured is one person's process as the front door starts it, `satchel serve` with the embedded model and the scripted
endpoint: the CPU of its start and of a turn, the time of its start, and its resident memory. `--costs` reads them from
an earlier run instead. Each cost is printed beside that of `python -c pass`.

Simulated is a day from 4 h to 4 h. What is assumed, and not measured, is in `ASSUMED`. A person has a process on one
machine, which is started with the first turn and ends after `server.people_idle_s` without one. A turn needs a core
twice, half of its CPU each time: before its model answers, and after. A start needs one, too. A machine has one queue,
first come, first served. Reported is how long a turn waits for what is not its own work: the queue, and the start of
its person's process; for the fewest machines whose memory holds all processes and whose queue is short.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import httpx2
from loopback import endpoint

ASSUMED: Final[dict[str, float]] = {
    "turns_a_day": 20,  # the mean; a person's own mean is log-normal around it
    "sigma": 1.0,  # of its logarithm: one in twenty people has five times the median
    "turns_a_visit": 5,  # geometric
    "pause_s": 60,  # between the end of an answer and the next message, exponential
    "model_s": 6,  # that a model answers, exponential
    "active": 0.5,  # of the people, who come on this day at all
    "idle_s": 900,  # server.people_idle_s
    "use": 0.8,  # of a machine's memory that may be in use at the peak
    "wait_s": 0.25,  # the p95 of the queue that is still good
}
HOURS: Final = (1, 0.5, 0.5, 1, 2, 4, 5, 5, 4, 4, 5, 5, 5, 5, 4, 5, 6, 7, 6, 4, 2, 1, 1, 1)
"""How busy the hours are, from 4 h on: an evening that is seven times as busy as the night."""
_TICKS: Final = os.sysconf("SC_CLK_TCK")


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def measured(turns: int) -> dict[str, float]:
    """The costs of one person's process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    bare_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    with tempfile.TemporaryDirectory() as folder, endpoint() as address:
        home = Path(folder) / "home"
        home.mkdir()
        (home / "config.toml").write_text(
            f'model = "loop:chain-0"\n[providers.loop]\nkind = "openai"\nbase_url = "{address}/v1"\n'
            '[background]\nmodels = "off"\n'
        )
        environ = {"HOME": folder, "PATH": os.environ["PATH"], "SATCHEL_HOME": str(home)}
        command = [sys.executable, "-m", "satchel", "serve", "--port", "0"]
        began_s = time.monotonic()
        with (
            subprocess.Popen(command, env=environ, cwd=folder, stderr=subprocess.PIPE, text=True) as process,
            ExitStack() as stack,  # ends it also where a chat fails
        ):
            stack.callback(process.terminate)
            assert process.stderr is not None
            found = None
            while found is None:
                found = re.search(r"(http://[\d.]+:\d+)", process.stderr.readline())
            start_s, start_cpu_s = time.monotonic() - began_s, _cpu_s(process.pid)
            headers = {"authorization": f"Bearer {(home / 'token').read_text().strip()}"}
            session, rows = None, []
            with httpx2.Client(base_url=found[1], headers=headers, timeout=300, trust_env=False) as client:
                for number in range(turns + 1):
                    asked = {"message": f"My neighbour number {number} keeps {number + 2} bees and a goat."}
                    answer = client.post(
                        "/api/chat", json=asked | ({"session_id": session} if session else {})
                    )
                    answer.raise_for_status()
                    session = session or re.search(r'"sessionId": ?"([^"]+)"', answer.text)[1]  # type: ignore[index]
                    if number in (0, turns):
                        rows.append(_cpu_s(process.pid))
            status = Path(f"/proc/{process.pid}/status").read_text()
    first_cpu_s, last_cpu_s = rows
    return {
        "bare_cpu_s": bare_s,
        "start_s": start_s,
        "start_cpu_s": first_cpu_s,  # with its first turn, which loads the embedded model
        "serving_cpu_s": start_cpu_s,
        "turn_cpu_s": (last_cpu_s - first_cpu_s) / turns,
        "resident_mb": int(status.split("VmRSS:")[1].split()[0]) / 1024,
    }


def day(people: int, seed: int) -> list[list[tuple[float, float]]]:
    """For each person who comes, the turns of a day: the second of the message, and how long the model answers."""
    dice, shape = random.Random(seed), ASSUMED
    came = []
    mean = shape["turns_a_day"] / shape["active"] / math.exp(shape["sigma"] ** 2 / 2)
    for _ in range(people):
        if dice.random() >= shape["active"]:
            continue
        turns: list[tuple[float, float]] = []
        left = max(1, round(mean * dice.lognormvariate(0, shape["sigma"])))
        while left > 0:
            at = (dice.choices(range(24), HOURS)[0] + dice.random()) * 3600
            for _ in range(min(left, 1 + int(dice.expovariate(1 / (shape["turns_a_visit"] - 1))))):
                answer_s = dice.expovariate(1 / shape["model_s"])
                turns.append((at, answer_s))
                at += answer_s + dice.expovariate(1 / shape["pause_s"])
                left -= 1
        came.append(sorted(turns))
    return came


def simulated(
    came: list[list[tuple[float, float]]], costs: dict[str, float], machines: int, cores: int
) -> Any:
    """A day on so many machines: p95 of waiting, the most processes of one machine, starts, CPU."""
    queued, cold, work_s, starts, most = [], [], 0.0, 0, 0
    for machine in range(machines):
        jobs, lives = [], []
        for turns in came[machine::machines]:
            ended = 0.0
            begins = [True, *(b[0] - a[0] - a[1] > ASSUMED["idle_s"] for a, b in pairwise(turns))]
            for (at, answer_s), is_cold in zip(turns, begins, strict=True):
                starts += is_cold
                jobs.append((at, costs["turn_cpu_s"] / 2 + (costs["start_cpu_s"] if is_cold else 0), is_cold))
                jobs.append((at + answer_s, costs["turn_cpu_s"] / 2, False))
                if is_cold:
                    lives += [(at, 1), *([(ended, -1)] if ended else [])]
                ended = at + answer_s + ASSUMED["idle_s"]
            lives.append((ended, -1))
        free = [0.0] * cores
        for at, cpu_s, is_cold in sorted(jobs):
            begins_s = max(at, heapq.heappop(free))
            heapq.heappush(free, begins_s + cpu_s)
            queued.append(begins_s - at)
            if is_cold:
                cold.append(begins_s - at + costs["start_cpu_s"])
            work_s += cpu_s
        running = 0
        for _, change in sorted(lives):
            running += change
            most = max(most, running)
    return {
        "machines": machines,
        "queue_p95_s": round(_p95(queued), 3),
        "queue_worst_s": round(max(queued), 2),
        "cold_p95_s": round(_p95(cold), 2),
        "turns": len(queued) // 2,
        "cold_share": round(starts / (len(queued) // 2), 3),
        "most_processes": most,
        "cpu_hours": round(work_s / 3600, 1),
        "busy": round(work_s / (86_400 * cores * machines), 3),
    }


def _p95(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.95)]


def fewest(
    came: list[list[tuple[float, float]]], costs: dict[str, float], cores: int, memory_mb: float
) -> Any:
    """The fewest machines that are enough."""
    machines = 1
    while True:
        found = simulated(came, costs, machines, cores)
        need_mb = found["most_processes"] * costs["resident_mb"]
        if found["queue_p95_s"] <= ASSUMED["wait_s"] and need_mb <= memory_mb * ASSUMED["use"]:
            return found
        machines += max(1, math.ceil(machines * (need_mb / memory_mb / ASSUMED["use"] - 1) * 0.9))


def main() -> None:
    """Print the costs and the days as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--people", type=int, default=10_000)
    parser.add_argument("--cores", type=int, default=16)
    parser.add_argument("--memory-gb", type=float, default=64)
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--costs", type=Path)
    options = parser.parse_args()
    costs = json.loads(options.costs.read_text())["costs"] if options.costs else measured(options.turns)
    print(
        json.dumps({"costs": costs}), file=sys.stderr, flush=True
    )  # for --costs, if the rest is interrupted
    came = day(options.people, seed=1)
    memory_mb = options.memory_gb * 1024
    days = {"as measured": fewest(came, costs, options.cores, memory_mb)}
    for name, change in (
        ("half the memory", {"resident_mb": costs["resident_mb"] / 2}),
        ("half the CPU of a turn", {"turn_cpu_s": costs["turn_cpu_s"] / 2}),
        ("half the CPU of a start", {"start_cpu_s": costs["start_cpu_s"] / 2}),
    ):
        days[name] = fewest(came, costs | change, options.cores, memory_mb)
    print(
        json.dumps({"load": os.getloadavg()[0], "costs": costs, "assumed": ASSUMED, "days": days}, indent=1)
    )


if __name__ == "__main__":
    main()
