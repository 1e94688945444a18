"""Transports for the SDK: a program's stdin and stdout, and HTTP.

The SDK's own stdio transport is not used, because processes start through the sandbox, which ends everything that they
started. All transports bound what a server sends.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import anyio

from satchel.config import McpServerSettings
from satchel.errors import SandboxError
from satchel.sandbox.running import RunningProcess, run_alongside

if TYPE_CHECKING:
    from httpx2 import Auth
    from mcp.client._transport import TransportStreams

MAX_MESSAGE_BYTES = 16 * 2**20
"""Of one message, far above any useful result. Reading this much takes 0.2 s."""
MAX_NOISE_LINES = 1_000
"""Lines on stdout that aren't messages before the connection is given up. Some programs print a greeting."""
CONNECT_S, READ_S = 30.0, 300.0
"""For connecting, and between two parts of a response: the SDK's defaults."""


class Launch(Protocol):
    """Runs a program for as long as a block lasts; see `run_alongside`."""

    def __call__(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        environ: Mapping[str, str],
        on_stderr: Callable[[bytes], None],
    ) -> AbstractAsyncContextManager[RunningProcess]:
        """Run it."""
        ...


OnGone: TypeAlias = Callable[[str], None]
"""Called with the reason when the server ends the connection."""

_LAST_WORDS_S = 1.0
"""For what an exited program has written to be read, which takes milliseconds on an idle machine."""
_TOO_LONG = f"the response is longer than {MAX_MESSAGE_BYTES // 2**20} MiB"
_ID = re.compile(rb'"id"\s*:\s*(\d{1,15}|"[^"\\]{1,100}")')


@asynccontextmanager
async def stdio_transport(
    entry: McpServerSettings,
    *,
    cwd: Path,
    environ: Mapping[str, str],
    log: Callable[[bytes], None],
    on_gone: OnGone,
    launch: Launch = run_alongside,
) -> AsyncIterator[TransportStreams]:
    """Run the entry's program and talk to it; it and everything that it started end with the block. `log` receives its
    stderr, and the lines of its stdout that aren't messages; `on_gone` is called when it exits or closes its stdout.

    Raises:
        SandboxError: It can't be started.
    """
    from mcp.shared.message import SessionMessage  # noqa: PLC0415  heavy: 0.7 s, see `connection`

    async with launch([entry.command, *entry.args], cwd=cwd, environ=environ, on_stderr=log) as process:
        incoming_in, incoming_out = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        outgoing_in, outgoing_out = anyio.create_memory_object_stream[SessionMessage](0)

        has_ended = anyio.Event()

        async def read() -> None:
            reason = "it exited"
            async with incoming_in:
                try:
                    reason = await _read_messages(process, incoming_in.send, log)
                except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                    pass  # the session is gone
                finally:
                    on_gone(reason)
                    has_ended.set()

        async def write() -> None:
            try:
                async for message in outgoing_out:
                    text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                    await process.send(text.encode() + b"\n")
            except SandboxError:
                # Whoever has exited says more at the end of its output. Otherwise its stdout may be open, but it takes
                # no more requests.
                with anyio.move_on_after(_LAST_WORDS_S):
                    await has_ended.wait()
                if not has_ended.is_set():
                    on_gone("it closed its input")
                await incoming_in.aclose()

        async with incoming_in, incoming_out, outgoing_in, outgoing_out, anyio.create_task_group() as group:
            group.start_soon(read)
            group.start_soon(write)
            try:
                yield incoming_out, outgoing_in
            finally:
                group.cancel_scope.cancel()


async def _read_messages(
    process: RunningProcess, send: Callable[[Any], Any], log: Callable[[bytes], None]
) -> str:
    """Pass on each line that is a message until the stream ends; returns why it ended."""
    from mcp.shared.message import SessionMessage  # noqa: PLC0415
    from mcp.types import jsonrpc_message_adapter  # noqa: PLC0415

    rest = bytearray()
    head = b""
    noise = 0
    while chunk := await process.receive():
        *lines, last = chunk.split(b"\n")
        for line in lines:
            whole = bytes(rest) + line
            rest.clear()
            if head:
                # The end of a line that was too long: its request gets an error.
                refusal = _refusal(head, whole[-200:])
                head = b""
                if refusal is None:
                    return f"it sent more than {MAX_MESSAGE_BYTES // 2**20} MiB in one line"
                await send(SessionMessage(jsonrpc_message_adapter.validate_json(refusal)))
                continue
            if not whole.strip():
                continue
            try:
                message = jsonrpc_message_adapter.validate_json(whole, by_name=False)
            except (ValueError, RecursionError):
                log(b"[not a message] " + whole[:2_000] + b"\n")
                noise += 1
                if noise > MAX_NOISE_LINES:
                    return "what it sends is not MCP"
                continue
            await send(SessionMessage(message))
        rest += last
        if len(rest) > MAX_MESSAGE_BYTES:
            head = head or bytes(rest[:200])
            # The last part is kept because the id of the request may be in it.
            del rest[:-200]
    return "it exited"


def _refusal(head: bytes, tail: bytes) -> bytes | None:
    """An error response in place of one that is too long; None if its request can't be identified."""
    start = head.split(b'"result"')[0]
    found = _ID.search(start) or next(reversed(list(_ID.finditer(tail))), None)
    if found is None:
        return None
    return b'{"jsonrpc":"2.0","id":%b,"error":{"code":-32603,"message":"%b"}}' % (
        found[1],
        _TOO_LONG.encode(),
    )


@asynccontextmanager
async def http_transport(entry: McpServerSettings, auth: Auth) -> AsyncIterator[TransportStreams]:
    """Reach a server by streamable HTTP."""
    from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415  heavy

    async with (
        _http_client(entry.headers, auth) as client,
        streamable_http_client(
            entry.url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES
        ) as streams,
    ):
        yield streams


@asynccontextmanager
async def sse_transport(entry: McpServerSettings, auth: Auth) -> AsyncIterator[TransportStreams]:
    """Reach a server by HTTP with server-sent events, as it was done before 2025."""
    from mcp.client.sse import sse_client  # noqa: PLC0415  heavy

    def client(headers: dict[str, str] | None = None, timeout: Any = None, auth: Any = None) -> Any:  # noqa: ARG001  the SDK's shape
        return _http_client({**entry.headers, **(headers or {})}, auth)

    async with sse_client(entry.url, timeout=CONNECT_S, httpx_client_factory=client, auth=auth) as streams:
        yield streams


def _http_client(headers: Mapping[str, str], auth: Auth) -> Any:
    """A client that bounds JSON responses; the SDK bounds the events of a stream."""
    import httpx2  # noqa: PLC0415  heavy

    async def bound(response: httpx2.Response) -> None:
        is_compressed = response.headers.get("content-encoding", "identity").lower() != "identity"
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if is_compressed or kind != "text/event-stream":
            response.stream = _Bounded(response.stream, is_compressed=is_compressed)

    class _Bounded(httpx2.AsyncByteStream):
        # The SDK turns a `StreamError` into an error of the request; others end the connection, with every
        # request on it.
        def __init__(self, inner: Any, *, is_compressed: bool) -> None:
            self._inner = inner
            self._is_compressed = is_compressed

        async def __aiter__(self) -> AsyncIterator[bytes]:
            if self._is_compressed:
                # Not requested, and a few compressed bytes can be gigabytes.
                raise httpx2.StreamError("the response is compressed, although that was not requested")
            left = MAX_MESSAGE_BYTES
            async for chunk in self._inner:
                left -= len(chunk)
                if left < 0:
                    raise httpx2.StreamError(_TOO_LONG)
                yield chunk

        async def aclose(self) -> None:
            await self._inner.aclose()

    return httpx2.AsyncClient(
        headers={**headers, "accept-encoding": "identity"},
        auth=auth,
        timeout=httpx2.Timeout(CONNECT_S, read=READ_S),
        event_hooks={"response": [bound]},
    )
