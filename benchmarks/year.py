"""A year of use: what it costs to ask, to look after the home and to keep it, when 20,000 turns have been said.

    python benchmarks/year.py [--memories 50000] [--home FOLDER] [--store FOLDER] [--out FILE]

Three homes are made, with a twentieth, 34 % and all of the memories: with 50,000, the largest has 20,000 turns in 2,000
sessions and 10,000 memories that were added. Texts are put together from the sentences in `data/own_long.json`, with a
fixed seed. Logs are written by the program's own journal, memories by `Memory.add_episodes` and `Memory.add`, vectors
are random and have the form of those of the embedding model, because 50,000 real ones would take an hour. Everything
that is measured is a command of the program in a process of its own, but for the list of sessions, which pages ask an
open store for.

- `ask`: `satchel ask` after a fifth of the memories was imported into an empty home, with the embedding model, which
  has embedded none of them; CPU of the process until the first word of the answer of a scripted endpoint on loopback.
- `bytes`: what the home takes for each memory, by file, and the database by table.
- `sessions`: the list in a new process, and again in the same one; beside one look at all of the logs' files.
- `doctor`, `forget` (one memory, the middle of three), `export`, `backup`: CPU, beside the plain copy of the database's
  file and one pass over its rows in the same run.

`--store` keeps the homes and the results, so that a run that was ended goes on where it stopped; give another state of
the program another folder. `--memories 3000` takes some minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import re
import resource
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import anyio
from loopback import endpoint
from memory_search import MadeUp

from satchel.clock import ManualClock
from satchel.events import (
    Assistant,
    Event,
    Final,
    MemoryCaptured,
    MemorySurfaced,
    SessionEnd,
    SessionStart,
    SurfacedMemory,
    TurnEnd,
    TurnStart,
)
from satchel.memory import Episode, Memory
from satchel.messages import Message, TextBlock, Usage
from satchel.models.embedding import fetch_weights
from satchel.models.embedding.records import MINILM
from satchel.sessions import SessionStore
from satchel.storage import Database

TURNS_A_SESSION = 10
SHOWN = 3
"""Memories that are shown with a message."""
BEGAN = datetime(2025, 11, 1, 8, tzinfo=UTC)
DATA = Path(__file__).parent / "data" / "own_long.json"
PROGRAM = "import sys; from satchel.cli import main; sys.exit(main(sys.argv[1:]))"
COPY = "import shutil, sys; shutil.copyfile(sys.argv[1], sys.argv[2])"
ROWS = (
    "import sqlite3, sys; print(sum(len(row[4]) for row in "
    "sqlite3.connect(sys.argv[1]).execute('SELECT * FROM memories')))"
)


# ---- The year


@cache
def sentences() -> list[str]:
    """The sentences of the data, in a fixed order."""
    entries = json.loads(DATA.read_text(encoding="utf-8"))["entries"]
    return sorted({s for entry in entries for s in re.split(r"(?<=[.?!])\s+", entry["text"]) if len(s) > 20})


class Texts:
    """Messages, answers and notes, none of which says the same as another."""

    def __init__(self, seed: int) -> None:
        """Begin with this number."""
        self._sentences = sentences()
        self._random = random.Random(seed)

    def some(self, least: int, most: int) -> str:
        """So many sentences, in an order that nothing else has."""
        return " ".join(self._random.sample(self._sentences, self._random.randint(least, most)))


async def make_home(home: Path, memories: int) -> None:
    """Fill a home, or go on with one that was begun."""
    sessions = memories * 2 // 5 // TURNS_A_SESSION
    clock = ManualClock(BEGAN)
    embedder = MadeUp(tokens=True)
    embedder.info = MINILM
    async with (
        Database.open(home / "satchel.db") as database,
        Memory.open(database, embedder=embedder, second_embedder="none", home=home, clock=clock) as memory,
    ):
        store = SessionStore(home / "sessions", database, clock=clock)
        there = {info.id for info in await store.list()}
        for number in range(sessions):
            clock.at = BEGAN + timedelta(days=365 * number / sessions)
            if f"{number:06d}" not in there:
                await hold_session(store, memory, number, clock)
        texts = Texts(1)
        notes = [texts.some(1, 1) + f" ({number})" for number in range(memories // 5)]
        for note in notes[await memory.count(kind="fact") :]:
            await memory.add(note)
        await memory.embed_pending()
        for file in await store.unsettled():
            await store.settle(file)
        await store.search("harvest")


async def hold_session(store: SessionStore, memory: Memory, number: int, clock: ManualClock) -> None:
    """Write a session's log as a turn writes it, and its episodes."""
    texts, session = Texts(1000 + number), f"{number:06d}"
    usage = Usage(input_tokens=900, output_tokens=90)
    episodes: list[Episode] = []
    events: list[Event] = []
    for turn in range(1, TURNS_A_SESSION + 1):
        said, answer = texts.some(1, 2), texts.some(3, 6)
        shown = tuple(
            SurfacedMemory(id=f"{number:032x}", content=texts.some(1, 2), score=0.7, why="the same words")
            for _ in range(SHOWN)
        )
        two = [
            Episode(session=session, turn=turn, speaker=speaker, text=text, position=at, said_at=clock.now())
            for at, (speaker, text) in enumerate((("user", said), ("assistant", answer)))
        ]
        message = Message(role="user", blocks=(TextBlock(text=said, origin="said"),))
        block = "\n".join(f"- {memory.content}" for memory in shown)
        events += [
            TurnStart(turn=turn, message=message),
            MemorySurfaced(turn=turn, text=block, memories=shown, tokens=200),
            Assistant(
                turn=turn,
                round=1,
                blocks=(TextBlock(text=answer),),
                stop_reason="end_turn",
                provider="openai",
                model="made-up",
                usage=usage,
            ),
            Final(turn=turn, text=answer, status="done"),
            MemoryCaptured(turn=turn, ids=tuple(f"{number:030x}{turn:02x}" for _ in two)),
            TurnEnd(turn=turn, status="done", rounds=1, usage=usage, duration_ms=900.0),
        ]
        episodes += two
    start = SessionStart(
        session_id=session, cwd=f"/home/me/{number % 20}", provider="openai", model="made-up", version="1"
    )
    async with await store.create(start.cwd, session_id=session) as journal:
        await memory.add_episodes(episodes)
        await journal.append([start, *events, SessionEnd(reason="exit")])


# ---- What is measured


class Commands:
    """Runs commands of the program in a home, and other processes beside them."""

    def __init__(self, home: Path, folder: Path, address: str, python: str = sys.executable) -> None:
        self._python = python
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH") if name in os.environ}
        self._folder = folder
        self._environ = {
            **kept,
            "SATCHEL_HOME": str(home),
            "SATCHEL_MEMORY_WORKER": "off",
            "SATCHEL_MEMORY_SECOND_EMBEDDER": "none",
            "OPENAI_BASE_URL": f"{address}/v1",
            "OPENAI_API_KEY": "k",
        }

    def satchel(self, *words: str, codes: tuple[int, ...] = (0,)) -> float:
        """The CPU seconds of a command."""
        return self.python(PROGRAM, *words, codes=codes)

    def python(self, code: str, *words: str, codes: tuple[int, ...] = (0,)) -> float:
        """The CPU seconds of a few lines of Python."""
        return self.cpu([self._python, "-c", code, *words], codes)

    def cpu(self, command: list[str], codes: tuple[int, ...]) -> float:
        """User and system time of a process and what it started, in seconds."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            command, env=self._environ, cwd=self._folder, capture_output=True, text=True, check=False
        )
        if done.returncode not in codes:
            raise SystemExit(f"{command[-3:]} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    def until_first_word(self, *words: str) -> tuple[float, float]:
        """CPU and wall seconds of a command until it has written its first byte. It is killed then, before it leaves
        memory's work to a process that would be measured with what follows.
        """
        began = time.perf_counter()
        with subprocess.Popen(
            [self._python, "-c", PROGRAM, *words],
            env={**self._environ, "SATCHEL_MEMORY_WORKER": "auto"},
            cwd=self._folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            assert process.stdout is not None
            if not process.stdout.read(1):
                assert process.stderr is not None
                raise SystemExit(process.stderr.read().decode())
            wall_s = time.perf_counter() - began
            fields = Path(f"/proc/{process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
            process.kill()
        return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK"), wall_s


def write_notes(folder: Path, texts: Texts, numbers: range) -> Path:
    """Files of a hundred notes each, to import."""
    folder.mkdir(exist_ok=True)
    for number in numbers:
        sections = [f"## Note {number}-{at}\n\n{texts.some(2, 3)}\n" for at in range(100)]
        (folder / f"{number}.md").write_text("\n".join(sections), encoding="utf-8")
    return folder


def first_ask(folder: Path, memories: int, models: Path, address: str) -> dict[str, float]:
    """The first question after an import, to a home that has embedded nothing."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        home = Path(place) / "home"
        home.mkdir()
        (home / "models").symlink_to(models.resolve())
        texts = Texts(2)
        notes = write_notes(Path(place) / "notes", texts, range(memories // 100))
        run = Commands(home, Path(place), address)
        imported = run.satchel("memory", "import", str(notes))
        ask = ("ask", "--model", "openai:chain-0", "What did my father read to us aloud?")
        cpu_s, wall_s = run.until_first_word(*ask)
        again_s, _ = run.until_first_word(*ask)
    return {
        "memories": memories // 100 * 100,
        "import_cpu_s": imported,
        "ask_cpu_s": cpu_s,
        "ask_wall_s": wall_s,
        "second_ask_cpu_s": again_s,
    }


def sizes(home: Path) -> dict[str, Any]:
    """Bytes by file and by table."""
    with sqlite3.connect(home / "satchel.db") as database:
        count = database.execute("SELECT count(*) FROM memories").fetchone()[0]
        tables = dict(
            database.execute(
                "SELECT coalesce(m.tbl_name, s.name), sum(s.pgsize) FROM dbstat s "
                "LEFT JOIN sqlite_master m ON m.name = s.name GROUP BY 1"
            )
        )
        free = database.execute("PRAGMA freelist_count").fetchone()[0]
        page = database.execute("PRAGMA page_size").fetchone()[0]

    def below(path: Path) -> int:
        return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())

    files = {
        "database": (home / "satchel.db").stat().st_size,
        "journal": below(home / "journal"),
        "session_logs": below(home / "sessions"),
    }
    return {
        "count": count,
        "files": files,
        "tables": {**{name: size for name, size in tables.items() if size >= count}, "free": free * page},
    }


async def list_sessions(home: Path) -> dict[str, Any]:
    """CPU of the list of sessions, as a new process and as each page asks for it, in milliseconds."""

    async def timed(call: Callable[[], Any], rounds: int) -> float:
        times = []
        for _ in range(rounds):
            began = time.process_time()
            result = call()
            if not isinstance(result, int):
                await result
            times.append((time.process_time() - began) * 1000)
        return statistics.median(times)

    def look() -> int:
        return sum(
            entry.stat().st_size > 0 for folder in os.scandir(home / "sessions") for entry in entries(folder)
        )

    async with Database.open(home / "satchel.db") as database:
        store = SessionStore(home / "sessions", database, clock=ManualClock(BEGAN))
        first = await timed(store.list, 1)
        return {
            "sessions": len(await store.list()),
            "first_ms": first,
            "again_ms": await timed(store.list, 20),
            "look_ms": await timed(look, 20),
        }


def entries(folder: os.DirEntry[str]) -> Iterator[os.DirEntry[str]]:
    """The files of a folder."""
    if folder.is_dir():
        with os.scandir(folder) as found:
            yield from found


def look_after(home: Path, folder: Path, address: str) -> dict[str, float]:
    """CPU seconds of what looks after a home. Three memories are forgotten, the last thing of all."""
    run = Commands(home, folder, address)
    with tempfile.TemporaryDirectory(dir=folder) as place:
        copy = run.python(COPY, str(home / "satchel.db"), f"{place}/copy")
        rows = run.python(ROWS, str(home / "satchel.db"))
        export = run.satchel("memory", "export", f"{place}/export.jsonl")
        backup = run.satchel("backup", f"{place}/backup.tar.gz")
        # It ends with 1 where it finds something, such as secrets.
        doctor = run.satchel("memory", "doctor", codes=(0, 1))
    with sqlite3.connect(home / "satchel.db") as database:
        ids = [row[0] for row in database.execute("SELECT id FROM memories ORDER BY rid DESC LIMIT 3")]
    forget = statistics.median(run.satchel("memory", "forget", "--yes", id) for id in ids)
    return {
        "copy": copy,
        "rows": rows,
        "doctor": doctor,
        "forget": forget,
        "export": export,
        "backup": backup,
    }


# ---- All of it


class Results:
    """Figures by their step. A step whose figures are in the file is not measured again."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}

    def of(self, step: str, measure: Callable[[], Any]) -> None:
        """Measure what is not known."""
        if step not in self.found:
            print(f"{step} …", file=sys.stderr, flush=True)
            self.found[step] = measure()
            self._file.write_text(json.dumps(self.found, indent=1), encoding="utf-8")


def measure(memories: int, store: Path, models: Path) -> dict[str, Any]:
    """All figures."""
    results = Results(store / "results.json")
    with endpoint() as address:
        results.of("first ask", lambda: first_ask(store, memories // 5, models, address))
        for size in (memories // 20, memories * 17 // 50, memories):
            home = store / f"home-{size}"
            results.of(f"{size}: made", lambda: made(home, size, models))  # noqa: B023 - called at once
            results.of(f"{size}: bytes", lambda: sizes(home))  # noqa: B023
            results.of(f"{size}: sessions", lambda: anyio.run(list_sessions, home))  # noqa: B023
            if size > memories // 20:
                results.of(f"{size}: cpu_s", lambda: look_after(home, store, address))  # noqa: B023
    return results.found


def made(home: Path, size: int, models: Path) -> float:
    """Make a home; the CPU seconds that it took."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not (home / "models").exists():
        (home / "models").symlink_to(models.resolve())
    began = time.process_time()
    anyio.run(make_home, home, size)
    return time.process_time() - began


def table(found: dict[str, Any]) -> str:
    """The figures for people, in one table."""
    ask = found["first ask"]
    lines = [
        "| figure | value |",
        "|---|---|",
        f"| first `ask` after an import of {ask['memories']:,}: CPU until the first word | {ask['ask_cpu_s']:.2f} s |",
        f"| the second `ask`: CPU until the first word | {ask['second_ask_cpu_s']:.2f} s |",
        f"| the import: CPU | {ask['import_cpu_s']:.1f} s |",
    ]
    for size in sorted({int(step.split(":")[0]) for step in found if ":" in step}):
        has = found[f"{size}: bytes"]
        count = has["count"]
        total = sum(has["files"].values())
        lines.append(f"| {count:,} memories: bytes a memory, all files | {total / count:,.0f} |")
        lines += [f"| – {name} | {of / count:,.0f} |" for name, of in has["files"].items()]
        most = sorted(has["tables"].items(), key=lambda each: -each[1])[:8]
        lines += [f"| – – table {name} | {of / count:,.0f} |" for name, of in most]
        listed = found[f"{size}: sessions"]
        lines.append(
            f"| list of {listed['sessions']:,} sessions: CPU in a new process; again; beside one look at the files "
            f"| {listed['first_ms']:.1f} ms; {listed['again_ms']:.2f} ms; {listed['look_ms']:.2f} ms |"
        )
        cpu = found.get(f"{size}: cpu_s", {})
        for name in ("doctor", "forget", "export", "backup"):
            if name in cpu:
                lines.append(
                    f"| {name} at {count:,} memories: CPU; × a copy of the file; × a pass over the rows "
                    f"| {cpu[name]:.2f} s; {cpu[name] / cpu['copy']:.0f}; {cpu[name] / cpu['rows']:.0f} |"
                )
    lines.append(
        f"\nPython {platform.python_version()}, SQLite {sqlite3.sqlite_version}, Satchel {version('satchel')}"
    )
    return "\n".join(lines)


def main() -> None:
    """Read the arguments, run, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--memories", type=int, default=50_000, help="in the largest home")
    parser.add_argument(
        "--home", type=Path, default=Path.home() / ".satchel", help="SATCHEL_HOME, for the model"
    )
    parser.add_argument("--store", type=Path, default=None, help="keep the homes and results in this folder")
    parser.add_argument("--out", type=Path, default=None, help="also write the figures to this file, as JSON")
    arguments = parser.parse_args()
    models = fetch_weights(arguments.home, environ=dict(os.environ)).parent
    store = arguments.store or Path(tempfile.mkdtemp(prefix="satchel-year-"))
    store.mkdir(parents=True, exist_ok=True)
    try:
        found = measure(arguments.memories, store, models)
    finally:
        if arguments.store is None:
            shutil.rmtree(store)
    print(table(found))
    if arguments.out:
        arguments.out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
