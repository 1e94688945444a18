"""A migration that two processes begin, or that finds the disk full; a process that dies before its scrub."""

from __future__ import annotations

import shutil
import signal
import sqlite3
from pathlib import Path
from types import SimpleNamespace

import pytest

from satchel.errors import StorageError
from satchel.storage import HEAD, REVISIONS, Database
from tests.forking import Program, run_python
from tests.requirements import requirement
from tests.storage.test_database import make_old, rows

pytestmark = pytest.mark.anyio

OPEN = """
import resource, sys, anyio
from satchel.errors import StorageError
from satchel.storage import Database
async def main():
    try:
        async with Database.open(sys.argv[1]) as database:
            print((await database.doctor()).revision)
    except StorageError as error:
        print(type(error).__name__, error)
limit = int(sys.argv[2])
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
anyio.run(main)
"""


def opening(path: Path, *, limit_bytes: int = 0) -> Program:
    return Program("-c", OPEN, path, limit_bytes)


@requirement("storage:migrations:two-at-once")
async def test_two_processes_that_open_an_old_database_at_once_both_get_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "satchel.db"
    make_old(path, REVISIONS[0])
    opened = [opening(path) for _ in range(3)]
    assert [process.communicate(timeout=280) for process in opened] == [(f"{HEAD}\n", "")] * 3
    async with Database.open(path) as database:
        assert await database.read(rows) == ["kept"]
        assert (await database.doctor()).problems == ()


KILLED = """
import os, signal, sys
import anyio
from satchel.storage import Database, sqlite

look = sqlite.look
def killed(path, **more):
    if ".backup" in path.name:
        os.kill(os.getpid(), signal.SIGKILL)
    return look(path, **more)
sqlite.look = killed

async def main():
    async with Database.open(sys.argv[1]):
        pass
anyio.run(main)
"""


@requirement("storage:migrations:backup")
async def test_an_upgrade_keeps_one_backup_and_nothing_of_one_that_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "satchel.db"
    make_old(path, REVISIONS[0])
    killed = run_python(KILLED, path)
    assert killed.returncode == -signal.SIGKILL
    [part] = tmp_path.glob("*.backup*")
    assert ".backup.part-" in part.name
    earlier = tmp_path / "satchel.db.before-0003_x-20250101-000000.backup"
    earlier.write_bytes(b"old")
    own = tmp_path / "satchel.db.before-my-holiday.backup-of-mine"
    own.write_bytes(b"the user's")
    async with Database.open(path) as database:
        assert await database.read(rows) == ["kept"]
    assert own.read_bytes() == b"the user's"
    [backup] = tmp_path.glob("*.backup")
    assert backup not in (part, earlier)
    assert not part.exists()
    with sqlite3.connect(backup) as copy:
        assert copy.execute("SELECT user_id FROM memory_spaces").fetchall() == [("kept",)]


KILLED_IN_THE_MIDDLE = """
import os, signal, sys
import anyio
from sqlalchemy import event
from sqlalchemy.engine import Engine
from satchel.storage import Database

left = int(sys.argv[2])
@event.listens_for(Engine, "before_cursor_execute")
def count(*_):
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)

async def main():
    async with Database.open(sys.argv[1]):
        pass
anyio.run(main)
"""


@requirement("storage:migrations:backup")
async def test_an_upgrade_that_is_killed_before_any_statement_loses_nothing_and_the_next_start_finishes_it(
    tmp_path: Path,
) -> None:
    killed = 0
    while True:
        path = tmp_path / str(killed) / "satchel.db"
        path.parent.mkdir()
        make_old(path, REVISIONS[0])
        ran = run_python(KILLED_IN_THE_MIDDLE, path, 3**killed)
        async with Database.open(path) as database:
            assert await database.read(rows) == ["kept"]
            report = await database.doctor()
            assert (report.revision, report.problems) == (HEAD, ())
        assert len([*path.parent.glob("*.backup*")]) == 1
        if ran.returncode == 0:
            break
        assert ran.returncode == -signal.SIGKILL
        killed += 1
    assert killed > 3  # the upgrade has more than 3³ statements


@requirement("storage:migrations:full")
async def test_an_upgrade_without_room_for_its_backup_says_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "satchel.db"
    make_old(path, REVISIONS[0])
    before = path.read_bytes()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1))
    with pytest.raises(StorageError, match=r"needs [0-9,.]+ MB beside it for a backup.*Nothing was changed"):
        async with Database.open(path):
            pass
    assert path.read_bytes() == before
    assert not [*tmp_path.glob("*.backup*")]


@requirement("storage:migrations:full")
async def test_a_disk_that_fills_during_a_migration_loses_nothing(tmp_path: Path) -> None:
    """A limit on the size of files stands for the full disk: the backup meets it, or the migration's log."""
    path = tmp_path / "satchel.db"
    make_old(path, REVISIONS[0])
    with sqlite3.connect(path) as direct:
        direct.executemany(
            "INSERT INTO memory_spaces (user_id, scope, changed) VALUES (?, ?, 0)",
            [(f"user {n}", "x" * 1_000) for n in range(200)],
        )
    direct.close()
    size = path.stat().st_size
    attempts = [size // 4, size * 3 // 4, size + 20_000]
    for limit in attempts:
        out, error = opening(path, limit_bytes=limit).communicate(timeout=280)
        assert error == ""
        assert out.startswith(("Storage", HEAD)), out
        with sqlite3.connect(path) as direct:
            assert direct.execute("SELECT count(*) FROM memory_spaces").fetchone() == (201,)
            assert direct.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        direct.close()
        if limit == attempts[0]:
            assert "full" in out or "space" in out, out
    async with Database.open(path) as database:
        assert len(await database.read(rows)) == 201
        assert (await database.doctor()).revision == HEAD


DIE = """
import os, sys, anyio
from satchel.memory import Memory
from satchel.storage.sqlite_file import SqliteDatabase
async def dead(self): os.kill(os.getpid(), 9)
async def main():
    async with Memory.open(sys.argv[1], embedder="none") as memory:
        for n in range(50): await memory.add(f"Note {n}: the heron nests by the mill, marker7777.")
        SqliteDatabase.scrub = dead
        await memory.forget(query="marker7777")
anyio.run(main)
"""


@requirement("memory:forget:killed-scrub")
async def test_a_process_that_dies_before_its_scrub_leaves_no_words_once_the_store_is_opened_again(
    tmp_path: Path,
) -> None:
    from satchel.memory import Memory  # noqa: PLC0415 - the room above: what is tested here is its file

    path = tmp_path / "m.db"
    done = run_python(DIE, path)
    assert (done.returncode, done.stderr) == (-9, "")
    async with Memory.open(path, embedder="none") as memory:
        assert await memory.count() == 0
        assert [
            file.name for file in tmp_path.rglob("*") if file.is_file() and b"marker7777" in file.read_bytes()
        ] == []
    assert sorted(file.name for file in tmp_path.iterdir()) == ["forgotten.key", "m.db"]
