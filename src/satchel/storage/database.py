"""A database and the threads that may use it: one that writes, a few that read."""

from __future__ import annotations

import asyncio
import math
import random
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from threading import local
from typing import TypeVar

import anyio
from sqlalchemy import Connection, Engine

from satchel.clock import Clock, SystemClock
from satchel.errors import ConfigError, StorageError, StorageLocked

T = TypeVar("T")

MEMORY = ":memory:"
JITTER_S = (0.005, 0.05)
_CLOSING_S = 1.0
"""How long writes still wait for another process once the database is being closed."""
_SERVERS = ("postgresql", "postgres")
_IN_FILE = ("satchel.storage.sqlite_file", "SqliteDatabase")
_ON_SERVER = ("satchel.storage.postgresql", "PostgresDatabase")


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseReport:
    """The result of `Database.doctor`.

    Attributes:
        place: The path of the database, or its URL without a password.
        engine: The database engine and its version ("SQLite 3.51.3").
        bytes: The size of the database.
        problems: What is wrong and what to do about it; empty if nothing is.
        warnings: What works but could be improved.
    """

    place: str
    engine: str
    revision: str
    bytes: int
    problems: tuple[str, ...]
    warnings: tuple[str, ...]


class Database(ABC):
    """Transactions on the database's own threads.

    Write functions run one after the other on one thread, each in a transaction that holds the write lock from its
    start. Read functions run on a few other threads, each in one snapshot. A function receives an open connection, must
    not wait for anything else, and must not keep the connection.

    When `write` returns, the change survives the death of every process (`kill -9`). A power failure can lose the most
    recent changes but never consistency; `durable=True` waits for the disk and prevents that.

    Attributes:
        on_waiting: Called with a text for the user when the server has not answered for some seconds, and when it does
            again.
    """

    _errors: tuple[type[Exception], ...]
    """What the driver raises."""

    def __init__(
        self, place: str, engine: Engine, *, clock: Clock, lock_timeout_s: float, readers: int | None
    ) -> None:
        """Use `open`. Without `readers`, the writing thread reads as well."""
        self.place = place
        self.clock = clock
        self.on_waiting: Callable[[str], None] = lambda _: None
        self._engine = engine
        self._lock_timeout_s = lock_timeout_s
        self._give_up_at = math.inf
        self._refusal = ""
        self._random = random.Random()
        self._threads = local()
        self._connections: list[Connection] = []
        self._write_pool = ThreadPoolExecutor(1, thread_name_prefix="satchel-db-write")
        self._read_pool = (
            self._write_pool
            if readers is None
            else ThreadPoolExecutor(readers, thread_name_prefix="satchel-db-read")
        )

    @property
    def is_in_memory(self) -> bool:
        """Whether it ends with this process."""
        return self.place == MEMORY

    @property
    def is_on_server(self) -> bool:
        """Whether other machines may use it."""
        return False

    @property
    def file(self) -> Path | None:
        """Its file; None if it is in memory or on a server."""
        return None

    def of(self, user: str) -> Database:
        """The same database, whose transactions see and change only rows of this user, where a server can keep users
        apart. It is closed with this one.
        """
        del user
        return self

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
            where: A path, "sqlite:///path", ":memory:", or "postgresql://…".
            clock: For the name of the backup before an upgrade.
            lock_timeout_s: How long a write waits for another process that locks the database, counted from the call.
                Queued writes fail together. While the database is being closed, the limit is one second.
            readers: The number of reading threads.

        Raises:
            ConfigError: The URL is of no kind that is supported.
            StorageError: The database can't be opened; the class and the message say why and what to do.
        """
        # By name, because each of them is a `Database`, and the server's driver takes 0.3 s of CPU.
        module, kind = _ON_SERVER if is_server(where) else _IN_FILE
        database: Database = getattr(import_module(module), kind)(
            str(where) if is_server(where) else _place(where),
            clock=clock or SystemClock(),
            lock_timeout_s=lock_timeout_s,
            readers=readers,
        )
        try:
            await database._run(database._write_pool, database._prepare)
            yield database
        finally:
            with anyio.CancelScope(shield=True):
                await database._close()

    async def read(self, function: Callable[[Connection], T]) -> T:
        """Run `function` on a reading thread, in one snapshot of the database. A server that went away is waited for.

        Raises:
            StorageError: The database is unusable.
        """
        return await self._patiently(lambda: self._run(self._read_pool, self._read, function))

    def read_blocking(self, function: Callable[[Connection], T]) -> T:
        """`read` for a caller that has a thread of its own, which waits for the result. Never call it on the thread of
        an event loop.

        Raises:
            StorageError: The database is unusable.
        """
        return self._read_pool.submit(self._read, function).result()

    async def write(
        self,
        function: Callable[[Connection], T],
        *,
        durable: bool = False,
        wait_s: float | None = None,
        repeats: Callable[[], bool] | None = None,
    ) -> T:
        """Run `function` on the writing thread and commit, or change nothing if it raises.

        A caller that is cancelled meanwhile waits until the transaction has ended. A server that went away is waited
        for, unless there is a `wait_s`.

        Args:
            function: Makes the changes. It may run again if the database was locked at its start.
            durable: Return only when the change is on the disk, not only in the operating system's cache.
            wait_s: How long to wait for other writes, of this process too; None means `lock_timeout_s` for those of
                other processes and no limit for those of this one.
            repeats: `function` finds out what it stored before, so it may run again when a connection was lost in it.
                The server is waited for as long as this says so.

        Raises:
            StorageError: The database is unusable; nothing was changed.
            StorageUnreachable: The server went away. Only `is_unsure` tells that something may have been changed.
            StorageLocked: Others were writing for too long; nothing was changed.
        """
        limit_s = self._lock_timeout_s if wait_s is None else min(wait_s, self._lock_timeout_s)

        def attempt() -> Awaitable[T]:
            deadline = time.monotonic() + limit_s
            writing = self._write_pool.submit(self._write, function, durable, deadline)
            return self._finished(writing, wait_s=wait_s)

        return await (attempt() if wait_s is not None else self._patiently(attempt, repeats=repeats))

    async def _patiently(
        self, attempt: Callable[[], Awaitable[T]], *, repeats: Callable[[], bool] | None = None
    ) -> T:
        """The result of an attempt, which is repeated where a server may come back."""
        del repeats
        return await attempt()

    def write_blocking(self, function: Callable[[Connection], T]) -> T:
        """`write` for a caller that has a thread of its own; see `read_blocking`.

        Raises:
            StorageError: As in `write`.
        """
        deadline = time.monotonic() + self._lock_timeout_s
        return self._write_pool.submit(self._write, function, False, deadline).result()

    @abstractmethod
    async def expect_scrub(self) -> None:
        """Call it before deleting what has to be scrubbed: if the process dies first, `is_scrub_due` tells the next."""

    def note_scrub(self, connection: Connection) -> None:  # noqa: B027 - what is in files is scrubbed in any case
        """`expect_scrub`, on a server, for the transaction that deletes."""

    @property
    @abstractmethod
    def is_scrub_due(self) -> bool:
        """Whether a process died, or was kept from scrubbing, after it had deleted something."""

    @abstractmethod
    async def scrub(self) -> bool:
        """Remove what deleted rows leave in the database's files. Others may read and write meanwhile.

        Returns:
            False if another process kept it from doing so, or the disk is full; `is_scrub_due` stays true then.
        """

    async def doctor(self) -> DatabaseReport:
        """Check the data and the database engine."""
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

    async def bind(self, mark: str) -> None:
        """Refuse a database on a server that another home uses. A file belongs to whoever has it."""
        del mark

    async def release(self) -> None:  # noqa: B027 - a file has no owner
        """Let another home have a database on a server."""

    async def own_key(self) -> bytes | None:
        """The key that a database on a server keeps for programs without a home; None for a file."""
        return None

    def _connection(self, *, writes: bool) -> Connection:
        """This thread's connection."""
        connection: Connection | None = getattr(self._threads, "connection", None)
        if connection is None:
            connection = self._connect(writes=writes)
            self._threads.connection = connection
            self._connections.append(connection)
        return connection

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Convert the driver's errors to ours."""
        try:
            yield
        except self._errors as error:
            raise self._explain(error) from error

    @abstractmethod
    def _connect(self, *, writes: bool) -> Connection:
        """A new connection, for one thread."""

    @abstractmethod
    def _explain(self, error: BaseException) -> StorageError:
        """The typed error for one of `_errors`."""

    @abstractmethod
    def _prepare(self) -> None:
        """Create it, and upgrade its schema to `HEAD`."""

    @abstractmethod
    def _read(self, function: Callable[[Connection], T]) -> T: ...

    @abstractmethod
    def _write(self, function: Callable[[Connection], T], durable: bool, deadline: float) -> T: ...

    @abstractmethod
    def _doctor(self) -> DatabaseReport: ...

    def _close_connections(self) -> None:
        # Waits for active readers; a pool that is shut down accepts no new work.
        if self._read_pool is not self._write_pool:
            self._read_pool.shutdown(wait=True)
        for connection in self._connections:
            connection.close()
        self._connections.clear()
        self._engine.dispose()


def is_server(where: str | Path) -> bool:
    """Whether this is the URL of a database on a server."""
    return isinstance(where, str) and where.partition("://")[0] in _SERVERS and "://" in where


def _place(where: str | Path) -> str:
    """The path behind what the user wrote; ":memory:" stays."""
    text = str(where)
    if text == MEMORY:
        return text
    scheme, separator, rest = text.partition("://")
    if separator and isinstance(where, str):
        if scheme != "sqlite" or not rest.startswith("/"):
            raise ConfigError(
                f"A database URL that starts with {scheme}:// is not supported by this version; "
                "give a path, sqlite:/// and a path, or postgresql:// and a server."
            )
        text = rest[1:]
    if "\x00" in text or not text:
        raise ConfigError(
            "The path of the database is empty or contains a NUL character; give the path of a file."
        )
    return str(Path(text).expanduser().absolute())
