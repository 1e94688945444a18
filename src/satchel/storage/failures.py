"""Converts errors of SQLite and the file system into errors that tell the user what to do."""

from __future__ import annotations

import errno
import shutil
import sqlite3
from pathlib import Path

from sqlalchemy.exc import DBAPIError

from satchel.errors import StorageCorrupt, StorageError, StorageLocked, StorageUnwritable

# The low byte of an extended result code is the primary code (sqlite.org/rescode.html).
_PRIMARY = 0xFF
_LOCKED = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_CORRUPT = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_ROOM_BYTES = 64 << 10
"""32 KB for what the connections of a database share, and some pages of its log."""
_UNWRITABLE = frozenset({sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM})


def code_of(error: BaseException) -> int:
    """The primary result code of the SQLite error in `error` or its cause; 0 if there is none."""
    original = error.orig if isinstance(error, DBAPIError) else error
    return getattr(original, "sqlite_errorcode", 0) & _PRIMARY


def is_full(folder: Path) -> bool:
    """Whether a disk has less room than SQLite needs beside a database to open it."""
    try:
        return shutil.disk_usage(folder).free < _ROOM_BYTES
    except OSError:
        return False


def is_locked(error: BaseException) -> bool:
    """Whether another connection locked the database for longer than we waited."""
    return code_of(error) in _LOCKED


def explain(error: BaseException, place: str) -> StorageError:
    """The typed error for an exception of the database driver. `place` is the path of the database, for the message."""
    code = code_of(error)
    words = str(error.orig if isinstance(error, DBAPIError) else error)
    if code in _LOCKED:
        return StorageLocked(
            f"The database {place} is locked by another process. Wait for that process or end it, then try again; "
            "nothing was written."
        )
    if code in _CORRUPT:
        return StorageCorrupt(
            f"The database {place} can't be read ({words}). It was not changed. `satchel memory rebuild` sets it aside "
            "and makes a new one from the journal and the conversation logs; `satchel restore FILE` "
            "takes a backup instead."
        )
    if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and is_full(Path(place).parent)):
        return StorageUnwritable(
            f"The disk that holds the database {place} is full. Free some space and try again. This change was not "
            "made; what was stored before is safe."
        )
    if code in _UNWRITABLE:
        return StorageUnwritable(
            f"The database {place} can't be opened for writing ({words}). Check the permissions of the file and its "
            "folder, and whether the disk is mounted read-only, or choose another location."
        )
    if code == sqlite3.SQLITE_IOERR:
        return StorageUnwritable(
            f"Reading or writing the database {place} failed ({words}). Check that the disk is mounted, healthy and "
            "not full, then try again. This change was not made."
        )
    return StorageError(f"The database {place} refused a statement: {words}.")


def explain_os(error: OSError, path: Path) -> StorageError:
    """The typed error for an error of the file system about `path`."""
    why = error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageUnwritable(f"There is no space left for {path} ({why}). Free some space and try again.")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return StorageUnwritable(
            f"{path} can't be written ({why}). Check the permissions of its folder, and whether the disk is mounted "
            "read-only, or choose another location."
        )
    return StorageError(f"{path} can't be used for a database ({why}).")
