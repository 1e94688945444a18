"""Answers that are streams of server-sent events."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

import anyio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from satchel.server.json_answers import json_bytes
from satchel.server.metrics import Metrics

EVENT_STREAM: Final = "text/event-stream"

_HEARTBEAT_S: Final = 15.0
"""Proxies close connections on which nothing comes; common limits begin at 30 s."""
_RETRY_MS: Final = 1000
_SEND_WAIT_S: Final = 60.0
"""A client that reads nothing for this long is considered gone, even if its connection is open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEvent:
    """One event: its name, its data, and the id from which a client resumes; "" leaves the id as it was."""

    name: str
    data: Mapping[str, Any]
    id: str = ""

    def encoded(self) -> bytes:
        """The bytes to send. JSON has no raw line breaks, so the data is one line."""
        head = f"id: {self.id}\n" if self.id else ""
        return f"{head}event: {self.name}\ndata: ".encode() + json_bytes(self.data) + b"\n\n"


@dataclass(frozen=True, slots=True)
class DataEvent:
    """An event of protocols without event names and resumption: JSON data, or a literal word."""

    data: Mapping[str, Any] | str

    def encoded(self) -> bytes:
        """The bytes to send."""
        words = self.data.encode() if isinstance(self.data, str) else json_bytes(self.data)
        return b"data: " + words + b"\n\n"


class Stopping:
    """The stages of the server's stop: first it takes no more work, then its streams end.

    Attributes:
        has_begun: Whether it takes no more work.
        restart: Set when the server is asked to start again; None where nobody would start it.
    """

    def __init__(self) -> None:
        self.has_begun = False
        self.restart: anyio.Event | None = None
        self._streams_end = anyio.Event()

    def begin(self) -> None:
        """Take no more work."""
        self.has_begun = True

    def end_streams(self) -> None:
        """End every stream, so that none holds the server up."""
        self._streams_end.set()

    async def wait(self) -> None:
        """Wait until the streams end."""
        await self._streams_end.wait()


async def until_gone(receive: Receive) -> None:
    """Wait until the client leaves, whose request was read to its end."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def sent(send: Send, data: bytes) -> bool:
    """Send a piece of an answer. False if the client reads nothing any more, even if its connection is open."""
    with anyio.move_on_after(_SEND_WAIT_S) as waiting:
        await send({"type": "http.response.body", "body": data, "more_body": True})
    return not waiting.cancelled_caught


class EventStream(Response):
    """Sends events as they come, and a comment when none has come for a while.

    It ends with the events, when the client leaves, or when the server stops. The source of the events continues.
    """

    media_type = EVENT_STREAM

    def __init__(
        self,
        events: AsyncGenerator[ServerEvent, None] | AsyncGenerator[DataEvent, None],
        *,
        stopping: Stopping,
        metrics: Metrics,
        resumes: bool = True,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Send `events`, which are closed at the end.

        Args:
            events: What is sent.
            stopping: Ends the stream with the server.
            metrics: Counts it.
            resumes: Whether clients are told to reconnect when the connection breaks.
            headers: More of them.
        """
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no", **(headers or {})})
        self._resumes = resumes
        del self.headers["content-length"]
        self._events = events
        self._stopping = stopping
        self._metrics = metrics
        self._sent_s = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        self._metrics.streams += 1
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            if await self._send_all(receive, send):
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._metrics.streams -= 1

    async def _send_all(self, receive: Receive, send: Send) -> bool:
        """Send the events. Returns whether the client still listens."""
        is_gone = False
        async with anyio.create_task_group() as group:

            async def leave() -> None:
                nonlocal is_gone
                await until_gone(receive)
                is_gone = True
                group.cancel_scope.cancel()

            async def until_stopped() -> None:
                await self._stopping.wait()
                group.cancel_scope.cancel()

            async def heartbeat() -> None:
                while True:
                    await anyio.sleep(_HEARTBEAT_S)
                    if anyio.current_time() - self._sent_s >= _HEARTBEAT_S:
                        await pass_on(b": still here\n\n")

            async def pass_on(data: bytes) -> None:
                nonlocal is_gone
                self._sent_s = anyio.current_time()
                if not await sent(send, data):
                    is_gone = True
                    group.cancel_scope.cancel()

            group.start_soon(leave)
            group.start_soon(until_stopped)
            group.start_soon(heartbeat)
            if self._resumes:
                await pass_on(f"retry: {_RETRY_MS}\n\n".encode())
            async with aclosing(self._events):
                async for event in self._events:
                    await pass_on(event.encoded())
            group.cancel_scope.cancel()
        return not is_gone
