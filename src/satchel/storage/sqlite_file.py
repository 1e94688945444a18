"""A database in one SQLite file: transactions, upgrades with a copy of the file first, and the scrub."""

from __future__ import annotations

import logging
import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import anyio
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from satchel.clock import Clock
from satchel.errors import StorageError, StorageLocked, StorageUnwritable
from satchel.processes import has_ended
from satchel.storage import sqlite
from satchel.storage.database import JITTER_S, Database, DatabaseReport
from satchel.storage.failures import explain, explain_os, is_locked
from satchel.storage.schema import HEAD, newest_statements
from satchel.storage.unused import MOST_PAGES, PageFile

T = TypeVar("T")

_log = logging.getLogger(__name__)

# SQLite's own wait is short, and ours adds jitter: with one long timeout, several writers wake up together and starve
# one of them (1149 rows a second, compared with 901-944; no writer failed).
_BUSY_TIMEOUT_MS = 1000
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


class SqliteDatabase(Database):
    """A file that only its owner can read, or memory of this process."""

    def __init__(self, place: str, *, clock: Clock, lock_timeout_s: float, readers: int) -> None:
        """Use `Database.open`."""
        # A `Prepared` raises the driver's own; SQLAlchemy wraps it in a `DBAPIError`.
        self._driver_error: type[Exception] = sqlite.driver().Error
        self._errors = (DBAPIError, self._driver_error)
        self._busy_timeout_ms = min(_BUSY_TIMEOUT_MS, max(1, round(lock_timeout_s * 1000)))
        self._inode: int | None = None
        self._pages: PageFile | None = None
        super().__init__(
            place,
            sqlite.make_engine(place, busy_timeout_ms=self._busy_timeout_ms),
            clock=clock,
            lock_timeout_s=lock_timeout_s,
            # An in-memory database exists in one connection, and therefore on one thread.
            readers=None if place == sqlite.MEMORY else readers,
        )

    @property
    def file(self) -> Path | None:
        """Its file; None if it is in memory."""
        return None if self.is_in_memory else Path(self.place)

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
                await anyio.sleep(self._random.uniform(*JITTER_S))
        return True

    def _close_connections(self) -> None:
        super()._close_connections()
        if self._pages is not None:
            self._pages.release()

    def _connect(self, *, writes: bool) -> Connection:
        begin = "IMMEDIATE" if writes or self._read_pool is self._write_pool else "DEFERRED"
        # Two processes that switch a new file to WAL mode at the same time fail immediately, because SQLite doesn't
        # wait where both would wait for each other.
        return self._with_retries(self._engine.connect).execution_options(**{sqlite.BEGIN: begin})

    def _explain(self, error: BaseException) -> StorageError:
        return explain(error, self.place)

    def _read(self, function: Callable[[Connection], T]) -> T:
        with self._explained():
            connection = self._connection(writes=False)
            with connection.begin():
                return function(connection)

    def _write(self, function: Callable[[Connection], T], durable: bool, deadline: float) -> T:
        if self._refusal:
            raise StorageUnwritable(self._refusal)
        with self._explained():
            connection = self._connection(writes=True)
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
            time.sleep(self._random.uniform(*JITTER_S))

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
            connection = self._connection(writes=True)
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
                with suppress(*self._errors):
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
                f"The database {self.place} has to be upgraded, which needs {needed / 1e6:,.1f} MB beside it for a "
                f"backup and for the change; {free / 1e6:,.1f} MB are free. Free some space and try again. Nothing was "
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
        size = 0

        def check(connection: Connection) -> str:
            for (line,) in connection.exec_driver_sql("PRAGMA integrity_check(10)"):
                if line != "ok":
                    problems.append(f"{self.place}: {line}. Restore a backup.")
            lost = Counter((row[0], row[2]) for row in connection.exec_driver_sql("PRAGMA foreign_key_check"))
            problems.extend(
                f"{self.place}: {own} has rows that belong to no row of {other}: {count:,}."
                for (own, other), count in lost.items()
            )
            return str(connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar_one())

        revision = ""
        try:
            revision = self._read(check)
        except StorageError as error:
            problems.append(str(error))
        if not self.is_in_memory:
            size = Path(self.place).stat().st_size
        module = sqlite.driver()
        return DatabaseReport(
            place=self.place,
            engine=f"SQLite {module.sqlite_version}",
            revision=revision,
            bytes=size,
            problems=tuple(problems),
            warnings=tuple(sqlite.version_warnings(module.sqlite_version_info)),
        )


def _is_empty(connection: Connection) -> bool:
    return connection.exec_driver_sql("SELECT 1 FROM sqlite_master LIMIT 1").first() is None
