"""A session that leaves nothing on disk."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import anyio
import anyio.to_thread

from satchel.clock import Clock
from satchel.errors import StorageError, StorageUnwritable
from satchel.events import Event, Record, is_transient
from satchel.sessions.journal import OnForgotten


class EphemeralJournal:
    """Stands in for a `Journal` and keeps the records in memory. `SessionStore.ephemeral` returns one.

    Attributes:
        session_id: The session's id. It is in no list, and the session can't be opened again.
        path: Always None: there is no file.
        chosen: Always empty.
    """

    path: None = None
    chosen: str = ""

    def __init__(self, *, session_id: str, cwd: str, clock: Clock) -> None:
        """Use `SessionStore.ephemeral`."""
        self.session_id = session_id
        self.cwd = cwd
        self._clock = clock
        self._records: list[Record] = []
        self._folder: Path | None = None
        self._is_closed = False

    @property
    def spill_dir(self) -> Path:
        """A temporary folder for results that are too long for the model. It is created on first use and removed by
        `aclose`.

        Raises:
            StorageUnwritable: It can't be created.
        """
        if self._folder is None:
            try:
                self._folder = Path(tempfile.mkdtemp(prefix="satchel-"))
            except OSError as error:
                raise StorageUnwritable(f"No temporary folder can be created: {error}.") from error
        return self._folder

    @property
    def last_seq(self) -> int:
        """See `Journal.last_seq`."""
        return len(self._records)

    async def take_rewritten(self) -> None:
        """See `Journal.take_rewritten`; there is no log."""

    async def records(self, after_seq: int = 0, limit: int = 1000) -> tuple[Record, ...]:
        """See `Journal.records`."""
        after = max(0, after_seq)
        return tuple(self._records[after : after + limit])

    async def append(
        self,
        events: Sequence[Event],
        *,
        durable: bool = False,
        forgotten: OnForgotten | None = None,
        at: datetime | None = None,
    ) -> tuple[Record, ...]:
        """Keep the events. Transient events are left out; `durable` and `forgotten` have no effect.

        Raises:
            StorageError: The session is closed.
        """
        if self._is_closed:
            raise StorageError(f"Session {self.session_id} is closed.")
        when = at or self._clock.now()
        lasting = [event for event in events if not is_transient(event)]
        records = tuple(
            Record(seq=seq, at=when, event=event) for seq, event in enumerate(lasting, self.last_seq + 1)
        )
        self._records += records
        return records

    def stop_waiting(self) -> None:
        """See `Journal.stop_waiting`; there is nothing to wait for."""

    async def aclose(self) -> None:
        """Discard everything. May be called more than once."""
        self._is_closed = True
        self._records.clear()
        folder, self._folder = self._folder, None
        if folder is not None:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(lambda: shutil.rmtree(folder, ignore_errors=True))
