"""A database and the threads that may use it: one that writes, a few that read."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import random
import re
import shutil
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import local
from typing import TypeVar

import anyio
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from satchel.clock import Clock, SystemClock
from satchel.errors import ConfigError, StorageError, StorageLocked, StorageUnwritable
from satchel.processes import has_ended
from satchel.storage import sqlite
from satchel.storage.failures import explain, explain_os, is_locked
from satchel.storage.schema import HEAD, newest_statements
from satchel.storage.unused import MOST_PAGES, PageFile

__all__ = ["Database", "DatabaseReport"]

T = TypeVar("T")

_log = logging.getLogger(__name__)

# SQLite's own wait is short, and ours adds jitter: with one long timeout, several writers wake up together and starve
# one of them (1149 rows a second, compared with 901-944; no writer failed).
_BUSY_TIMEOUT_MS = 1000
_JITTER_S = (0.005, 0.05)
_CLOSING_S = 1.0
"""How long writes still wait for another process once the database is being closed."""
_PART = ".part-"
"""Between the name of a backup that is being written and the number of the process that writes it."""
_BACKUP = rf"\.before-\d{{4}}_\w+-\d{{8}}-\d{{6}}\.backup(?:{re.escape(_PART)}(?P<pid>\d+))?"
_MOST_REWRITTEN_IN_MEMORY = 64 << 20
"""Bytes of a database whose new copy is made in memory. That of a larger one is an unnamed temporary file."""
_PAGES_AT_ONCE = 1024
"""Of a scrub: 4 MB, which takes 3 ms of CPU to look through."""
_SCRUB_BUSY_MS = 50
"""How long a step of a scrub keeps others from writing while it waits for those who read the write-ahead log."""
_SCRUB_WAIT_S = 2.0
"""How long a step is tried again before the scrub gives up."""
_REOPEN = "Nothing was written; close Satchel and start it again."


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseReport:
    """The result of `Database.doctor`.

    Attributes:
        place: The path of the database.
        engine: The database engine and its version ("SQLite 3.51.3").
        revision: The revision of the schema.
        bytes: The size of the database; `log_bytes` is the size of its write-ahead log.
        problems: What is wrong and what to do about it; empty if nothing is.
        warnings: What works but could be improved.
    """

    place: str
    engine: str
    revision: str
    bytes: int
    log_bytes: int
    problems: tuple[str, ...]
    warnings: tuple[str, ...]


class Database:
    """Transactions on the database's own threads.

    Write functions run one after the other on one thread, each in a transaction that holds the write lock from its
    start. Read functions run on a few other threads, each in one snapshot. A function receives an open connection, must
    not wait for anything else, and must not keep the connection.

    When `write` returns, the change survives the death of every process (`kill -9`). A power failure can lose the most
    recent changes but never consistency; `durable=True` waits for the disk and prevents that.
    """

    def __init__(self, place: str, *, clock: Clock, lock_timeout_s: float, readers: int) -> None:
        """Use `open`."""
        self.place = place
        self.clock = clock
        # Raised by a `Prepared`; SQLAlchemy wraps it in a `DBAPIError`.
        self._driver_error: type[Exception] = sqlite.driver().Error
        self._lock_timeout_s = lock_timeout_s
        self._busy_timeout_ms = min(_BUSY_TIMEOUT_MS, max(1, round(lock_timeout_s * 1000)))
        self._engine = sqlite.make_engine(place, busy_timeout_ms=self._busy_timeout_ms)
        self._give_up_at = math.inf
        self._refusal = ""
        self._inode: int | None = None
        self._pages: PageFile | None = None
        self._random = random.Random()
        self._threads = local()
        self._connections: list[Connection] = []
        self._write_pool = ThreadPoolExecutor(1, thread_name_prefix="satchel-db-write")
        # An in-memory database exists in one connection, and therefore on one thread.
        self._read_pool = (
            self._write_pool
            if place == sqlite.MEMORY
            else ThreadPoolExecutor(readers, thread_name_prefix="satchel-db-read")
        )

    @property
    def is_in_memory(self) -> bool:
        """Whether it has no file."""
        return self.place == sqlite.MEMORY

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        where: str | Path,
        *,
        clock: Clock | None = None,
        lock_timeout_s: float = 30.0,
        readers: int = 2,
    ) -> AsyncIterator[Database]:
        """Open a database, create or upgrade its schema, and close it at the end.

        Args:
            where: A path, "sqlite:///path", or ":memory:".
            clock: For the name of the backup before an upgrade.
            lock_timeout_s: How long a write waits for another process that locks the database, counted from the call.
                Queued writes fail together. While the database is being closed, the limit is one second.
            readers: The number of reading threads.

        Raises:
            ConfigError: This version doesn't support the URL.
            StorageError: The database can't be opened; the class and the message say why and what to do.
        """
        place = _place(where)
        database = cls(place, clock=clock or SystemClock(), lock_timeout_s=lock_timeout_s, readers=readers)
        try:
            await database._run(database._write_pool, database._prepare)
            yield database
        finally:
            with anyio.CancelScope(shield=True):
                await database._close()

    async def read(self, function: Callable[[Connection], T]) -> T:
        """Run `function` on a reading thread, in one snapshot of the database.

        Raises:
            StorageError: The database is unusable.
        """
        return await self._run(self._read_pool, self._read, function)

    def read_blocking(self, function: Callable[[Connection], T]) -> T:
        """`read` for a caller that has a thread of its own, which waits for the result. Never call it on the thread of
        an event loop.

        Raises:
            StorageError: The database is unusable.
        """
        return self._read_pool.submit(self._read, function).result()

    async def write(
        self, function: Callable[[Connection], T], *, durable: bool = False, wait_s: float | None = None
    ) -> T:
        """Run `function` on the writing thread and commit, or change nothing if it raises.

        A caller that is cancelled meanwhile waits until the transaction has ended.

        Args:
            function: Makes the changes. It may run again if the database was locked at its start.
            durable: Return only when the change is on the disk, not only in the operating system's cache.
            wait_s: How long to wait for other writes, of this process too; None means `lock_timeout_s` for those of
                other processes and no limit for those of this one.

        Raises:
            StorageError: The database is unusable; nothing was changed.
            StorageLocked: Others were writing for too long; nothing was changed.
        """
        limit_s = self._lock_timeout_s if wait_s is None else min(wait_s, self._lock_timeout_s)
        deadline = time.monotonic() + limit_s
        return await self._finished(
            self._write_pool.submit(self._write, function, durable, deadline), wait_s=wait_s
        )

    async def expect_scrub(self) -> None:
        """Call it before deleting what has to be scrubbed: if the process dies first, `is_scrub_due` tells the next."""
        if not self.is_in_memory:
            await self._run(self._write_pool, self._scrub_marker.touch)

    @property
    def is_scrub_due(self) -> bool:
        """Whether a process died, or was kept from scrubbing, after it had deleted something."""
        return not self.is_in_memory and self._scrub_marker.exists()

    @property
    def _scrub_marker(self) -> Path:
        return Path(f"{self.place}.scrub")

    async def scrub(self) -> bool:
        """Remove deleted data from the unused parts of pages and from the write-ahead log, too. It takes steps of a few
        milliseconds, between which others write.

        Returns:
            False if another process kept reading or writing, or the disk is full; `is_scrub_due` stays true then.
        """
        if self.is_in_memory:
            return True
        page: int | None = 0
        give_up_at = None
        while page is not None:
            try:
                page = await self._run(self._write_pool, self._scrub_some, page)
                give_up_at = None
            except StorageError as error:
                give_up_at = give_up_at or time.monotonic() + min(_SCRUB_WAIT_S, self._lock_timeout_s)
                if not isinstance(error, StorageLocked) or time.monotonic() >= give_up_at:
                    _log.info("The database could not be scrubbed, so it may keep deleted words: %s", error)
                    await self._run(self._write_pool, self._scrub_marker.touch)
                    return False
                await anyio.sleep(self._random.uniform(*_JITTER_S))
        return True

    async def doctor(self) -> DatabaseReport:
        """Check the file and the database engine."""
        return await self._run(self._read_pool, self._doctor)

    async def _run(self, pool: ThreadPoolExecutor, function: Callable[..., T], *args: object) -> T:
        return await self._finished(pool.submit(function, *args))

    async def _finished(self, future: Future[T], *, wait_s: float | None = None) -> T:
        running = asyncio.wrap_future(future)
        # Shielded, because a caller must not continue while its transaction is running; otherwise "cancelled" would
        # mean "perhaps later".
        with anyio.CancelScope(shield=True):
            if wait_s is not None:
                await asyncio.wait([running], timeout=wait_s)
                if future.cancel():  # It was still waiting for its turn.
                    raise StorageLocked(
                        f"Others wrote to {self.place} for {wait_s:g} s; nothing was written."
                    )
            await running
        return running.result()

    def refuse_writes(self, why: str) -> None:
        """Let every write fail from now on, as `StorageUnwritable` with this text. What is stored can be read."""
        self._refusal = why

    def stop_waiting(self) -> None:
        """Limit the wait of writes for other processes to one second from now on. A program calls this when it begins
        to close, so that pending writes don't delay it for long. Closing the database calls it, too.
        """
        self._give_up_at = min(self._give_up_at, time.monotonic() + _CLOSING_S)

    async def _close(self) -> None:
        self.stop_waiting()
        await self._run(self._write_pool, self._close_connections)
        for pool in {self._write_pool, self._read_pool}:
            pool.shutdown(wait=True)

    def _close_connections(self) -> None:
        # Waits for active readers; a pool that is shut down accepts no new work.
        if self._read_pool is not self._write_pool:
            self._read_pool.shutdown(wait=True)
        for connection in self._connections:
            connection.close()
        self._connections.clear()
        self._engine.dispose()
        if self._pages is not None:
            self._pages.release()

    def _connection(self, begin: str) -> Connection:
        """This thread's connection."""
        connection: Connection | None = getattr(self._threads, "connection", None)
        if connection is None:
            # Two processes that switch a new file to WAL mode at the same time fail immediately, because SQLite doesn't
            # wait where both would wait for each other.
            connection = self._with_retries(self._engine.connect).execution_options(**{sqlite.BEGIN: begin})
            self._threads.connection = connection
            self._connections.append(connection)
        return connection

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Convert the driver's errors to ours."""
        try:
            yield
        except (DBAPIError, self._driver_error) as error:
            raise explain(error, self.place) from error

    def _read(self, function: Callable[[Connection], T]) -> T:
        begin = "IMMEDIATE" if self._read_pool is self._write_pool else "DEFERRED"
        with self._explained():
            connection = self._connection(begin)
            with connection.begin():
                return function(connection)

    def _write(self, function: Callable[[Connection], T], durable: bool, deadline: float) -> T:
        if self._refusal:
            raise StorageUnwritable(self._refusal)
        with self._explained():
            connection = self._connection("IMMEDIATE")
            self._check_same_file()
            # A write that has already waited long enough tries only once.
            left_ms = max(0, round((min(deadline, self._give_up_at) - time.monotonic()) * 1000))
            is_late = left_ms < self._busy_timeout_ms
            if durable:
                self._pragma(connection, "synchronous=FULL")
            if is_late:
                self._pragma(connection, f"busy_timeout={left_ms}")
            try:
                with self._begin(connection, deadline):
                    return function(connection)
            finally:
                if durable:
                    self._pragma(connection, "synchronous=NORMAL")
                if is_late:
                    self._pragma(connection, f"busy_timeout={self._busy_timeout_ms}")

    def _check_same_file(self) -> None:
        """Refuse to write to a file that was removed or replaced. SQLite would write to it, and lose the data."""
        if self.place == sqlite.MEMORY:
            return
        try:
            inode = Path(self.place).stat().st_ino
        except OSError as error:
            raise StorageError(
                f"The database {self.place} was removed while it was open. {_REOPEN}"
            ) from error
        if self._inode is None:
            self._inode = inode
        elif inode != self._inode:
            raise StorageError(f"The database {self.place} was replaced while it was open. {_REOPEN}")

    @contextmanager
    def _begin(self, connection: Connection, deadline: float | None = None) -> Iterator[None]:
        """A transaction that holds the write lock, waiting for it with jitter."""
        with self._with_retries(connection.begin, deadline):
            yield

    def _with_retries(self, begin: Callable[[], T], deadline: float | None = None) -> T:
        """Retry while another process locks the database, until `deadline`; None means `lock_timeout_s` from now."""
        if deadline is None:
            deadline = time.monotonic() + self._lock_timeout_s
        while True:
            try:
                return begin()
            except (DBAPIError, self._driver_error, StorageLocked) as error:
                waiting = isinstance(error, StorageLocked) or is_locked(error)
                if not waiting or time.monotonic() >= min(deadline, self._give_up_at):
                    raise
            time.sleep(self._random.uniform(*_JITTER_S))

    @staticmethod
    def _pragma(connection: Connection, words: str) -> tuple[object, ...] | None:
        """Run a PRAGMA outside a transaction, because SQLAlchemy would begin one."""
        cursor = connection.connection.cursor()
        try:
            cursor.execute(f"PRAGMA {words}")
            row: tuple[object, ...] | None = cursor.fetchone()
            return row
        finally:
            cursor.close()

    def _prepare(self) -> None:
        """Create the file and upgrade its schema to `HEAD`."""
        revision = None
        if self.place != sqlite.MEMORY:
            path = Path(self.place)
            sqlite.refuse_network(path.parent)
            sqlite.create_file(path)
            self._pages = PageFile.of(path)
            revision = self._with_retries(lambda: sqlite.look(path, busy_timeout_ms=_BUSY_TIMEOUT_MS))
        if revision == HEAD:
            return
        with self._explained():
            connection = self._connection("IMMEDIATE")
            backup = self._back_up(connection) if revision is not None else None
            # A migration may copy a table that others refer to; references are checked before it is committed.
            self._pragma(connection, "foreign_keys=OFF")
            try:
                with self._begin(connection):
                    if _is_empty(connection):
                        for statement in newest_statements():
                            connection.exec_driver_sql(statement)
                    else:
                        # Imported here because Alembic costs 0.3 s of CPU and there is rarely anything to migrate. If
                        # another process did this while we waited for the lock, it finds nothing to do.
                        from satchel.storage.migrate import upgrade  # noqa: PLC0415

                        upgrade(connection, to=HEAD, place=self.place)
            finally:
                self._pragma(connection, "foreign_keys=ON")
            if backup is not None:
                # What became smaller leaves pages half empty. Without room for this, the file stays as large as it is.
                with suppress(self._driver_error):
                    self._rewrite(connection)
                self._drop_old_backups(backup)

    def _back_up(self, connection: Connection) -> Path | None:
        """Copy the database to a file next to it before its schema is changed.

        Returns:
            The copy; None if another process has changed the schema meanwhile.
        """
        stamp = self.clock.now().strftime("%Y%m%d-%H%M%S")
        target = Path(f"{self.place}.before-{HEAD}-{stamp}.backup")
        part = target.with_name(f"{target.name}{_PART}{os.getpid()}")
        self._check_room(target)
        try:
            sqlite.create_file(part)  # SQLite fills the empty file, so the copy is private from the start.
        except OSError as error:
            raise explain_os(error, part) from error
        cursor = connection.connection.cursor()
        try:
            cursor.execute("VACUUM INTO ?", (str(part),))
            if sqlite.look(part, busy_timeout_ms=_BUSY_TIMEOUT_MS) == HEAD:
                return None
            part.replace(target)
        finally:
            cursor.close()
            part.unlink(missing_ok=True)
        return target

    def _check_room(self, target: Path) -> None:
        """The copy takes as much room as the database, and the upgrade's log up to as much again."""
        needed = 2 * Path(self.place).stat().st_size
        free = shutil.disk_usage(target.parent).free
        if free < needed:
            raise StorageUnwritable(
                f"The database {self.place} has to be upgraded, which needs {needed / 1e6:,.0f} MB beside it for a "
                f"backup and for the change; {free / 1e6:,.0f} MB are free. Free some space and try again. Nothing was "
                "changed."
            )

    def _drop_old_backups(self, newest: Path) -> None:
        """Keep the backup before the last upgrade alone, and nothing of those that were killed. Only what has exactly
        the name that `_back_up` gives is removed.
        """
        name = re.compile(re.escape(Path(self.place).name) + _BACKUP)
        for path in newest.parent.iterdir():
            match = name.fullmatch(path.name)
            if match and path != newest and (match["pid"] is None or has_ended(int(match["pid"]))):
                with suppress(OSError):
                    path.unlink()

    def _scrub_some(self, first: int) -> int | None:
        """One step of a scrub, from this page on.

        It has a connection of its own: the others notice that somebody else has written, and drop the pages that they
        have in their caches.

        Returns:
            The next page, or None after the last step.

        Raises:
            StorageLocked: Others are writing, or reading the write-ahead log.
        """
        self._check_same_file()
        path, file = Path(self.place), self._pages
        assert file is not None
        with self._explained(), self._engine.connect() as connection:
            self._pragma(connection, f"busy_timeout={_SCRUB_BUSY_MS}")
            self._empty_log(connection)
            pages, page_bytes, has_map = (
                int(str((self._pragma(connection, name) or (0,))[0]))
                for name in ("page_count", "page_size", "auto_vacuum")
            )
            if has_map or pages >= MOST_PAGES:  # The kinds of pages can't be told apart.
                self._rewrite(connection)
                first = pages
            try:
                if first < pages:
                    with connection.begin():
                        if self._log_bytes():
                            raise StorageLocked(f"Others wrote to {self.place} meanwhile.")
                        if file.clean(path, first=first, count=_PAGES_AT_ONCE, page_bytes=page_bytes):
                            connection.exec_driver_sql("UPDATE alembic_version SET version_num = version_num")
                    return first + _PAGES_AT_ONCE
                file.sync(path)
            except OSError as error:
                raise explain_os(error, path) from error
        self._scrub_marker.unlink(missing_ok=True)
        return None

    def _log_bytes(self) -> int:
        log = Path(f"{self.place}-wal")
        return log.stat().st_size if log.exists() else 0

    def _empty_log(self, connection: Connection) -> None:
        if self._log_bytes():
            row = self._pragma(connection, "wal_checkpoint(TRUNCATE)")
            if row is None or row[0]:
                raise StorageLocked(f"Others are reading {self.place}.")

    def _rewrite(self, connection: Connection) -> None:
        """Write every page anew."""
        in_memory = Path(self.place).stat().st_size <= _MOST_REWRITTEN_IN_MEMORY
        self._pragma(connection, f"temp_store={'MEMORY' if in_memory else 'FILE'}")
        self._pragma(connection, "busy_timeout=1000")
        cursor = connection.connection.cursor()
        try:
            cursor.execute("VACUUM")
        finally:
            cursor.close()

    def _doctor(self) -> DatabaseReport:
        problems: list[str] = []
        size = log = 0

        def check(connection: Connection) -> str:
            for (line,) in connection.exec_driver_sql("PRAGMA integrity_check(10)"):
                if line != "ok":
                    problems.append(f"{self.place}: {line}. Restore a backup.")
            problems.extend(
                f"{self.place}: a row of {row[0]} refers to a row of {row[2]} that doesn't exist."
                for row in connection.exec_driver_sql("PRAGMA foreign_key_check")
            )
            return str(connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar_one())

        revision = ""
        try:
            revision = self._read(check)
        except StorageError as error:
            problems.append(str(error))
        if self.place != sqlite.MEMORY:
            path = Path(self.place)
            size = path.stat().st_size
            wal = Path(f"{self.place}-wal")
            log = wal.stat().st_size if wal.exists() else 0
        module = sqlite.driver()
        return DatabaseReport(
            place=self.place,
            engine=f"SQLite {module.sqlite_version}",
            revision=revision,
            bytes=size,
            log_bytes=log,
            problems=tuple(problems),
            warnings=tuple(sqlite.version_warnings(module.sqlite_version_info)),
        )


def _is_empty(connection: Connection) -> bool:
    return connection.exec_driver_sql("SELECT 1 FROM sqlite_master LIMIT 1").first() is None


def _place(where: str | Path) -> str:
    """The path behind what the user wrote; ":memory:" stays."""
    text = str(where)
    if text == sqlite.MEMORY:
        return text
    scheme, separator, rest = text.partition("://")
    if separator and isinstance(where, str):
        if scheme != "sqlite" or not rest.startswith("/"):
            raise ConfigError(
                f"A database URL that starts with {scheme}:// is not supported by this version; "
                "give a path, or sqlite:/// and a path."
            )
        text = rest[1:]
    if "\x00" in text or not text:
        raise ConfigError(
            "The path of the database is empty or contains a NUL character; give the path of a file."
        )
    return str(Path(text).expanduser().absolute())
