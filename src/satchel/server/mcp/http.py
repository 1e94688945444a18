"""MCP over streamable HTTP, at `/mcp`, behind the gate that every request passes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread
from starlette.types import Receive, Scope, Send

from satchel.runtime import Satchel
from satchel.server.gate import MOST_BODY_BYTES
from satchel.server.json_answers import JsonAnswer
from satchel.server.problems import PROBLEM_TYPE, problem_fields
from satchel.server.streams import Stopping

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

_MOST_SESSIONS: Final = 256
"""Connections of clients that speak an older revision, each with a task; newer ones need none."""
_IDLE_S: Final = 1800.0
_LAST_WORDS_S: Final = 0.1
"""The ends of the subscriptions take a millisecond each."""


class McpEndpoint:
    """The ASGI application of `/mcp`. The SDK (0.7 s) is loaded by the first request."""

    def __init__(self, satchel: Satchel, stopping: Stopping) -> None:
        self._satchel = satchel
        self._stopping = stopping
        self._starting = anyio.Lock()
        self._manager: StreamableHTTPSessionManager | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        if self._stopping.has_begun:
            answer = JsonAnswer(
                problem_fields(503, "The server is stopping."), status_code=503, media_type=PROBLEM_TYPE
            )
            await answer(scope, receive, send)
            return
        async with self._starting:
            manager = self._manager or await self._start()
        await manager.handle_request(scope, receive, send)

    async def _start(self) -> StreamableHTTPSessionManager:
        await anyio.to_thread.run_sync(_load)
        is_ready = anyio.Event()
        self._satchel.parts.background.start(self._run, is_ready)
        await is_ready.wait()
        assert self._manager is not None
        return self._manager

    async def _run(self, is_ready: anyio.Event) -> None:
        """Serve until the server stops."""
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager  # noqa: PLC0415

        from satchel.server.mcp.face import McpFace  # noqa: PLC0415 - loaded in `_load`

        face = McpFace(self._satchel)
        manager = StreamableHTTPSessionManager(
            face.server,
            max_request_body_size=MOST_BODY_BYTES,
            session_idle_timeout=_IDLE_S,
            max_sessions=_MOST_SESSIONS,
        )
        async with manager.run(), anyio.create_task_group() as group:
            group.start_soon(face.watch)
            self._manager = manager
            is_ready.set()
            await self._stopping.wait()
            face.end_streams()
            # The ends of the streams are written by tasks of their own.
            await anyio.sleep(_LAST_WORDS_S)
            group.cancel_scope.cancel()


def _load() -> None:
    import mcp.server.streamable_http_manager  # noqa: F401, PLC0415

    import satchel.server.mcp.face  # noqa: F401, PLC0415
