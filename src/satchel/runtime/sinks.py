"""History sinks: objects of the embedding program that get every record of a session."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Sequence
from typing import Protocol

import anyio

from satchel.events import Record, is_transient
from satchel.runtime.background import Background
from satchel.runtime.broadcast import Broadcast

__all__ = ["HistorySink", "SinkFeed"]

_log = logging.getLogger(__name__)

_APPEND_S = 30.0
"""How long a sink may take for one record before it counts as failed."""


class HistorySink(Protocol):
    """Keeps a session's records somewhere else, such as the program's own database."""

    def append(self, record: Record) -> Awaitable[None] | None:
        """Take the next record, after it is in the session's log. Records come in order and one at a time."""
        ...


class SinkFeed:
    """Feeds the sinks of one session. A turn never waits for them; a sink that raises gets no more records."""

    def __init__(self, sinks: Sequence[HistorySink], *, broadcast: Broadcast, background: Background) -> None:
        """Begin with the next record."""
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
        # A boundary: a sink is somebody else's code, and the session's own log has everything.
        except Exception:  # noqa: BLE001
            _log.exception("The history sink %s failed; it gets no more records.", type(sink).__name__)
        finally:
            ended.set()

    async def close(self) -> None:
        """Wait until every sink has the records that there are; the broadcast must be closed by then."""
        for ended in self._ended:
            await ended.wait()
