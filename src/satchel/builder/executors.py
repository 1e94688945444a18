"""Which process runs builds: one at a time in a home, held by a lock that the kernel releases when the process dies.

A lock file (`sandbox.detached.WorkerLock`) says so at once on one machine. Processes on other machines that share the
database are known by their heartbeats: a row in `executors` that each writes every few seconds.
"""

from __future__ import annotations

import os
import secrets
import socket
from datetime import UTC, datetime, timedelta
from typing import Final

from sqlalchemy import Connection, delete, insert, select, update

from satchel.builder.tables import executors
from satchel.clock import Clock
from satchel.storage import Database

__all__ = ["BEAT_S", "WORKER", "Executors", "new_executor_id"]

WORKER: Final = "worker"
"""The name of the lock."""
BEAT_S: Final = 5.0
"""How often a process writes its heartbeat."""
_DEAD_AFTER_S: Final = 60.0
"""A heartbeat that is older belongs to a dead process. Twelve beats: a machine may be busy, or a database locked."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def new_executor_id() -> str:
    """A name for a process, never used twice."""
    return f"{socket.gethostname()[:40]}-{os.getpid()}-{secrets.token_hex(4)}"


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
