"""The CPU time of `satchel hook`, which another agent waits for: asking `satchel serve`, and the server that the first
hook starts.

    python benchmarks/hook.py [--rounds 60] [--memories 2000] [--satchel PROGRAM]

A new home gets MEMORIES turns of invented conversations and a handful of facts; no embedder is loaded, so the figures
are of the hook and not of a model. Each round runs every event once, as Claude Code sends it, and `python -c pass` as
the baseline; the order is the same in each round. Beside that, five first hooks: each starts the server. CPU is user
and system time of the process and of what it waited for, as the kernel counts it; wall-clock time is only printed for
comparison.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import anyio

from satchel.runtime.serving import HOOKS_FILE, SERVE_FILE, serving

FACTS = (
    "My sister Mara is allergic to shellfish.",
    "My name is Ann and I live in Graz.",
    "I prefer short answers with an example.",
    "We decided on PostgreSQL for the bookings.",
    "My daughter Lena starts school on 14 September.",
)
SAID = "For the bookings we looked at MySQL too, and decided against it because of its locks."
PROMPTS = (
    "What should I keep in mind when I cook for Mara?",
    "Which database did we choose for the bookings, and why did we decide against the other one?",
    "Write a function that parses a date in ISO 8601 and returns None if it can't.",
)
LIMIT_MS = 150.0


def run(command: list[str], environ: dict[str, str], payload: bytes) -> tuple[float, float, str]:
    """CPU and wall-clock milliseconds of a process, and what it printed."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    ended = subprocess.run(command, env=environ, input=payload, capture_output=True, check=True)
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu * 1000, wall * 1000, ended.stdout.decode()


def events(transcript: Path, session: str, prompt: str) -> dict[str, bytes]:
    """The payloads of a session, by event."""
    common = {"session_id": session, "transcript_path": str(transcript), "cwd": str(transcript.parent)}
    made: dict[str, dict[str, Any]] = {
        "SessionStart": {"source": "startup"},
        "UserPromptSubmit": {"prompt": prompt, "permission_mode": "default"},
        "Stop": {"stop_hook_active": False, "last_assistant_message": "Done."},
        "PreCompact": {"trigger": "auto", "custom_instructions": None},
        "SessionEnd": {"reason": "other"},
    }
    return {
        name: json.dumps({**common, "hook_event_name": name, **more}).encode() for name, more in made.items()
    }


async def fill(home: Path, memories: int) -> None:
    """Store invented turns and a few facts."""
    from satchel.config import load
    from satchel.memory import Episode
    from satchel.runtime.home import Home

    made = random.Random(12)
    words = [f"{one}{two}" for one in ("lamp", "river", "code", "train", "garden") for two in range(200)]
    settings = load({"SATCHEL_HOME": str(home), "SATCHEL_MEMORY_EMBEDDER": "none"}, cwd=home)
    async with Home.open(settings) as open_home:
        memory = open_home.memory
        assert memory is not None
        for start in range(0, memories, 500):
            await memory.add_episodes(
                Episode(
                    session=f"s{n // 20}",
                    turn=n % 20,
                    speaker="user",
                    text=" ".join(made.choices(words, k=25)),
                )
                for n in range(start, min(start + 500, memories))
            )
        for fact in FACTS:
            await memory.add(fact)
        await memory.add_episodes([Episode(session="plans", turn=1, speaker="user", text=SAID)])
        await memory.keep_up()


def percentile(values: list[float], share: float) -> float:
    """The value below which this share of the values is."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def environ_of(home: Path, worker: str) -> dict[str, str]:
    """The environment of the processes."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return kept | {
        "SATCHEL_HOME": str(home),
        "SATCHEL_MEMORY_EMBEDDER": "none",
        "SATCHEL_MEMORY_WORKER": worker,
    }


def measure(
    home: Path, program: str, rounds: int, server: list[str], file: str
) -> dict[str, list[tuple[float, float]]]:
    """CPU and wall-clock milliseconds of every run, by event; `file` says where the server listens."""
    # The worker that takes the queue would compete for the processor.
    environ = environ_of(home, "off")
    transcript = home / "transcript.jsonl"
    transcript.write_text(
        '{"type":"user","sessionId":"a","uuid":"u","message":{"role":"user","content":"Hello."}}\n'
    )
    found: dict[str, list[tuple[float, float]]] = {}
    told: dict[str, bool] = {}
    running = subprocess.Popen([program, *server], env=environ, stderr=subprocess.DEVNULL)
    try:
        while serving(home, file=file) is None:
            if running.poll() is not None:
                raise SystemExit("the server did not start")
            time.sleep(0.05)
        for number in range(rounds):
            cpu, wall, _ = run([sys.executable, "-c", "pass"], environ, b"")
            found.setdefault("python -c pass", []).append((cpu, wall))
            for name, payload in events(transcript, f"c{number}", PROMPTS[number % len(PROMPTS)]).items():
                cpu, wall, said = run([program, "hook"], environ, payload)
                told[name] = told.get(name, False) or "<satchel-" in said
                found.setdefault(name, []).append((cpu, wall))
    finally:
        running.terminate()
        running.wait(timeout=30)
    if not told["SessionStart"] or not told["UserPromptSubmit"]:
        raise SystemExit("the hook told nothing")
    return found


def measure_first(home: Path, program: str) -> list[tuple[float, float]]:
    """The same of hooks that start the server."""
    found = []
    for number in range(5):
        payload = events(home / "transcript.jsonl", f"first{number}", PROMPTS[0])["SessionStart"]
        cpu, wall, said = run([program, "hook"], environ_of(home, "auto"), payload)
        server = serving(home, file=HOOKS_FILE)
        if server is None or "<satchel-" not in said:
            raise SystemExit("the first hook told nothing")
        os.kill(server.pid, signal.SIGTERM)
        while serving(home, file=HOOKS_FILE) is not None:
            time.sleep(0.05)
        found.append((cpu, wall))
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--memories", type=int, default=2000)
    parser.add_argument("--satchel", default=str(Path(sys.executable).with_name("satchel")))
    given = parser.parse_args()
    found: dict[str, Any] = {
        "python": platform.python_version(),
        "processors": os.cpu_count(),
        "memories": given.memories,
        "limit_ms": LIMIT_MS,
    }
    for name, server, file in (
        ("with satchel serve", ["serve", "--port", "0"], SERVE_FILE),
        ("with a server of the hooks", ["memory", "answer"], HOOKS_FILE),
    ):
        with tempfile.TemporaryDirectory(prefix="satchel-hook-", ignore_cleanup_errors=True) as folder:
            home = Path(folder) / "home"
            home.mkdir(mode=0o700)
            anyio.run(fill, home, given.memories)
            runs = measure(home, given.satchel, given.rounds, server, file)
            if file == HOOKS_FILE:
                runs["SessionStart that starts the server"] = measure_first(home, given.satchel)
        base = percentile([cpu for cpu, _ in runs["python -c pass"]], 0.5)
        found[name] = {
            event: {
                "cpu_ms_median": round(percentile([cpu for cpu, _ in one], 0.5), 1),
                "cpu_ms_p95": round(percentile([cpu for cpu, _ in one], 0.95), 1),
                "times_python": round(percentile([cpu for cpu, _ in one], 0.5) / base, 1),
                "wall_ms_median": round(percentile([wall for _, wall in one], 0.5), 1),
            }
            for event, one in runs.items()
        }
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
