"""Complete copies of a database, and whether another connection has it open."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from satchel.errors import StorageCorrupt, StorageUnwritable
from satchel.storage import sqlite
from satchel.storage.failures import code_of, explain, explain_os, is_full

_BUSY_TIMEOUT_MS = 30_000


def why_unwritable(path: Path) -> str:
    """Why SQLite can't write a database that is there; "" if it can. It writes beside a database that it only reads."""
    if not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        return "the file, its folder or the file system is read-only"
    # Where it is open, SQLite has the room, and a copy without its locks could be torn.
    is_open = Path(f"{path}-shm").exists()
    return "the disk is full" if is_full(path.parent) and not is_open else ""


def copy_database(source: Path, target: Path) -> None:
    """Write a complete and compact copy, while others may read and write the database. Its folder may be read-only, and
    its disk full. The target doesn't exist yet, and will be readable only by its owner.

    Raises:
        StorageError: The database can't be read, or the copy can't be written.
    """
    if not why_unwritable(source):
        _copy(source, target)
        return
    with TemporaryDirectory(prefix="satchel-", dir=target.parent) as folder:
        found = Path(folder) / source.name
        try:
            for ending in ("", "-wal"):
                with suppress(FileNotFoundError):
                    shutil.copyfile(f"{source}{ending}", f"{found}{ending}")
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise explain_os(error, target.parent) from error
            raise StorageUnwritable(f"The database {source} can't be read: {error.strerror}.") from error
        _copy(found, target)


def _copy(source: Path, target: Path) -> None:
    module = sqlite.driver()
    sqlite.create_file(target)  # SQLite fills the empty file, so the copy is private from the start.
    try:
        with closing(module.connect(str(source), isolation_level=None)) as connection:
            connection.execute(f"PRAGMA busy_timeout={_BUSY_TIMEOUT_MS}")
            connection.execute("VACUUM INTO ?", (str(target),))
    except module.Error as error:
        target.unlink(missing_ok=True)
        if code_of(error) == sqlite3.SQLITE_FULL:  # what is full is where the copy goes
            raise explain_os(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), target.parent) from error
        raise explain(error, str(source)) from error


def damage_of(path: Path) -> str:
    """What is wrong with a database's file, by SQLite's own check; "" if it is whole.

    Raises:
        StorageError: It can't be opened, or is locked.
    """
    module = sqlite.driver()
    try:
        with closing(module.connect(str(path), isolation_level=None)) as connection:
            connection.execute(f"PRAGMA busy_timeout={_BUSY_TIMEOUT_MS}")
            found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            connection.execute("SELECT version_num FROM alembic_version").fetchone()
    except module.Error as error:
        explained = explain(error, str(path))
        if isinstance(explained, StorageCorrupt) or "no such table" in str(error):
            return str(explained)
        raise explained from error
    return "" if found == "ok" else str(found)


def is_in_use(path: Path) -> bool:
    """Whether another connection has the database open. The content is not changed.

    SQLite leaves WAL mode only if there is no other connection.
    """
    if not path.exists():
        return False
    module = sqlite.driver()
    try:
        with closing(module.connect(str(path), isolation_level=None)) as connection:
            connection.execute("PRAGMA busy_timeout=200")
            return str(connection.execute("PRAGMA journal_mode=DELETE").fetchone()[0]).lower() != "delete"
    except module.OperationalError as error:
        if "locked" in str(error) or "busy" in str(error):
            return True
        raise explain(error, str(path)) from error
    except module.Error as error:
        raise explain(error, str(path)) from error
