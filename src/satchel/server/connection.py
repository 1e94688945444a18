"""A connection with a time limit for the request line and headers."""

from __future__ import annotations

import asyncio
import sys
from http import HTTPStatus
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from satchel.server.problems import PROBLEM_TYPE, problem_body

HEADERS_WAIT_S: Final = 10.0
"""How long a request may take to arrive, without its body, from the first byte of the connection or of the request."""


class GuardedConnection(H11Protocol):
    """Limits how long a request's head may take (slow loris). uvicorn limits only idle connections."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See `asyncio.Protocol`."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        if not self._has_request():
            self._wait()
        super().data_received(data)
        if self._has_request():
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._stop_waiting()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP as other errors are answered, and close the connection."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete or not cycle.response_started:
            # 431 where a line or the headers are longer than h11 takes.
            status = getattr(sys.exception(), "error_status_hint", 400)
            detail = (
                "The headers or the address are too long."
                if status == 431
                else "This is no valid HTTP request."
            )
            body = problem_body(status, detail)
            head = (
                f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: {PROBLEM_TYPE}\r\n"
                f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
            )
            self.transport.write(head.encode() + body)
        # Otherwise an answer is being sent, into which another one can't be put.
        self.transport.close()

    def _has_request(self) -> bool:
        cycle: RequestResponseCycle | None = (
            self.cycle
        )  # None before the first request, whatever its type says
        return cycle is not None and not cycle.response_complete

    def _wait(self) -> None:
        if self._waiting is None:
            self._waiting = self.loop.call_later(HEADERS_WAIT_S, self._give_up)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _give_up(self) -> None:
        self._waiting = None
        if not self._has_request():
            self.transport.close()
