"""Serves one MCP client over two streams of lines."""

from __future__ import annotations

import json
import logging
from typing import Any, Final

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp.types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from satchel.runtime.stdio import Lines, has_plain_id, refusal
from satchel.server.mcp.face import McpFace

_log = logging.getLogger(__name__)

_LAST_ANSWERS_S: Final = 10.0
"""How long open requests may take after the client has closed its stream."""


async def serve_lines(face: McpFace, lines: Lines) -> None:
    """Serve a client until it closes its stream, or no longer takes what is sent."""
    arrived, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, leaving = anyio.create_memory_object_stream[SessionMessage](0)
    pending = _Pending()
    async with anyio.create_task_group() as group:
        group.start_soon(face.watch)
        group.start_soon(_write, lines, leaving, pending, group.cancel_scope)
        group.start_soon(_read, face, lines, arrived, pending)
        await face.server.run(incoming, outgoing, face.server.create_initialization_options())
        group.cancel_scope.cancel()


class _Pending:
    """The requests that have no answer yet."""

    def __init__(self) -> None:
        self._ids: set[Any] = set()
        self._is_empty = anyio.Event()

    def asked(self, message: Any) -> None:
        if isinstance(message, JSONRPCRequest):
            self._ids.add(message.id)

    def answered(self, message: Any) -> None:
        if not hasattr(message, "method"):
            self._ids.discard(getattr(message, "id", None))
            if not self._ids:
                self._is_empty.set()

    async def none(self) -> None:
        if self._ids:
            self._is_empty = anyio.Event()
            await self._is_empty.wait()


async def _read(
    face: McpFace,
    lines: Lines,
    arrived: MemoryObjectSendStream[SessionMessage | Exception],
    pending: _Pending,
) -> None:
    async with arrived:
        async for line in lines:
            try:
                parsed = json.loads(line)
            except (ValueError, RecursionError):
                await lines.send(refusal(None, PARSE_ERROR, "The line is not JSON."))
                continue
            message = _message(line)
            # The SDK takes a request with an impossible id for a notification.
            if message is None or (isinstance(message, JSONRPCNotification) and not has_plain_id(parsed)):
                id = parsed.get("id") if isinstance(parsed, dict) else None
                await lines.send(refusal(id, INVALID_REQUEST, "The line is not a JSON-RPC message."))
                continue
            pending.asked(message)
            await arrived.send(SessionMessage(message))
        face.end_streams()
        with anyio.move_on_after(_LAST_ANSWERS_S):
            await pending.none()


async def _write(
    lines: Lines,
    leaving: MemoryObjectReceiveStream[SessionMessage],
    pending: _Pending,
    scope: anyio.CancelScope,
) -> None:
    async with leaving:
        async for sent in leaving:
            try:
                await lines.send(sent.message.model_dump_json(by_alias=True, exclude_unset=True))
            except OSError as error:
                _log.info("The client takes nothing any more: %s", error)
                scope.cancel()
                return
            pending.answered(sent.message)


def _message(line: bytes) -> JSONRPCMessage | None:
    try:
        return jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValidationError:
        return None
