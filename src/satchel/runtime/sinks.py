"""History sinks: objects of the embedding program that receive every record of a session."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Sequence
from typing import Protocol

import anyio

from satchel.events import Record, is_transient
from satchel.runtime.background import Background
from satchel.runtime.broadcast import Broadcast

_log = logging.getLogger(__name__)

_APPEND_S = 30.0
"""The time limit of one `append`. A sink that exceeds it has failed."""


class HistorySink(Protocol):
    """Stores a session's records somewhere else, such as in the program's own database."""

    def append(self, record: Record) -> Awaitable[None] | None:
        """Store the next record, which is in the session's log already. Records come in order, one by one."""
        ...


class SinkFeed:
    """Passes the records of one session to its sinks. No turn waits for them; one that fails gets no more records."""

    def __init__(self, sinks: Sequence[HistorySink], *, broadcast: Broadcast, background: Background) -> None:
        """Start a background task for each sink, from the next record on."""
        self._ended: list[anyio.Event] = []
        for sink in sinks:
            ended = anyio.Event()
            self._ended.append(ended)
            background.start(self._feed, sink, broadcast, broadcast.last_seq, ended)

    async def _feed(
        self, sink: HistorySink, broadcast: Broadcast, after_seq: int, ended: anyio.Event
    ) -> None:
        try:
            async for record in broadcast.subscribe(after_seq):
                if is_transient(record.event):
                    continue
                with anyio.fail_after(_APPEND_S):
                    waiting = sink.append(record)
                    if waiting is not None:
                        await waiting
        # A boundary: a sink is the program's code, and nothing is lost, because the session's log has every record.
        except Exception:  # noqa: BLE001
            _log.exception("The history sink %s failed; it gets no more records.", type(sink).__name__)
        finally:
            ended.set()

    async def close(self) -> None:
        """Wait until every sink has all records. Close the broadcast first; otherwise this never returns."""
        for ended in self._ended:
            await ended.wait()
