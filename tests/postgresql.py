"""A PostgreSQL server for the tests: one for all workers of a run, which ends when the run does."""

from __future__ import annotations

import fcntl
import hashlib
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import psycopg
import pytest
from psycopg.errors import DuplicateDatabase

from satchel.storage.postgresql import _OWN_STATEMENTS, NEWEST
from satchel.storage.schema import newest_statements

__all__ = ["Server", "is_installed", "server_of"]

_RUNS = """
(
"$1/postgres" -D "$2/data" -k "$2" -c listen_addresses= -c fsync=off -c full_page_writes=off \
    -c max_connections=300 -c max_locks_per_transaction=256 -c autovacuum=off >"$2/log" 2>&1 &
server=$!
while [ -d "/proc/$3" ]; do sleep 1; done
kill -INT $server
wait $server
rm -rf "$2"
) &
"""
"""The server, and what ends it once the test run is gone, however that ended."""


class Server:
    """A running server, on a socket that only the tests know."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def url(self, schema: str, *, role: str = "satchel") -> str:
        """Where a test's own schema is; it is created if it isn't there. `satchel` is a superuser, `ordinary` isn't."""
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}" AUTHORIZATION {role}'.encode())
        return f"{self._url.replace('satchel@', f'{role}@')}&options=-csearch_path%3D{schema}"

    def database(self, name: str) -> str:
        """Where a test's own database is, which is created: a transaction that another test has open keeps the deleted
        rows of its database.
        """
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"'.encode())
        return self._url.replace("/postgres?", f"/{name}?")

    def copy(self, path: Path | str, *, role: str = "satchel") -> str:
        """Where a database of a test's own is that stands for a file; it is made, with the newest tables, if it isn't
        there. To copy one takes an eighth of the CPU that it takes to make the tables.
        """
        name = self.schema_for(path)
        with psycopg.connect(self._url, autocommit=True) as connection, suppress(DuplicateDatabase):
            how = "STRATEGY file_copy" if connection.info.server_version >= 150_000 else ""
            connection.execute(f'CREATE DATABASE "{name}" TEMPLATE newest_{role} OWNER {role} {how}'.encode())
        return self._url.replace("satchel@", f"{role}@").replace("/postgres?", f"/{name}?")

    def schema_for(self, path: Path | str) -> str:
        """The schema that stands for a file in a test."""
        return f"t_{hashlib.sha256(os.fsencode(Path(path).absolute())).hexdigest()[:24]}"

    def has(self, words: str) -> bool:
        """Whether bytes are in any file of the server but its write-ahead log, once all is written."""
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute("CHECKPOINT")
        found = subprocess.run(
            ["grep", "-rlaF", "--exclude-dir=pg_wal", words, str(self.folder / "data")],
            capture_output=True,
            text=True,
            check=False,
        )
        return bool(found.stdout)

    @property
    def _url(self) -> str:
        return f"postgresql://satchel@/postgres?host={self.folder}"


@cache
def _programs() -> Path | None:
    found = [*Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    path = shutil.which("initdb")
    found += [Path(path)] if path else []
    return found[-1].resolve().parent if found else None


def is_installed() -> bool:
    """Whether a server can be started."""
    return _programs() is not None


@contextmanager
def _alone(file: Path) -> Iterator[None]:
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def server_of(factory: pytest.TempPathFactory) -> Server:
    """The server of this run, which the first test that needs it starts."""
    programs = _programs()
    if programs is None:
        pytest.skip("PostgreSQL isn't installed: sudo apt-get install postgresql")
    is_worker = "PYTEST_XDIST_WORKER" in os.environ
    shared = factory.getbasetemp().parent if is_worker else factory.getbasetemp()
    with _alone(shared / "postgresql.lock"):
        note = shared / "postgresql"
        if not note.exists():
            note.write_text(str(_start(programs, os.getppid() if is_worker else os.getpid())))
        return Server(Path(note.read_text()))


def _start(programs: Path, run: int) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="satchel-postgresql-"))
    # The server refuses to run as root.
    user = None if os.geteuid() else pwd.getpwnam("nobody").pw_uid
    if user is not None:
        os.chown(folder, user, -1)
    subprocess.run(
        [
            programs / "initdb",
            "-D",
            folder / "data",
            "-U",
            "satchel",
            "-A",
            "trust",
            "-N",
            "-E",
            "UTF8",
            "--locale=C",
        ],
        check=True,
        capture_output=True,
        user=user,
        cwd="/",
    )
    subprocess.run(
        ["/bin/sh", "-c", _RUNS, "sh", str(programs), str(folder), str(run)],
        user=user,
        cwd="/",
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    for _ in range(600):
        try:
            with psycopg.connect(f"postgresql://satchel@/postgres?host={folder}") as connection:
                connection.execute("CREATE ROLE ordinary LOGIN")
                # A test of people takes this from everybody.
                connection.execute("GRANT CONNECT ON DATABASE postgres TO ordinary")
        except psycopg.OperationalError:
            time.sleep(0.1)  # until its socket is there
        else:
            _make_templates(Server(folder))
            return folder
    pytest.fail((folder / "log").read_text())


def _make_templates(server: Server) -> None:
    for role in ("satchel", "ordinary"):
        with psycopg.connect(server.database(f"newest_{role}"), autocommit=True) as connection:
            connection.execute(f"ALTER DATABASE newest_{role} OWNER TO {role}".encode())
            connection.execute(f"GRANT CREATE ON SCHEMA public TO {role}".encode())
            connection.execute(f"SET ROLE {role}".encode())
            for statement in (*_OWN_STATEMENTS, *newest_statements(NEWEST)):
                connection.execute(statement.encode())
