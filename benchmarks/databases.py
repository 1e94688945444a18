"""What a PostgreSQL server costs beside a file, and how far one server goes: CPU time, and wall time beside it.

    python benchmarks/databases.py postgresql://USER@HOST/NAME [--memories 100000] [--users 1000] [--servers 4]

Without options, storing and searching by words, here and in a file. With `--memories` and `--users`, searching by words
and meaning among so many memories of one user, and of so many users with 1,000 memories each, in turns with a bare
numpy product of the same size. Texts and vectors are those of `memory_search.py`. The first user's memories are stored
as usual and copied to the others, row by row; `opened` is opening a user's store and the first search in it. With
`--servers`, chats on one to so many servers with one database and key, each like `satchel serve`, with the scripted
model and the hashing embedder of `server.py`; the last row is one server again, on what has grown meanwhile.

The rows stay, and a second run measures them again; but `--servers` wants an empty database. The server's CPU time is
that of the processes that live, and only where it runs on this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

# One thread for the baseline and for the search, as in `memory_search.py`.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import anyio
import numpy as np
import psycopg
from memory_search import TURNS, MadeUp, Times, made_up_texts
from server import chat, started

from satchel.memory import Episode, Memory
from satchel.memory.store.tables import memories, tokens, vectors, words
from satchel.storage import Database

STORED = 1_000
SEARCHES = 200
EACH = 1_000
"""Memories of each of many users."""
FIRST_COPY = 1_000_000_000
"""The number of the first copied row: beyond those that the database gives out."""
AT_ONCE = 16
WORDS = [
    "boiler",
    "plumber",
    "harbour",
    "kitchen",
    "ticket",
    "garden",
    "invoice",
    "dentist",
    "cellar",
    "violin",
]


def server_s(where: str) -> float:
    """The CPU time of the processes that serve clients of this database, if the server runs on this machine."""
    ticks = 0
    with psycopg.connect(where) as connection:
        for (pid,) in connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND backend_type = 'client backend'"
        ):
            with suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
                ticks += sum(map(int, fields[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


async def calls(where: str, server: str) -> dict[str, tuple[float, float]]:
    """Milliseconds of CPU for each call: this process's and the server's."""
    found: dict[str, tuple[float, float]] = {}
    async with Memory.open(where, embedder="none", user=f"calls {time.time_ns()}") as memory:
        for what, count in (("add", STORED), ("search", SEARCHES)):
            own, other = time.process_time(), server_s(server)
            for number in range(count):
                first, second = WORDS[number % 10], WORDS[number // 10 % 10]
                if what == "add":
                    await memory.add(f"The {first} beside the {second} has the number {number}.")
                else:
                    await memory.search(f"{first} {second} {number}")
            found[what] = (
                (time.process_time() - own) / count * 1000,
                (server_s(server) - other) / count * 1000,
            )
    return found


def opened(database: Database, user: str) -> Any:
    """A user's memories, with an embedder that costs nothing."""
    return Memory.open(
        database, embedder=MadeUp(tokens=True), second_embedder="none", user=user, back_fill=False
    )


async def fill(database: Database, user: str, size: int) -> None:
    """Store so many memories of a user, each with its vectors, unless they are there."""
    async with opened(database, user) as memory:
        said = [
            Episode(session=f"s{at // TURNS}", turn=at % TURNS, speaker=("Ann", "Bob")[at % 2], text=text)
            for at, text in enumerate(made_up_texts(size))
        ]
        for at in range((await memory.stats()).memories, size, 500):
            await memory.add_episodes(said[at : at + 500])
        await memory.embed_pending()


def copy(where: str, count: int) -> None:
    """Give so many users what the first one has."""
    with psycopg.connect(where, autocommit=True) as connection:
        for number in range(1, count):
            with connection.transaction():
                space = connection.execute(
                    "INSERT INTO memory_spaces (user_id, scope, changed) SELECT %s, scope, changed FROM memory_spaces"
                    " WHERE user_id = 'user 0' ON CONFLICT DO NOTHING RETURNING id",
                    [f"user {number}"],
                ).fetchone()
                for table in (memories, words, vectors, tokens) if space else ():
                    names = [column.name for column in table.columns]
                    given = [
                        {"rid": f"rid + {FIRST_COPY + 10 * number * EACH}", "space_id": "%(space)s"}.get(
                            name, name
                        )
                        for name in names
                    ]
                    connection.execute(
                        f"INSERT INTO {table.name} ({', '.join(names)}) SELECT {', '.join(given)} FROM {table.name}"
                        " WHERE rid IN (SELECT rid FROM memories JOIN memory_spaces s ON s.id = space_id"
                        " WHERE user_id = 'user 0')".encode(),
                        {"space": space[0] if space else 0},
                    )
        connection.execute("ANALYZE")


async def searches(where: str, users: list[str], size: int) -> dict[str, Any]:
    """Search the memories of each user, as often in all as `SEARCHES`, in turns with a bare product."""
    firsts, warm, bare = Times(), Times(), Times()
    asked = [" ".join(text.split()[:7]) for text in made_up_texts(size + SEARCHES + 1)[size:]]
    matrix = await MadeUp(tokens=False).embed([""] * size, "document")
    queries = await MadeUp(tokens=False).embed(asked, "query")

    async def product(number: int) -> None:
        np.argpartition(matrix @ queries[number], -10)[-10:]

    await product(0)
    first_s = warm_s = 0.0
    async with Database.open(where) as database:
        for place, user in enumerate(users):
            before_s = server_s(where)
            memory_of = opened(database, user)

            async def open_and_search(memory_of: Any = memory_of) -> Memory:
                memory: Memory = await memory_of.__aenter__()
                await memory.search(asked[-1])
                return memory

            kept: list[Memory] = []

            async def first(kept: list[Memory] = kept, begin: Any = open_and_search) -> None:
                kept.append(await begin())

            try:
                await firsts.of(first())
                between_s = server_s(where)
                for number in range(place, SEARCHES, len(users)):
                    await bare.of(product(number))
                    await warm.of(kept[0].search(asked[number]))
                first_s, warm_s = first_s + between_s - before_s, warm_s + server_s(where) - between_s
            finally:
                await memory_of.__aexit__(None, None, None)
    return {
        "bare_product": bare.summary(),
        "search": warm.summary() | {"server_cpu_ms": round(warm_s / SEARCHES * 1000, 2)},
        "opened": firsts.summary() | {"server_cpu_ms": round(first_s / len(users) * 1000, 2)},
    }


async def chats(where: str, homes: list[Path], count: int) -> dict[str, Any]:
    """So many chats, some at once, at a server for each home."""
    with ExitStack() as stack:
        servers = []
        for home in homes:
            (home / "home").mkdir(mode=0o700, parents=True, exist_ok=True)
            if home != homes[0]:
                for file in ("forgotten.key", "token"):
                    shutil.copy(homes[0] / "home" / file, home / "home")
            servers.append(stack.enter_context(started("satchel", folder=home, database=where)))
        clients = [server.client() for server in servers]
        for client in clients:
            await chat(client, 0)

        async def some(place: int) -> None:
            for number in range(place + 1, count + 1, AT_ONCE):
                await chat(clients[place % len(clients)], number)

        def spent() -> list[float]:
            return [time.process_time(), sum(server.cpu_s for server in servers), server_s(where)]

        before, began = spent(), time.perf_counter()
        async with anyio.create_task_group() as group:
            for place in range(AT_ONCE):
                group.start_soon(some, place)
        wall_s, after = time.perf_counter() - began, spent()
        for client in clients:
            await client.aclose()
    names = ("client_cpu_ms", "satchel_cpu_ms", "postgresql_cpu_ms")
    each = [round((late - early) / count * 1000, 1) for early, late in zip(before, after, strict=True)]
    return {"servers": len(homes), "chats_per_s": round(count / wall_s, 1)} | dict(
        zip(names, each, strict=True)
    )


async def many(options: argparse.Namespace) -> None:
    """Print what was asked for, a line of JSON each."""
    where = options.where
    print(json.dumps({"load_1min": round(os.getloadavg()[0], 1)}), flush=True)
    if options.memories or options.users:
        async with Database.open(where) as database:
            if options.users:
                await fill(database, "user 0", EACH)
                copy(where, options.users)
            if options.memories:
                await fill(database, "one", options.memories)
    if options.memories:
        print(json.dumps({"memories": options.memories} | await searches(where, ["one"], options.memories)))
    if options.users:
        users = [
            f"user {number}" for number in range(0, options.users, max(1, options.users // SEARCHES * 2))
        ]
        print(json.dumps({"users": options.users} | await searches(where, users, EACH)), flush=True)
    with TemporaryDirectory() as folder:
        homes = [Path(folder) / str(number) for number in range(options.servers)]
        for count in (*range(1, len(homes) + 1), 1)[: len(homes) + bool(homes)]:
            print(json.dumps(await chats(where, homes[:count], options.chats)), flush=True)
    print(json.dumps({"load_1min": round(os.getloadavg()[0], 1)}))


def main() -> None:
    """Print a table, or what was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("where")
    for name, default in (("memories", 0), ("users", 0), ("servers", 0), ("chats", 200)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    if options.memories or options.users or options.servers:
        anyio.run(many, options)
        return
    with TemporaryDirectory() as folder:
        file = anyio.run(calls, str(Path(folder) / "m.db"), options.where)
    server = anyio.run(calls, options.where, options.where)
    print(f"{'CPU ms a call':>14} {'file':>8} {'client':>8} {'ratio':>6} {'server':>8}")
    for what, (base, _) in file.items():
        own, other = server[what]
        print(f"{what:>14} {base:8.2f} {own:8.2f} {own / base:6.2f} {other:8.2f}")


if __name__ == "__main__":
    main()
