from __future__ import annotations

import errno
import hashlib
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from satchel.errors import (
    ConfigError,
    StorageCorrupt,
    StorageError,
    StorageLocked,
    StorageTooNew,
    StorageUnwritable,
)
from satchel.storage import HEAD, REVISIONS, Database, migrate, sqlite
from satchel.storage.failures import explain, explain_os
from tests.requirements import requirement

pytestmark = pytest.mark.anyio


def rows(connection: Connection) -> list[str]:
    return list(connection.exec_driver_sql("SELECT user_id FROM memory_spaces ORDER BY id").scalars())


def insert(name: str) -> Any:
    def write(connection: Connection) -> None:
        connection.exec_driver_sql(
            "INSERT INTO memory_spaces (user_id, scope, changed) VALUES (?, 'default', 0)", (name,)
        )

    return write


def fingerprint(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Another process's write lock, as far as SQLite can tell."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


def make_old(path: Path, revision: str) -> None:
    """A database as an older program left it, with one row."""
    sqlite.create_file(path)
    engine = sqlite.make_engine(str(path), busy_timeout_ms=1000)
    with engine.connect() as connection, connection.begin():
        command.upgrade(migrate.alembic_config(connection), revision)
        insert("kept")(connection)
    engine.dispose()


@requirement("storage:sqlite:wal")
async def test_a_new_database_is_private_and_runs_with_a_write_ahead_log_and_foreign_keys(
    tmp_path: Path,
) -> None:
    path = tmp_path / "deep" / "satchel.db"
    async with Database.open(path) as database:

        def pragmas(connection: Connection) -> list[object]:
            names = ("journal_mode", "synchronous", "foreign_keys", "secure_delete", "busy_timeout")
            return [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in names]

        assert await database.read(pragmas) == ["wal", 1, 1, 1, 1000]
        assert await database.write(pragmas) == ["wal", 1, 1, 1, 1000]
        modes = {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in path.parent.iterdir()}
        assert modes == {"satchel.db": 0o600, "satchel.db-shm": 0o600, "satchel.db-wal": 0o600}
        report = await database.doctor()
    assert (report.place, report.revision, report.problems) == (str(path), HEAD, ())
    assert [entry.name for entry in path.parent.iterdir()] == ["satchel.db"]


async def test_the_list_of_revisions_is_the_chain_of_migrations() -> None:
    with sqlite.make_engine(":memory:", busy_timeout_ms=1000).connect() as connection:
        scripts = ScriptDirectory.from_config(migrate.alembic_config(connection))
    assert [script.revision for script in reversed(list(scripts.walk_revisions()))] == list(REVISIONS)


def dump(connection: Connection) -> str:
    """All of a database as SQL."""
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    return "\n".join(driver.iterdump())


async def test_a_new_database_is_what_the_migrations_make() -> None:
    async with Database.open(":memory:") as database:
        made = await database.read(dump)
    engine = sqlite.make_engine(":memory:", busy_timeout_ms=1000)
    with engine.connect() as connection, connection.begin():
        command.upgrade(migrate.alembic_config(connection), HEAD)
        migrated = dump(connection)
    engine.dispose()
    assert made == migrated, "run scripts/newest_schema.py"


async def test_a_database_that_is_new_or_up_to_date_opens_without_alembic(tmp_path: Path) -> None:
    program = (
        "import sys, anyio\n"
        "from satchel.storage import Database\n"
        "async def main():\n"
        "    async with Database.open(sys.argv[1]): pass\n"
        "anyio.run(main)\n"
        "print('alembic' in sys.modules)\n"
    )
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path / "satchel.db")],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout == "False\n"


@requirement("storage:migrations:backup", "storage:migrations:oldest")
async def test_the_oldest_database_is_upgraded_after_a_backup_and_keeps_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "satchel.db"
    make_old(path, REVISIONS[0])
    async with Database.open(path) as database:
        assert await database.read(rows) == ["kept"]
        assert (await database.doctor()).revision == HEAD
    backups = list(tmp_path.glob("*.backup"))
    if len(REVISIONS) == 1:
        assert backups == []
        return
    assert [backup.name.startswith(f"satchel.db.before-{HEAD}-") for backup in backups] == [True]
    assert stat.S_IMODE(backups[0].stat().st_mode) == 0o600
    with sqlite3.connect(backups[0]) as copy:
        assert copy.execute("SELECT user_id FROM memory_spaces").fetchall() == [("kept",)]
        assert copy.execute("SELECT version_num FROM alembic_version").fetchall() == [(REVISIONS[0],)]
    copy.close()


@requirement("storage:migrations:backup")
@pytest.mark.parametrize("statement", ["DELETE FROM memory_spaces", "DROP TABLE memory_words"])
async def test_an_upgrade_that_would_lose_rows_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    path = tmp_path / "satchel.db"
    make_old(path, REVISIONS[0])
    with sqlite3.connect(path) as direct:
        direct.execute(
            "INSERT INTO memories (id, space_id, kind, content, content_hash, tier, memory_type, importance, priority,"
            " decay_rate, speaker, said_at, said_offset_min, trust, created_at, changed) VALUES"
            " ('m', 1, 'fact', 'x', '', 'long_term', 'fact', 3, 0.5, 0, '', 0, 0, 'user', 0, 1)"
        )
        direct.execute(
            "INSERT INTO memory_words (rid, version, words, features, stems) VALUES (1, 1, 1, 0, x'')"
        )
    direct.close()

    def lossy(config: Any, to: str) -> None:
        config.attributes["connection"].exec_driver_sql(statement)

    monkeypatch.setattr(command, "upgrade", lossy)
    monkeypatch.setattr("satchel.storage.schema.REVISIONS", (*REVISIONS, "9999_later"))
    monkeypatch.setattr("satchel.storage.sqlite_file.HEAD", "9999_later")
    with pytest.raises(StorageError, match="would have lost rows"):
        async with Database.open(path):
            pass
    monkeypatch.undo()
    async with Database.open(path) as database:
        assert await database.read(rows) == ["kept"]


async def test_an_upgrade_may_empty_what_it_says_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "satchel.db"
    make_old(path, "0004_lifecycle")
    with sqlite3.connect(path) as direct:
        direct.executescript(
            "INSERT INTO memories (id, space_id, kind, content, content_hash, tier, memory_type, importance, priority,"
            " decay_rate, speaker, said_at, said_offset_min, trust, created_at, changed) VALUES"
            " ('m', 1, 'fact', 'x', '', 'long_term', 'fact', 3, 0.5, 0, '', 0, 0, 'user', 0, 1);"
            "INSERT INTO embedding_models (id, name, dimension, state, created_at) VALUES (1, 'old', 1, 'active', 0);"
            "INSERT INTO memory_vectors (rid, model_id, space_id, changed, vectors) VALUES (1, 1, 1, 1, x'00000000')"
        )
    direct.close()
    async with Database.open(path) as database:
        assert await database.read(rows) == ["kept"]
        assert (await database.doctor()).revision == HEAD


@requirement("storage:migrations:newer")
async def test_a_database_of_a_newer_program_is_refused_and_not_a_byte_of_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "satchel.db"
    async with Database.open(path) as database:
        await database.write(
            lambda connection: connection.exec_driver_sql(
                "UPDATE alembic_version SET version_num = '9999_from_the_future'"
            )
        )
    before = fingerprint(tmp_path)
    with pytest.raises(StorageTooNew, match=r"9999_from_the_future.*was not touched"):
        async with Database.open(path):
            pass
    assert fingerprint(tmp_path) == before


async def test_a_database_of_another_program_is_refused_and_not_a_byte_of_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "photos.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE photos (id INTEGER)")
    other.close()
    before = fingerprint(tmp_path)
    with pytest.raises(StorageError, match="another program.*'photos'"):
        async with Database.open(path):
            pass
    assert fingerprint(tmp_path) == before


@requirement("storage:errors:corrupt")
async def test_a_file_that_is_no_database_is_refused_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "satchel.db"
    path.write_bytes(b"these are my notes, not a database\n" * 200)
    before = fingerprint(tmp_path)
    with pytest.raises(StorageCorrupt, match=r"can't be read.*satchel memory rebuild"):
        async with Database.open(path):
            pass
    assert fingerprint(tmp_path) == before


@requirement("storage:errors:corrupt")
async def test_damage_inside_a_database_is_reported_by_reads_and_by_the_doctor(tmp_path: Path) -> None:
    path = tmp_path / "satchel.db"
    async with Database.open(path) as database:
        for number in range(300):
            await database.write(insert(f"user {number} {'x' * 100}"))
    damaged = bytearray(path.read_bytes())
    for page in range(len(damaged) // 4096 - 8, len(damaged) // 4096):
        damaged[page * 4096 : page * 4096 + 2048] = b"\xa5" * 2048
    path.write_bytes(damaged)
    async with Database.open(path) as database:
        report = await database.doctor()
        assert report.problems
        with pytest.raises(StorageCorrupt, match="can't be read"):
            await database.read(
                lambda connection: connection.exec_driver_sql(
                    "SELECT sum(length(user_id || scope)) FROM memory_spaces NOT INDEXED"
                ).all()
            )


@requirement("storage:errors:locked")
async def test_opening_waits_while_another_process_makes_the_same_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "satchel.db"
    sqlite.create_file(path)
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    pauses = 0

    def pause(_seconds: float) -> None:
        nonlocal pauses
        pauses += 1
        if pauses == 3:
            other.execute("PRAGMA user_version=7")
            other.execute("COMMIT")
            other.close()

    monkeypatch.setattr("satchel.storage.sqlite_file.time.sleep", pause)
    monkeypatch.setattr("satchel.storage.sqlite_file._BUSY_TIMEOUT_MS", 1)
    async with Database.open(path) as database:
        await database.write(insert("a"))
        assert (
            await database.read(lambda connection: connection.exec_driver_sql("PRAGMA user_version").scalar())
            == 7
        )
    assert pauses == 3


@requirement("storage:errors:locked")
async def test_a_write_that_another_process_blocks_is_an_error_and_reads_still_work(tmp_path: Path) -> None:
    path = tmp_path / "satchel.db"
    async with Database.open(path, lock_timeout_s=0.02) as database:
        await database.write(insert("ann"))
        with held(path):
            with pytest.raises(StorageLocked, match=r"locked by another process.*nothing was written"):
                await database.write(insert("bob"))
            assert await database.read(rows) == ["ann"]
        await database.write(insert("bob"))
        assert await database.read(rows) == ["ann", "bob"]


@requirement("storage:errors:locked")
async def test_writes_that_queue_up_behind_another_process_wait_together_and_not_in_turn(
    tmp_path: Path,
) -> None:
    path = tmp_path / "satchel.db"
    refused: list[str] = []
    async with Database.open(path, lock_timeout_s=1.0) as database:
        await database.write(insert("ann"))

        async def write(name: str) -> None:
            try:
                await database.write(insert(name))
            except StorageLocked:
                refused.append(name)

        with held(path), anyio.fail_after(120):
            async with anyio.create_task_group() as group:
                for number in range(200):
                    group.start_soon(write, str(number))
        await database.write(insert("bob"))
        assert await database.read(rows) == ["ann", "bob"]
    assert len(refused) == 200


@requirement("storage:errors:locked")
async def test_closing_gives_up_writes_that_wait_for_another_process(tmp_path: Path) -> None:
    path = tmp_path / "satchel.db"
    refused: list[str] = []
    with anyio.fail_after(120), ExitStack() as lock:
        async with anyio.create_task_group() as group, Database.open(path, lock_timeout_s=1000) as database:
            await database.write(insert("ann"))

            async def write(name: str) -> None:
                try:
                    await database.write(insert(name))
                except StorageLocked:
                    refused.append(name)

            lock.enter_context(held(path))
            for number in range(3):
                group.start_soon(write, str(number))
            await anyio.wait_all_tasks_blocked()
    assert len(refused) == 3


async def test_a_database_that_was_removed_or_replaced_under_its_writer_is_an_error_and_not_a_silent_loss(
    tmp_path: Path,
) -> None:
    path = tmp_path / "satchel.db"
    async with Database.open(path) as database:
        await database.write(insert("ann"))
        path.rename(tmp_path / "elsewhere.db")
        with pytest.raises(StorageError, match=r"satchel.db was removed while it was open"):
            await database.write(insert("lost"))
        path.write_bytes((tmp_path / "elsewhere.db").read_bytes())
        with pytest.raises(StorageError, match=r"satchel.db was replaced while it was open"):
            await database.write(insert("lost"))


@requirement("storage:errors:full")
async def test_a_full_disk_loses_only_the_change_that_did_not_fit(tmp_path: Path) -> None:
    async with Database.open(tmp_path / "satchel.db") as database:
        await database.write(insert("ann"))
        # SQLite reports a database that may not grow exactly as it reports a disk that is full.
        await database.write(lambda connection: connection.exec_driver_sql("PRAGMA max_page_count=1"))
        with pytest.raises(StorageUnwritable, match=r"is full.*This change was not made"):
            await database.write(insert("x" * 1_000_000))
        await database.write(lambda connection: connection.exec_driver_sql("PRAGMA max_page_count=1000000"))
        await database.write(insert("bob"))
        assert await database.read(rows) == ["ann", "bob"]


@requirement("storage:errors:full")
@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EROFS, "mounted read-only"),
        (errno.EACCES, "Check the permissions"),
        (errno.ENOSPC, "Free some space"),
        (errno.EDQUOT, "Free some space"),
    ],
)
async def test_a_place_that_cannot_be_written_gives_a_sentence_that_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, words: str
) -> None:
    def refuse(path: Path, flags: int, mode: int) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("satchel.storage.sqlite.os.open", refuse)
    with pytest.raises(StorageUnwritable, match=words):
        async with Database.open(tmp_path / "satchel.db"):
            pass


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (sqlite3.SQLITE_BUSY_SNAPSHOT, StorageLocked),
        (sqlite3.SQLITE_CORRUPT_VTAB, StorageCorrupt),
        (sqlite3.SQLITE_FULL, StorageUnwritable),
        (sqlite3.SQLITE_READONLY_DIRECTORY, StorageUnwritable),
        (sqlite3.SQLITE_CANTOPEN, StorageUnwritable),
        (sqlite3.SQLITE_IOERR_WRITE, StorageUnwritable),
        (sqlite3.SQLITE_ERROR, StorageError),
    ],
)
async def test_extended_result_codes_find_their_class(code: int, expected: type[StorageError]) -> None:
    error = sqlite3.OperationalError("words")
    error.sqlite_errorcode = code
    assert type(explain(error, "a.db")) is expected
    assert "a.db" in str(explain(error, "a.db"))


async def test_a_file_where_a_folder_is_expected_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageError, match="file"):
        async with Database.open(tmp_path / "file" / "satchel.db"):
            pass
    with pytest.raises(StorageError, match="is a folder"):
        async with Database.open(tmp_path):
            pass
    assert "can't be used" in str(explain_os(OSError(errno.ENAMETOOLONG, "File name too long"), tmp_path))


@pytest.mark.parametrize(
    "where",
    [
        "mysql://user:hunter2@host/db",
        "postgresql://user:hunter2@host:port/db",
        "sqlite://relative",
        "",
        "a\x00b",
    ],
)
async def test_a_database_that_this_version_does_not_serve_is_refused_without_repeating_passwords(
    where: str,
) -> None:
    with pytest.raises(ConfigError) as caught:
        async with Database.open(where):
            pass
    assert "hunter2" not in str(caught.value)


async def test_a_url_and_a_path_name_the_same_file_and_odd_characters_are_no_matter(tmp_path: Path) -> None:
    path = tmp_path / "50% off? #1 naïve's.db"
    async with Database.open(path) as database:
        await database.write(insert("ann"))
    async with Database.open(f"sqlite:///{path}") as database:
        assert await database.read(rows) == ["ann"]
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


async def test_a_database_in_memory_reads_what_it_wrote() -> None:
    async with Database.open(":memory:") as database:
        await database.write(insert("ann"))
        assert await database.read(rows) == ["ann"]


async def test_a_function_that_raises_changes_nothing(tmp_path: Path) -> None:
    def fail(connection: Connection) -> None:
        insert("ann")(connection)
        raise ZeroDivisionError

    async with Database.open(tmp_path / "satchel.db") as database:
        with pytest.raises(ZeroDivisionError):
            await database.write(fail)
        assert await database.read(rows) == []
        await database.write(insert("bob"))
        assert await database.read(rows) == ["bob"]


@requirement("storage:sqlite:immediate")
async def test_writers_go_one_after_another_while_readers_see_the_state_before(tmp_path: Path) -> None:
    reader_saw: list[list[str]] = []
    writing, finish = threading.Event(), threading.Event()

    def slow(connection: Connection) -> None:
        insert("ann")(connection)
        writing.set()
        assert finish.wait(120)

    async with Database.open(tmp_path / "satchel.db") as database:
        with anyio.fail_after(120):
            async with anyio.create_task_group() as group:
                group.start_soon(database.write, slow)
                await anyio.to_thread.run_sync(writing.wait)
                # Queued behind the first: it would find the lock taken if it had a thread of its own.
                group.start_soon(database.write, insert("bob"))
                reader_saw.append(await database.read(rows))
                finish.set()
        assert reader_saw == [[]]
        assert await database.read(rows) == ["ann", "bob"]


async def test_a_cancelled_caller_waits_for_its_transaction(tmp_path: Path) -> None:
    started, finish = threading.Event(), threading.Event()
    done: list[str] = []

    def slow(connection: Connection) -> None:
        insert("ann")(connection)
        started.set()
        assert finish.wait(120)
        done.append("committed")

    async with Database.open(tmp_path / "satchel.db") as database:
        with anyio.fail_after(120):
            async with anyio.create_task_group() as group:
                group.start_soon(database.write, slow)
                await anyio.to_thread.run_sync(started.wait)
                group.cancel_scope.cancel()
                finish.set()
        assert done == ["committed"]
        assert await database.read(rows) == ["ann"]


async def test_a_scrub_beside_a_reader_says_that_the_log_is_not_empty_yet(tmp_path: Path) -> None:
    path = tmp_path / "satchel.db"
    async with Database.open(path, lock_timeout_s=0.02) as database:
        reader = sqlite3.connect(path, isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM memory_spaces").fetchall()
        await database.write(insert("ann"))
        assert await database.scrub() is False
        reader.execute("ROLLBACK")
        reader.close()
        assert await database.scrub() is True


async def test_network_file_systems_are_refused_where_the_kernel_tells(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
        "40 22 0:40 / /home/ann/my\\040share rw - nfs4 server:/x rw\n"
        "41 40 8:2 / /home/ann/my\\040share/disk rw - ext4 /dev/sdb1 rw\n"
        "42 22 0:41 / /mnt/c rw - 9p drvfs rw\n"
        "43 22 0:42 / /mnt/host rw - virtiofs share rw\n"
        "broken line\n"
    )
    for shared in ("/mnt/c/Users/ann", "/mnt/host"):
        with pytest.raises(StorageError, match="network file system"):
            sqlite.refuse_network(Path(shared), mounts)
    sqlite.refuse_network(Path("/home/ann"), mounts)
    sqlite.refuse_network(Path("/home/ann/my share/disk/x"), mounts)
    with pytest.raises(StorageError, match=r"network file system \(nfs4\)"):
        sqlite.refuse_network(Path("/home/ann/my share/satchel"), mounts)
    sqlite.refuse_network(Path("/"), tmp_path / "nothing")


async def test_new_databases_of_one_process_are_made_at_the_same_time(tmp_path: Path) -> None:
    async def make(number: int) -> None:
        async with Database.open(tmp_path / f"{number}.db") as database:
            assert (await database.doctor()).revision == HEAD

    async with anyio.create_task_group() as group:
        for number in range(6):
            group.start_soon(make, number)
