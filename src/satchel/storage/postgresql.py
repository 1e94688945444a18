"""A database on a PostgreSQL server: the same transactions, with a lock of the server in place of the file's.

See decision 80 for what is there and what stays in the home.
"""

from __future__ import annotations

import logging
import math
import os
import re
import secrets
import select
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import anyio
import psycopg
from psycopg import pq
from psycopg.adapt import Loader
from psycopg.conninfo import make_conninfo
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.pool import NullPool

from satchel.clock import Clock, SystemClock
from satchel.errors import (
    ConfigError,
    StorageError,
    StorageLocked,
    StorageUnreachable,
    StorageUnwritable,
)
from satchel.storage.database import JITTER_S, Database, DatabaseReport
from satchel.storage.dialect import translate
from satchel.storage.schema import HEAD, known_revision, newest_statements

T = TypeVar("T")

_log = logging.getLogger(__name__)

NEWEST = Path(__file__).with_name("newest_postgresql.sql")
"""What makes an empty schema one of revision `HEAD`. `scripts/newest_schema.py` writes it, and a test compares both."""
_STATE = "satchel_state"
_OWN_STATEMENTS = (
    "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)",
    f"INSERT INTO alembic_version VALUES ('{HEAD}')",  # noqa: S608 - a constant of the program
    # Whose memories these are, whether a scrub is due, and what the user agreed to.
    f"CREATE TABLE {_STATE} (name TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL)",
)
_LOCK = "pg_advisory_xact_lock(23164, hashtext(current_schema()))"
"""One writer at a time, as in a file: what a change decides by what it reads is still so when it is written."""
_CONNECT_S = 10
_MIN_VERSION = 130_000
"""PostgreSQL 13, the first with `pg_current_xact_id` and its kind."""
_SCRUB_WAIT_S = 2.0
_PATIENCE_S = 60.0
"""How long a server that went away is waited for: longer than a restart. Then calls fail at once until it is back."""
_SAYS_S = 3.0
"""The user is told after this."""
_PAUSE_S = (0.05, 1.0)
"""Between two attempts: at first, and at most."""
_LOST = ("08", "57P01", "57P02", "57P03")
"""SQLSTATE: the connection, or the server, went away."""
_REFUSED = ("28", "3D", "42501")
"""SQLSTATE: the user, the password, the database or a right is wrong. Whatever else keeps a connection from being made,
such as too many of them or a database that takes none for now, passes.
"""
_TRACED_CODE = re.compile(rb'\tErrorResponse\t S "[^"]*" V "[^"]*" C "([0-9A-Z]{5})"')
_NEEDS_PASSWORD = "28P01"
_WAITED = ("55P03", "57014", "40P01")
_READ_ONLY = ("25006", "42501", "53100")


class _Whole(Loader):
    """Sums of whole numbers come as NUMERIC, for which Python's driver would make a `Decimal`."""

    def load(self, data: Any) -> int | float:
        text = bytes(data).decode()
        return float(text) if "." in text or "N" in text or "E" in text else int(text)


class PostgresDatabase(Database):
    """Tables in the first schema of the connection's search path.

    `synchronous_commit` stays as the server has it, on by default: then a change that was acknowledged is on the disk.
    """

    _errors = (DBAPIError, psycopg.Error)

    def __init__(self, url: str, *, clock: Clock, lock_timeout_s: float, readers: int) -> None:
        """Use `Database.open`.

        Raises:
            ConfigError: The URL can't be read.
        """
        try:
            address = make_url(url).set(drivername="postgresql+psycopg")
        except (ArgumentError, ValueError):
            raise ConfigError(
                "The URL of the database can't be read; write postgresql://USER@HOST:PORT/DATABASE."
            ) from None
        self._scrub_due = False
        self._away_since = math.inf
        self._has_said = False
        super().__init__(
            _shown(address), _engine(address), clock=clock, lock_timeout_s=lock_timeout_s, readers=readers
        )

    @property
    def is_on_server(self) -> bool:
        """See `Database.is_on_server`."""
        return True

    # Who uses it.

    def of(self, user: str) -> Database:
        """See `Database.of`."""
        return _OfUser(self, user)

    def _narrow(self, connection: Connection) -> None:
        """Begin a transaction that sees the rows of all users."""

    async def bind(self, mark: str) -> None:
        """Refuse a database that another home uses. The first home that opens it becomes its own.

        Other machines use it with a copy of that home's key. The key of the home's hashes is recognised by `mark`.

        Raises:
            StorageError: It belongs to another home, or to programs without one.
        """
        if (known := await self.read(lambda connection: state_of(connection, "home"))) is None:
            known = await self.write(lambda connection: state_of(connection, "home", otherwise=mark))
        if known != mark:
            raise StorageError(
                f"The database {self.place} is the memory of another home: what was forgotten there could come back "
                "from the conversations of this one. Use a database or a schema of its own; or, to use that home from "
                "this machine too, copy its file forgotten.key to this home."
            )

    async def release(self) -> None:
        """Let another home have it."""
        await self.write(
            lambda connection: connection.exec_driver_sql(
                f"DELETE FROM {_STATE} WHERE name IN ('home', 'agreed')"  # noqa: S608 - a constant of the program
            )
        )

    async def own_key(self) -> bytes | None:
        """The key for hashes of forgotten words, for programs that open it without a home."""

        def key(connection: Connection) -> str:
            return str(state_of(connection, "key", otherwise=secrets.token_hex(32)))

        return bytes.fromhex(await self.write(key))

    # Transactions.

    async def _patiently(
        self, attempt: Callable[[], Awaitable[T]], *, repeats: Callable[[], bool] | None = None
    ) -> T:
        """See `Database._patiently`. A database that is being closed doesn't wait."""
        pause_s, most_s = _PAUSE_S
        while True:
            try:
                result = await attempt()
            except StorageUnreachable as error:
                now = time.monotonic()
                self._away_since = min(self._away_since, now)
                away_s = now - self._away_since
                may_repeat = repeats() if repeats is not None else not error.is_unsure
                if not may_repeat or away_s > _PATIENCE_S or self._give_up_at < math.inf:
                    raise
                if away_s > _SAYS_S and not self._has_said:
                    self._has_said = True
                    self.on_waiting(
                        f"The database {self.place} doesn't answer. Waiting for it, for {_PATIENCE_S:g} s at most."
                    )
                await anyio.sleep(pause_s)
                pause_s = min(2 * pause_s, most_s)
            else:
                self._away_since = math.inf
                if self._has_said:
                    self._has_said = False
                    self.on_waiting(f"The database {self.place} answers again.")
                return result

    def _connect(self, *, writes: bool) -> Connection:
        options: dict[str, Any] = (
            {"isolation_level": "READ COMMITTED"}
            if writes
            else {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        )
        return self._engine.connect().execution_options(**options)

    def _drop(self, connection: Connection) -> None:
        """Let go of a connection that the server ended."""
        self._threads.connection = None
        if connection in self._connections:
            self._connections.remove(connection)
        with suppress(Exception):
            connection.invalidate()
        with suppress(Exception):
            connection.close()

    def _read(self, function: Callable[[Connection], T]) -> T:
        with self._explained():
            try:
                return self._read_once(function)
            except self._errors as error:
                if not _is_lost(error):
                    raise
            return self._read_once(function)

    def _read_once(self, function: Callable[[Connection], T]) -> T:
        connection = self._connection(writes=False)
        try:
            with connection.begin():
                self._narrow(connection)
                return function(connection)
        except self._errors as error:
            if _is_lost(error):
                self._drop(connection)
            raise

    def _write(self, function: Callable[[Connection], T], durable: bool, deadline: float) -> T:
        if self._refusal:
            raise StorageUnwritable(self._refusal)
        with self._explained():
            for is_last in (False, True):
                connection, has_begun = self._connection(writes=True), False
                try:
                    with connection.begin():
                        left_s = min(deadline, self._give_up_at) - time.monotonic()
                        self._lock(connection, max(1, round(left_s * 1000)))
                        self._narrow(connection)
                        has_begun = True
                        return function(connection)
                except self._errors as error:
                    if not _is_lost(error):
                        raise
                    self._drop(connection)
                    # What had begun may have been stored: only the caller knows whether it may be done twice.
                    if has_begun or is_last:
                        unreachable = self._explain(error)
                        assert isinstance(unreachable, StorageUnreachable)
                        unreachable.is_unsure = has_begun
                        raise unreachable from error
        raise AssertionError

    @staticmethod
    def _lock(connection: Connection, timeout_ms: int) -> None:
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = {timeout_ms}; SELECT {_LOCK}")

    # The schema.

    def _prepare(self) -> None:
        with self._explained():
            connection = self._connection(writes=True)
            with connection.begin():
                if _revision(connection, self.place) == HEAD:
                    self._scrub_due = state_of(connection, "scrub") is not None
                    return
            with connection.begin():
                self._lock(connection, round(self._lock_timeout_s * 1000))
                revision = _revision(connection, self.place)
                if revision is None:  # another process may have made it meanwhile
                    for statement in (*_OWN_STATEMENTS, *newest_statements(NEWEST)):
                        connection.exec_driver_sql(statement)
                elif revision != HEAD:
                    from satchel.storage.migrate import upgrade_server  # noqa: PLC0415 - Alembic takes 0.3 s of CPU

                    upgrade_server(connection, to=HEAD)
                self._scrub_due = state_of(connection, "scrub") is not None

    # What deleted rows leave.

    def note_scrub(self, connection: Connection) -> None:
        """See `Database.note_scrub`."""
        state_of(connection, "scrub", otherwise="due")

    async def expect_scrub(self) -> None:
        """See `Database.expect_scrub`."""
        await self.write(lambda connection: state_of(connection, "scrub", otherwise="due"))
        self._scrub_due = True

    @property
    def is_scrub_due(self) -> bool:
        """See `Database.is_scrub_due`; known since the database was opened here."""
        return self._scrub_due

    async def scrub(self) -> bool:
        """Write every table of the schema anew, without its dead rows. It locks one table after the other.

        Returns:
            False if a transaction that began before kept rows alive, or a lock was not to be had in two seconds.
        """
        self._scrub_due = not await self._run(self._write_pool, self._scrub)
        return not self._scrub_due

    def _scrub(self) -> bool:
        try:
            with (
                self._explained(),
                self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection,
            ):
                run = connection.exec_driver_sql
                run(f"SET lock_timeout = {round(_SCRUB_WAIT_S * 1000)}")
                horizon = run("SELECT pg_snapshot_xmax(pg_current_snapshot())::text").scalar_one()
                give_up_at = time.monotonic() + _SCRUB_WAIT_S
                while _holds_older(connection, horizon):
                    if time.monotonic() > give_up_at:
                        raise StorageLocked("A transaction that began before is still open.")
                    time.sleep(self._random.uniform(*JITTER_S))
                for (name,) in run(
                    "SELECT tablename FROM pg_tables WHERE schemaname = current_schema() ORDER BY 1"
                ).all():
                    if name in _own_tables():
                        run(f'VACUUM (FULL) "{name}"')
                run(f"DELETE FROM {_STATE} WHERE name = 'scrub'")  # noqa: S608 - a constant of the program
        except StorageError as error:
            _log.info("The database could not be scrubbed, so it may keep deleted words: %s", error)
            return False
        return True

    def _doctor(self) -> DatabaseReport:
        warnings: list[str] = []

        def look(connection: Connection) -> tuple[str, str, int]:
            run = connection.exec_driver_sql
            if state_of(connection, "scrub") is not None:
                warnings.append(
                    "Deleted words may still be in the server's files, because the tables could not be written anew "
                    "when they were deleted. It is done when Satchel is started again."
                )
            role, is_above, users = run(
                "SELECT rolname, rolsuper OR rolbypassrls, (SELECT count(DISTINCT user_id) FROM memory_spaces) "
                "FROM pg_roles WHERE rolname = current_user"
            ).one()
            if is_above and users > 1:
                warnings.append(
                    f"{users} users share the tables, and row-level security doesn't keep them apart: the role {role} "
                    "is a superuser, or has BYPASSRLS. Use a role without either; docs/guides/postgresql.md says how "
                    "to make one."
                )
            bytes = run(
                "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0) FROM pg_class c "
                "WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace"
            ).scalar_one()
            version = str(run("SHOW server_version").scalar_one()).partition(" ")[0]
            return version, str(_revision(connection, self.place)), int(bytes)

        version, revision, size, problems = "", "", 0, []
        try:
            version, revision, size = self._read(look)
        except StorageError as error:
            problems.append(str(error))
        return DatabaseReport(
            place=self.place,
            engine=f"PostgreSQL {version}".rstrip(),
            revision=revision,
            bytes=size,
            problems=tuple(problems),
            warnings=tuple(warnings),
        )

    def _explain(self, error: BaseException) -> StorageError:
        """The typed error. What the server says of rows, which may be words of memories, is left out."""
        code, words, original = _code(error), _first_line(error), _original(error)
        if code in _WAITED:
            return StorageLocked(
                f"Others wrote to {self.place} for too long. Try again; nothing was written."
            )
        if _is_lost(error):
            return StorageUnreachable(
                f"The database {self.place} can't be reached ({words}). Check that the server runs. What was not "
                "acknowledged may have to be repeated."
            )
        if isinstance(original, psycopg.Error) and original.pgconn is not None:
            return StorageError(
                f"The database {self.place} refused the connection ({words}). Check its user, password and name."
            )
        if code in _READ_ONLY:
            return StorageUnwritable(
                f"The database {self.place} can't be written ({words}). Nothing was stored."
            )
        return StorageError(f"The database {self.place} refused a statement: {words}.")


class _OfUser(PostgresDatabase):
    """What `PostgresDatabase.of` returns: all that it has is that database's, but the user."""

    __slots__ = ("_user",)

    def __init__(self, whole: PostgresDatabase, user: str) -> None:
        self.__dict__ = whole.__dict__
        self._user = user

    def _narrow(self, connection: Connection) -> None:
        # The driver takes half of the time that SQLAlchemy takes.
        driver: Any = connection.connection.driver_connection
        driver.execute("SELECT set_config('satchel.user', %s, true)", (self._user,))


def look(url: str) -> None:
    """Check that a database on a server can be used, without changing anything.

    Raises:
        ConfigError: The URL can't be read.
        StorageError: It can't be reached or used.
    """
    database = PostgresDatabase(url, clock=SystemClock(), lock_timeout_s=1.0, readers=1)
    with database._explained(), database._engine.connect() as connection:
        _revision(connection, database.place)


def _shown(address: URL) -> str:
    """The address without its password and its options, among which another could be."""
    return address.set(drivername="postgresql", query={}).render_as_string(hide_password=True)


def _engine(address: URL) -> Engine:
    engine = create_engine(
        address,
        poolclass=NullPool,
        connect_args={"application_name": "satchel", "connect_timeout": _CONNECT_S} | dict(address.query),
    )
    translate(engine.dialect)

    def on_connect(connection: Any, _record: object) -> None:
        connection.adapters.register_loader("numeric", _Whole)

    def connect(
        _dialect: object, _record: object, args: Any, options: dict[str, Any]
    ) -> psycopg.Connection[Any]:
        context = options.pop("context", None)
        try:
            return psycopg.connect(*args, context=context, **options)
        except psycopg.errors.ConnectionTimeout:
            raise
        except psycopg.OperationalError as error:
            error.sqlstate = error.sqlstate or _code_of_refusal(make_conninfo(*args, **options))
            raise

    event.listen(engine, "do_connect", connect)
    event.listen(engine, "connect", on_connect)
    return engine


def _code_of_refusal(address: str) -> str | None:
    """The SQLSTATE with which the server refuses a connection for good; None if it doesn't answer, or only not now.

    The driver has only words for it, in the language of the server. A trace of the protocol has the code.
    """
    driver = pq.PGconn.connect_start(address.encode())
    try:
        # The password may be in it, so no disk gets it.
        with os.fdopen(os.memfd_create("trace"), "w+b") as trace:
            driver.trace(trace.fileno())
            give_up_at = time.monotonic() + _CONNECT_S
            while (state := driver.connect_poll()) in (pq.PollingStatus.READING, pq.PollingStatus.WRITING):
                wanted = select.POLLIN if state == pq.PollingStatus.READING else select.POLLOUT
                waiting = select.poll()
                waiting.register(driver.socket, wanted)
                if not waiting.poll(max(0.0, give_up_at - time.monotonic()) * 1000):
                    return None
            driver.untrace()
            trace.seek(0)
            found = _TRACED_CODE.findall(trace.read())
        if state == pq.PollingStatus.OK:
            return None
        code = found[-1].decode() if found else _NEEDS_PASSWORD if driver.needs_password else ""
        return code if code.startswith(_REFUSED) else None
    except (psycopg.Error, AttributeError):  # only Linux has traces, and files in memory
        return None
    finally:
        driver.finish()


def _original(error: BaseException) -> BaseException | None:
    return error.orig if isinstance(error, DBAPIError) else error


def _code(error: BaseException) -> str:
    return getattr(_original(error), "sqlstate", None) or ""


def _is_lost(error: BaseException) -> bool:
    if code := _code(error):
        return code.startswith(_LOST)
    # A connection that was cut, or never made, has no code of the server's.
    return isinstance(_original(error), psycopg.OperationalError)


def _first_line(error: BaseException) -> str:
    original = _original(error)
    diagnosis = getattr(original, "diag", None)
    primary = getattr(diagnosis, "message_primary", None)
    return str(primary or str(original).strip().partition("\n")[0]).rstrip(".")


def state_of(connection: Connection, name: str, *, otherwise: str | None = None) -> Any:
    """A value of the state; if it isn't there and `otherwise` is given, that becomes it."""
    if otherwise is not None:
        connection.exec_driver_sql(
            f"INSERT INTO {_STATE} VALUES (%(name)s, %(value)s) ON CONFLICT DO NOTHING",  # noqa: S608
            {"name": name, "value": otherwise},
        )
    return connection.exec_driver_sql(
        f"SELECT value FROM {_STATE} WHERE name = %(name)s",  # noqa: S608
        {"name": name},
    ).scalar()


def set_state(connection: Connection, name: str, value: str) -> None:
    """Replace a value of the state."""
    connection.exec_driver_sql(
        f"INSERT INTO {_STATE} VALUES (%(name)s, %(value)s) "  # noqa: S608
        "ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        {"name": name, "value": value},
    )


def _revision(connection: Connection, place: str) -> str | None:
    """The schema's revision; None where there are no tables of ours.

    Raises:
        StorageTooNew: This program doesn't know it.
        StorageError: The tables are another program's, or the server can't serve.
    """
    run = connection.exec_driver_sql
    version, encoding, schema = run(
        "SELECT current_setting('server_version_num')::int, current_setting('server_encoding'), current_schema()"
    ).one()
    if version < _MIN_VERSION or encoding != "UTF8" or schema is None:
        why = (
            f"it is PostgreSQL {version // 10_000}, and 13 is the oldest that serves"
            if version < _MIN_VERSION
            else f"its encoding is {encoding}; create one with UTF8"
            if encoding != "UTF8"
            else "its search path names no schema"
        )
        raise StorageError(f"The database {place} can't be used: {why}.")
    there = {name for (name,) in run("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")}
    if _STATE not in there:
        if taken := there & (_own_tables() | {"alembic_version"}):
            raise StorageError(
                f"The database {place} has a table {min(taken)!r} of another program in the schema {schema!r}. It was "
                "not touched; use another schema: add ?options=-csearch_path%3DNAME to the URL."
            )
        return None
    return known_revision(str(run("SELECT version_num FROM alembic_version").scalar_one()), place)


def _holds_older(connection: Connection, horizon: str) -> bool:
    """Whether another transaction still sees what was deleted before the horizon, or keeps it: one that writes in any
    database of the server is older than a snapshot that begins now, that of VACUUM as well.
    """
    count = connection.exec_driver_sql(
        "SELECT count(*) FROM ("
        "SELECT unnest(ARRAY[backend_xmin, backend_xid]) AS oldest FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid() "
        "UNION ALL SELECT xid(pg_snapshot_xmin(pg_current_snapshot())) "
        "UNION ALL SELECT xmin FROM pg_replication_slots) others "
        "WHERE oldest IS NOT NULL AND age(oldest) > age(%(horizon)s::xid)",
        {"horizon": horizon},
    ).scalar_one()
    return bool(count)


@cache
def _own_tables() -> frozenset[str]:
    start = "CREATE TABLE "
    return frozenset(
        one.removeprefix(start).split()[0]
        for one in (*newest_statements(NEWEST), *_OWN_STATEMENTS)
        if one.startswith(start)
    )
