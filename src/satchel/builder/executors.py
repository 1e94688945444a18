"""Which process runs builds: one at a time in a home, held by a lock that the kernel releases when the process dies.

A lock file says so at once on one machine. Processes on other machines that share the database are known by their
heartbeats: a row in `executors` that each writes every few seconds.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, delete, insert, select, update

from satchel.builder.tables import executors
from satchel.clock import Clock
from satchel.config import ensure_home
from satchel.errors import StorageUnwritable
from satchel.storage import Database

__all__ = ["BEAT_S", "Executors", "LauncherLock", "is_working", "new_executor_id"]

BEAT_S: Final = 5.0
"""How often a process writes its heartbeat."""
_DEAD_AFTER_S: Final = 60.0
"""A heartbeat that is older belongs to a dead process. Twelve beats: a machine may be busy, or a database locked."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def new_executor_id() -> str:
    """A name for a process, never used twice."""
    return f"{socket.gethostname()[:40]}-{os.getpid()}-{secrets.token_hex(4)}"


class LauncherLock:
    """Held by the process that runs the builds of a home."""

    def __init__(self, fd: int) -> None:
        """Use `acquire`."""
        self._fd = fd

    @classmethod
    def acquire(cls, home: Path) -> LauncherLock | None:
        """The lock, or None if another process holds it.

        Raises:
            StorageUnwritable: The lock file can't be created.
        """
        path = _path(home)
        try:
            ensure_home(path.parent)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise StorageUnwritable(f"{path} can't be written: {error.strerror}.") from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                return None
            raise StorageUnwritable(f"{path} can't be locked: {error.strerror}.") from error
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode("ascii"), 0)
        return cls(fd)

    def release(self) -> None:
        """Release the lock. The file stays: removing it would let two processes hold locks on two files."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def is_working(home: Path) -> bool:
    """Whether a process of this machine runs the builds of a home now."""
    try:
        fd = os.open(_path(home), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def _path(home: Path) -> Path:
    return home / "locks" / "worker"


class Executors:
    """The heartbeats of the processes that run builds from one database."""

    def __init__(self, database: Database, *, clock: Clock, id: str) -> None:
        """`id` is the name of this process."""
        self._database = database
        self._clock = clock
        self._host = socket.gethostname()
        self.id = id

    async def beat(self) -> None:
        """Write this process's heartbeat."""

        def write(connection: Connection) -> None:
            now = self._now()
            known = connection.execute(update(executors).where(executors.c.id == self.id).values(seen_at=now))
            if not known.rowcount:
                connection.execute(
                    insert(executors).values(
                        id=self.id, host=self._host, pid=os.getpid(), started_at=now, seen_at=now
                    )
                )

        await self._database.write(write)

    async def alive(self) -> frozenset[str]:
        """The processes that may still be working: this one, and those of other machines with a fresh heartbeat.

        Others of this machine are dead, because this process holds their lock.
        """
        fresh = self._now() - int(_DEAD_AFTER_S * 1e6)
        query = select(executors.c.id).where(executors.c.host != self._host, executors.c.seen_at >= fresh)
        rows = await self._database.read(lambda connection: connection.execute(query).scalars().all())
        return frozenset((*rows, self.id))

    async def leave(self) -> None:
        """Remove this process's row, and those of processes that died long ago."""
        old = self._now() - int(24 * 3600 * 1e6)
        gone = delete(executors).where((executors.c.id == self.id) | (executors.c.seen_at < old))
        await self._database.write(lambda connection: connection.execute(gone))

    def _now(self) -> int:
        return (self._clock.now() - _EPOCH) // timedelta(microseconds=1)
