"""What an earlier state of the program and this one cost: the same figures of both, measured in turns.

    python benchmarks/before_after.py --before CHECKOUT/.venv/bin/python [--store FOLDER] [--home FOLDER]

Each state is the program of a Python environment of its own. Both have homes with the same content, made through their
own public surfaces: chats over HTTP, and folders of notes for `satchel memory import`. What is measured is the server,
or a command in a process of its own; the two take turns, and each is first in turn. CPU is user and system time. The
load of the machine is printed, too.

- Chats and lists: the server of `server.py`, with its scripted model and hashing embedder. 200 chats at once, three
  times, in a home that is empty at first. The lists are views of `GET /sessions`, the page, and of `GET /api/sessions`.
- First `ask`: `satchel memory import` of 10,000 notes, then the question to a new copy of that home, with the embedding
  model and a scripted endpoint on loopback, until the first byte of the answer. The first `memory search` runs to its
  end. Bytes of a memory are of a home with 2,000 notes after `satchel memory reindex`: real vectors, all files
  but the model.
- 17,000 and 50,000 memories: notes are imported into the home of the 2,000 conversations. Their vectors are random and
  have the form of the embedding model's, as in `year.py`.

`--store` keeps homes and results, so that a run that was ended goes on where it stopped. Give other states another one.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from loopback import endpoint
from memory_search import MadeUp
from server import Server, chats, started
from year import Commands, Results, Texts, write_notes

from satchel.memory import Memory
from satchel.models.embedding import fetch_weights
from satchel.models.embedding.records import MINILM
from satchel.storage import Database

AT_ONCE = 200
FEW, MANY = 100, 2_000
IMPORTED = 10_000
EMBEDDED = 2_000
"""Notes with real vectors, for the bytes of a memory."""
SIZES = {17_000: 3, 50_000: 1}
"""Memories, and how often each command is measured there."""
ROUNDS = 3
VIEWS = 40
LISTS = ("/sessions", "/api/sessions?limit=30")


@dataclass(frozen=True)
class State:
    """A state of the program: its name in the table, its Python, and the folder of its homes."""

    name: str
    python: str
    folder: Path

    @property
    def year(self) -> Path:
        """The home with the conversations."""
        return self.folder / "home"

    @property
    def imported(self) -> Path:
        """The home into which notes were imported, and nothing else."""
        return self.folder / "imported"


def in_turns(
    states: list[State], measure: Callable[[State, int], float], rounds: int = ROUNDS
) -> dict[str, list[float]]:
    """The figures of each state, round by round."""
    found: dict[str, list[float]] = {state.name: [] for state in states}
    for number in range(rounds):
        for state in states[:: -1 if number % 2 else 1]:
            found[state.name].append(measure(state, number))
    return found


@contextmanager
def serving(states: list[State], *, kept: bool) -> Iterator[dict[str, Server]]:
    """A server of each state, with its home or an empty one."""
    with ExitStack() as stack:
        yield {
            state.name: stack.enter_context(
                started("satchel", python=state.python, folder=state.folder if kept else None)
            )
            for state in states
        }


def talk(states: list[State]) -> dict[str, list[float]]:
    """CPU of a chat, in milliseconds."""
    with serving(states, kept=False) as servers:
        return in_turns(
            states, lambda state, _: anyio.run(chats, servers[state.name], AT_ONCE)["cpu_ms_each"]
        )


def list_conversations(states: list[State]) -> dict[str, dict[str, list[float]]]:
    """CPU of a view of the lists, in milliseconds."""

    async def view(server: Server, path: str) -> float:
        async with server.client() as client:
            cpu_s = server.cpu_s
            for _ in range(VIEWS):
                assert (await client.get(path)).status_code == 200
            return (server.cpu_s - cpu_s) * 1000 / VIEWS

    found: dict[str, dict[str, list[float]]] = {}
    with serving(states, kept=True) as servers:
        held = 0
        for count in (FEW, MANY):
            for at in range(held, count, AT_ONCE):
                for server in servers.values():
                    anyio.run(chats, server, min(AT_ONCE, count - at))
            held = count
            for path in LISTS:
                found[f"`GET {path}` with {count:,} conversations"] = in_turns(
                    states,
                    lambda state, _: anyio.run(view, servers[state.name], path),  # noqa: B023 - called at once
                )
    return found


def bytes_each(home: Path) -> float:
    """Bytes of all files of a home but the models, for each memory."""
    files = (file for file in home.rglob("*") if file.is_file() and "models" not in file.parts)
    return sum(file.stat().st_size for file in files) / count_of(home)


def link_models(home: Path, models: Path) -> None:
    """Give a home the embedding model. A program may write into the folder that it lies in."""
    (home / "models").mkdir(exist_ok=True, parents=True)
    with suppress(FileExistsError):
        (home / "models" / models.name).symlink_to(models)


def count_of(home: Path) -> int:
    """The memories of a home."""
    with sqlite3.connect(home / "satchel.db") as database:
        return int(database.execute("SELECT count(*) FROM memories").fetchone()[0])


def after_import(
    states: list[State], models: Path, address: str, folder: Path
) -> dict[str, dict[str, list[float]]]:
    """What follows an import, in CPU seconds."""

    def bring(state: State, count: int) -> float:
        notes = write_notes(folder / f"notes-{count}", Texts(2), range(count // 100))
        shutil.rmtree(state.imported, ignore_errors=True)
        link_models(state.imported, models)
        run = Commands(state.imported, folder, address, state.python)
        return run.satchel("memory", "import", "--yes", str(notes))

    def embed(state: State) -> float:
        bring(state, EMBEDDED)
        Commands(state.imported, folder, address, state.python).satchel("memory", "reindex")
        return bytes_each(state.imported)

    def anew(state: State) -> Commands:
        home = state.folder / "copy"
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(state.imported, home, symlinks=True)
        return Commands(home, folder, address, state.python)

    question = "What did my father read to us aloud?"
    walls: dict[str, list[float]] = {state.name: [] for state in states}

    def ask(state: State, _: int) -> float:
        cpu_s, wall_s = anew(state).until_first_word("ask", "--model", "openai:chain-0", question)
        walls[state.name].append(wall_s)
        return cpu_s

    return {
        "import": in_turns(states, lambda state, _: bring(state, IMPORTED)),
        "ask": in_turns(states, ask),
        "ask, wall": walls,
        "search": in_turns(
            states, lambda state, _: anew(state).satchel("memory", "search", question), rounds=1
        ),
        "bytes": in_turns(states, lambda state, _: embed(state), rounds=1),
    }


async def embed_at_random(home: Path) -> None:
    """Give the memories of a home random vectors. Run by each state."""
    embedder = MadeUp(tokens=True)
    embedder.info = MINILM
    async with (
        Database.open(home / "satchel.db") as database,
        Memory.open(database, embedder=embedder, second_embedder="none", home=home) as memory,
    ):
        await memory.embed_pending()


def grow(states: list[State], size: int, models: Path, address: str, folder: Path) -> dict[str, int]:
    """Import until there are so many memories."""
    for state in states:
        link_models(state.year, models)
        first = count_of(state.year) // 100
        notes = write_notes(folder / f"notes-{size}-{state.name}", Texts(size), range(first, size // 100))
        run = Commands(state.year, folder, address, state.python)
        run.satchel("memory", "import", "--yes", str(notes))
        subprocess.run([state.python, __file__, "--vectors", str(state.year)], check=True)
        run.satchel("memory", "reindex", "--drop-old")
    return {state.name: count_of(state.year) for state in states}


def look_after(
    states: list[State], rounds: int, address: str, folder: Path
) -> Iterator[tuple[str, Callable[[], dict[str, list[float]]]]]:
    """What measures each command that looks after a home, in CPU seconds. The last thing of all is to forget."""
    with sqlite3.connect(states[0].year / "satchel.db") as database:
        asked = "SELECT id FROM memories WHERE id LIKE 'i%' ORDER BY id LIMIT ?"
        ids = [row[0] for row in database.execute(asked, (rounds,))]

    def run(state: State, words: list[str]) -> float:
        for left in (*folder.glob("export.*"), *folder.glob("backup.*")):
            left.unlink()
        # The doctor ends with 1 where it finds something.
        return Commands(state.year, folder, address, state.python).satchel(*words, codes=(0, 1))

    yield "bytes", lambda: in_turns(states, lambda state, _: bytes_each(state.year), rounds=1)
    for words in (
        ["memory", "doctor"],
        ["memory", "export", f"{folder}/export.jsonl"],
        ["backup", f"{folder}/backup.tar.gz"],
    ):
        name = " ".join(word for word in words if "/" not in word)
        yield name, lambda: in_turns(states, lambda state, _: run(state, words), rounds)  # noqa: B023
    forget = ["memory", "forget", "--yes"]
    yield "memory forget", lambda: in_turns(states, lambda state, at: run(state, [*forget, ids[at]]), rounds)


def table(found: dict[str, Any]) -> str:
    """The figures in one table: medians."""
    lines = ["| figure | before | after | after / before |", "|---|---|---|---|"]

    def row(name: str, values: dict[str, list[float]], form: str, unit: str) -> None:
        before, after = (statistics.median(values[state]) for state in ("before", "after"))
        lines.append(f"| {name} | {before:{form}}{unit} | {after:{form}}{unit} | {after / before:.2f} |")

    first = found["after import"]
    row(f"first `ask` after an import of {IMPORTED:,}: CPU until the first word", first["ask"], ".2f", " s")
    row("the same, wall", first["ask, wall"], ".2f", " s")
    row("first `memory search` there: CPU", first["search"], ".2f", " s")
    row("the import: CPU", first["import"], ".1f", " s")
    row(f"bytes a memory, {EMBEDDED:,} notes with real vectors", first["bytes"], ",.0f", "")
    row(f"a chat, {AT_ONCE} at once: CPU", found["chats"], ".1f", " ms")
    for name, values in found["lists"].items():
        row(f"{name}: CPU of a view", values, ".1f", " ms")
    for size in SIZES:
        row(f"{size:,} memories: bytes a memory, all files", found[f"{size}: bytes"], ",.0f", "")
        for name in ("memory doctor", "memory export", "backup", "memory forget"):
            row(f"{size:,} memories: `{name}`, CPU", found[f"{size}: {name}"], ".1f", " s")
    loads = [value for step in found["load"].values() for value in step]
    lines.append(f"\nLoad of the machine, {os.cpu_count()} cores: {min(loads):.1f} to {max(loads):.1f}.")
    return "\n".join(lines)


def main() -> None:
    """Read the arguments, run, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--before", default="", help="the Python of the earlier state")
    parser.add_argument("--after", default=sys.executable, help="the Python of the later one; this one")
    parser.add_argument(
        "--home", type=Path, default=Path.home() / ".satchel", help="SATCHEL_HOME, for the model"
    )
    parser.add_argument("--store", type=Path, default=Path("before-after"), help="for homes and results")
    parser.add_argument("--vectors", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.vectors:
        anyio.run(embed_at_random, arguments.vectors)
        return
    models = fetch_weights(arguments.home, environ=dict(os.environ)).resolve()
    store: Path = arguments.store
    states = [
        State(name, python, store / name)
        for name, python in (("before", arguments.before), ("after", arguments.after))
    ]
    for state in states:
        state.folder.mkdir(parents=True, exist_ok=True)
    results = Results(store / "results.json")
    loads = results.found.setdefault("load", {})

    def step(name: str, measure: Callable[[], Any]) -> None:
        began = os.getloadavg()[0]
        results.of(name, lambda: (measure(), loads.update({name: (began, os.getloadavg()[0])}))[0])

    with endpoint() as address:
        step("chats", lambda: talk(states))
        step("lists", lambda: list_conversations(states))
        step("after import", lambda: after_import(states, models, address, store))
        for size, rounds in SIZES.items():
            step(f"{size}: made", lambda: grow(states, size, models, address, store))  # noqa: B023
            for name, measured in look_after(states, rounds, address, store):
                step(f"{size}: {name}", measured)
    print(table(results.found))


if __name__ == "__main__":
    main()
