"""Inspects and creates SQLite files and connects to them."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.pool import NullPool, StaticPool

from satchel.errors import StorageError
from satchel.storage.database import MEMORY
from satchel.storage.failures import explain, explain_os
from satchel.storage.schema import known_revision

__all__ = ["MEMORY"]

BEGIN = "satchel_begin"
"""The execution option that says how the transactions of a connection begin: "IMMEDIATE" or "DEFERRED"."""

# Network file systems, and folders that a virtual machine shares with its host: SQLite's locks and shared memory don't
# work across machines (sqlite.org/wal.html).
_NETWORK = frozenset(
    (
        "9p", "afs", "ceph", "cifs", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs", "lustre", "ncpfs",
        "nfs", "nfs4", "smb", "smb2", "smb3", "vboxsf", "virtiofs",
    )
)  # fmt: skip


def driver() -> ModuleType:
    """The newest SQLite available: `pysqlite3` if it is installed, otherwise the standard library's."""
    try:
        # An optional package: SQLite before 3.51.3 has a known corruption bug, and many systems have an older one.
        from pysqlite3 import dbapi2  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415
    except ImportError:
        return sqlite3
    module: ModuleType = dbapi2
    return module


def refuse_network(folder: Path, mounts: Path = Path("/proc/self/mountinfo")) -> None:
    """Refuse a folder on a network file system, if the kernel says what it is.

    Raises:
        StorageError: The folder is on a network file system.
    """
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return  # Not Linux, so there is no such file.
    longest, kind = -1, ""
    for line in lines:
        left, _, right = line.partition(" - ")
        fields, after = left.split(), right.split()
        if len(fields) < 5 or not after:
            continue
        point = Path(fields[4].replace("\\040", " "))
        if folder.is_relative_to(point) and len(point.parts) >= longest:
            longest, kind = len(point.parts), after[0]
    if kind in _NETWORK:
        raise StorageError(
            f"{folder} is on a network file system ({kind}), where SQLite can't lock reliably and "
            "databases get corrupted. Choose a folder on a local disk."
        )


def create_file(path: Path) -> None:
    """Create an empty file that only its owner can read, unless it exists.

    SQLite gives the write-ahead log the permissions of the database. An existing file is not opened here, because
    closing a descriptor of a database that this process has open would release its locks.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        if not path.parent.is_dir() or path.is_dir():
            raise StorageError(f"{path} is a folder; a database is a file. Choose another name.") from None
    except OSError as error:
        raise explain_os(error, path) from error


def look(path: Path, *, busy_timeout_ms: int) -> str | None:
    """Read the schema revision of a database without changing the file.

    Returns:
        The revision, or None for an empty file.

    Raises:
        StorageTooNew: This program doesn't know the revision.
        StorageError: It isn't a database of Satchel, or it can't be read.
    """
    place = str(path)
    module = driver()
    try:
        try:
            # Without a write-ahead log there is nothing to recover, and SQLite needn't create its two files.
            tables, row = _peek(module, place, "mode=ro" if Path(f"{place}-wal").exists() else "immutable=1")
        except module.DatabaseError:
            # Another process may have just created the log: read again, with locks.
            tables, row = _peek(module, place, "mode=ro", busy_timeout_ms=busy_timeout_ms)
    except module.Error as error:
        raise explain(error, place) from error
    if row is None:
        if tables - {"alembic_version"}:
            raise StorageError(
                f"{place} is an SQLite database of another program (it has the table "
                f"{min(tables)!r}). It was not touched; choose another file."
            )
        return None
    return known_revision(str(row[0]), place)


def _peek(
    module: ModuleType, place: str, how: str, *, busy_timeout_ms: int = 0
) -> tuple[set[str], tuple[object] | None]:
    """The names of the tables, and the row in `alembic_version`."""
    connection = module.connect(f"file:{quote(place)}?{how}", uri=True, isolation_level=None)
    try:
        connection.execute(f"PRAGMA busy_timeout={busy_timeout_ms}")
        found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        tables = {name for (name,) in found}
        row = None
        if "alembic_version" in tables:
            row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        return tables, row
    finally:
        connection.close()


def make_engine(place: str, *, busy_timeout_ms: int) -> Engine:
    """An engine without a pool, because each thread of the database keeps its own connection."""
    module = driver()

    def connect() -> Any:
        # The driver must not begin transactions implicitly; `on_begin` does. A connection is used by one thread at a
        # time and closed by another.
        name = place if place == MEMORY else f"file:{quote(place)}?mode=rw"
        return module.connect(name, uri=True, isolation_level=None, check_same_thread=False)

    def on_connect(connection: Any, _record: object) -> None:
        execute: Callable[[str], Any] = connection.execute
        # This comes first, because the other pragmas may have to wait for a lock.
        execute(f"PRAGMA busy_timeout={busy_timeout_ms}")
        execute("PRAGMA foreign_keys=ON")
        # Deleted data is overwritten with zeros, so that forgotten words don't stay in free pages.
        execute("PRAGMA secure_delete=ON")
        if place != MEMORY:
            if execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                execute("PRAGMA journal_mode=WAL")
            execute("PRAGMA synchronous=NORMAL")

    def on_begin(connection: Connection) -> None:
        # Directly through the driver: SQLAlchemy needs 40 µs more, a tenth of what storing a memory takes.
        begin = connection.get_execution_options().get(BEGIN, "IMMEDIATE")
        connection.connection.cursor().execute(f"BEGIN {begin}")

    engine = create_engine(
        "sqlite://", creator=connect, module=module, poolclass=StaticPool if place == MEMORY else NullPool
    )
    event.listen(engine, "connect", on_connect)
    event.listen(engine, "begin", on_begin)
    return engine


def version_warnings(version: Sequence[int]) -> list[str]:
    """Warnings about known defects of this version of SQLite."""
    if tuple(version) < (3, 51, 3):
        dotted = ".".join(str(part) for part in version)
        return [
            f"SQLite {dotted} has a rare corruption bug in its write-ahead log (fixed in 3.51.3). "
            f"`{sys.executable} -m pip install pysqlite3-binary` installs a newer one if there is a wheel."
        ]
    return []
