"""After a scrub, no file holds what was deleted, whatever SQLite did with its pages and whoever else writes."""

from __future__ import annotations

import random
import signal
import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import Connection

from satchel.storage import Database
from satchel.storage.unused import PageFile
from tests.forking import Program
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

SEEDS = range(16)
"""SQLite alone leaves a copy with every third or so."""


def make_tables(connection: Connection) -> None:
    execute = connection.exec_driver_sql
    execute("CREATE TABLE notes (rid INTEGER PRIMARY KEY, words TEXT, pad BLOB)")
    execute("CREATE INDEX notes_words ON notes (words)")
    execute("CREATE TABLE keyed (words TEXT PRIMARY KEY, pad TEXT) WITHOUT ROWID")


def churn(connection: Connection, chance: random.Random, rounds: int) -> set[str]:
    """Add, change and delete rows of all sizes, from a few bytes to several pages; gives the words that are gone."""
    execute = connection.exec_driver_sql
    kept: list[str] = []
    gone: set[str] = set()
    for _ in range(rounds):
        words = f"marker{chance.getrandbits(48):012x}"
        size = 9_000 if chance.random() < 0.03 else chance.choice((0, 40, 300, 900))
        pad = words.encode() * (chance.randint(0, size) // len(words))
        if chance.random() < 0.85:
            execute(
                "INSERT INTO notes (rid, words, pad) VALUES (?, ?, ?)", (chance.getrandbits(30), words, pad)
            )
        else:
            execute("INSERT INTO keyed (words, pad) VALUES (?, ?)", (words, pad[:600].decode()))
        kept.append(words)
        if chance.random() < 0.5:
            words = kept.pop(chance.randrange(len(kept)))
            execute("DELETE FROM notes WHERE words = ?", (words,))
            execute("DELETE FROM keyed WHERE words = ?", (words,))
            gone.add(words)
        if chance.random() < 0.5 and kept:
            words = chance.choice(kept)
            execute(
                "UPDATE notes SET pad = ? WHERE words = ?", (words.encode() * chance.randint(0, 50), words)
            )
    return gone


def left_in(folder: Path, gone: set[str]) -> set[str]:
    """Those of the words that some file holds."""
    found = b"".join(path.read_bytes() for path in folder.iterdir())
    return {words for words in gone if words.encode() in found}


def empty_log(path: Path) -> None:
    with sqlite3.connect(path) as direct:
        direct.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    direct.close()


def is_whole(path: Path) -> bool:
    with sqlite3.connect(path) as direct:
        found = direct.execute("PRAGMA integrity_check").fetchall()
    direct.close()
    return found == [("ok",)]


@requirement("memory:forget:any-order")
async def test_nothing_that_was_deleted_is_left_in_a_page_of_any_kind(tmp_path: Path) -> None:
    left_before = 0
    for seed in SEEDS:
        folder = tmp_path / str(seed)
        folder.mkdir()
        async with Database.open(folder / "x.db") as database:
            await database.write(make_tables)
            chance = random.Random(seed)
            gone: set[str] = set()
            for _ in range(3):
                gone |= await database.write(lambda connection: churn(connection, chance, 250))  # noqa: B023
            empty_log(folder / "x.db")
            with sqlite3.connect(folder / "x.db") as direct:
                rows = [
                    direct.execute(f"SELECT * FROM {name} ORDER BY words").fetchall()
                    for name in ("notes", "keyed")
                ]
            left_before += bool(left_in(folder, gone))
            assert await database.scrub()
            assert left_in(folder, gone) == set(), seed
            with sqlite3.connect(folder / "x.db") as direct:
                assert rows == [
                    direct.execute(f"SELECT * FROM {name} ORDER BY words").fetchall()
                    for name in ("notes", "keyed")
                ]
            direct.close()
        assert is_whole(folder / "x.db")
    assert left_before


async def test_a_page_in_the_cache_of_somebody_else_brings_nothing_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cleaning = PageFile.clean
    left_before = 0
    for seed in SEEDS:
        folder = tmp_path / str(seed)
        folder.mkdir()
        path = folder / "x.db"
        async with Database.open(path) as database:
            await database.write(make_tables)
            chance = random.Random(seed)
            gone = await database.write(lambda connection: churn(connection, chance, 600))  # noqa: B023
            empty_log(path)
            left_before += bool(left_in(folder, gone))
            other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)

            def clean(self: PageFile, *args: object, **kwargs: int) -> int:
                other.execute("SELECT sum(length(words)) FROM notes NOT INDEXED").fetchall()  # noqa: B023
                return cleaning(self, *args, **kwargs)  # type: ignore[arg-type]

            monkeypatch.setattr(PageFile, "clean", clean)
            assert await database.scrub()
            # Every page of the table is written again.
            other.execute("UPDATE notes SET pad = CAST(upper(pad) AS BLOB)")
            other.close()
        assert left_in(folder, gone) == set(), seed
    assert left_before


CHURN = """
import random, sys, anyio
from satchel.storage import Database
from tests.storage.test_scrub import churn
async def main():
    async with Database.open(sys.argv[1]) as database:
        chance = random.Random(sys.argv[2])
        while True:
            gone = await database.write(lambda connection: churn(connection, chance, 20))
            print(*gone, flush=True)
anyio.run(main)
"""

SCRUB = """
import sys, anyio
from satchel.storage import Database
from satchel.storage import sqlite_file as module
module._PAGES_AT_ONCE = 2
async def main():
    async with Database.open(sys.argv[1]) as database:
        await database.expect_scrub()
        print("begins", flush=True)
        while True:
            await database.scrub()
            await database.expect_scrub()
anyio.run(main)
"""


@requirement("memory:forget:any-order")
async def test_others_write_while_it_is_scrubbed_and_what_they_delete_goes_with_the_next_scrub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("satchel.storage.sqlite_file._PAGES_AT_ONCE", 8)
    path = tmp_path / "x.db"
    async with Database.open(path) as database:
        await database.write(make_tables)
        chance = random.Random(1)
        gone = await database.write(lambda connection: churn(connection, chance, 600))
        with Program("-c", CHURN, path, 5) as writer:
            deleted = set(writer.stdout.readline().split())
            scrubbed = [await database.scrub() for _ in range(3)]
            # What was deleted before a scrub is gone after it, though somebody writes all the time.
            if any(scrubbed):
                assert left_in(tmp_path, gone) == set()
            writer.send_signal(signal.SIGKILL)
            deleted |= {words for line in writer.stdout for words in line.split()}
        assert any(scrubbed)
        assert len(deleted) > 20
        assert await database.scrub()
        assert left_in(tmp_path, gone | deleted) == set()
    assert is_whole(path)


@requirement("memory:forget:killed-scrub")
async def test_a_scrub_that_is_killed_at_any_moment_leaves_a_whole_database_and_is_done_again(
    tmp_path: Path,
) -> None:
    path = tmp_path / "x.db"
    async with Database.open(path) as database:
        await database.write(make_tables)
    chance = random.Random(11)
    due = 0
    for _ in range(6):
        async with Database.open(path) as database:
            gone = await database.write(lambda connection: churn(connection, chance, 200))
        with Program("-c", SCRUB, path) as scrubber, Program("-c", CHURN, path, chance.random()) as writer:
            scrubber.stdout.readline()
            for _ in range(chance.randrange(4)):
                gone |= set(writer.stdout.readline().split())
            scrubber.send_signal(signal.SIGKILL)
            writer.send_signal(signal.SIGKILL)
        assert is_whole(path)
        async with Database.open(path) as database:
            # It may have been killed between two scrubs.
            due += database.is_scrub_due
            assert await database.scrub()
            assert not database.is_scrub_due
        assert left_in(tmp_path, gone) == set()
    assert due
