"""The one way out of the browser: a proxy on loopback that dials only what the address rules let through.

Intercepting requests inside the browser would miss what a redirect leads to, sockets, and a name that changes its
address between the check and the connection; here every connection is checked, and the checked address is dialled.

Any process of this machine can connect to a port of loopback, and what the user allowed to this browser is allowed to
nobody else: it serves only who knows its password, which is made anew for each and known to the browser alone.
"""

from __future__ import annotations

import base64
import hmac
import secrets
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeAlias

import anyio
from anyio.abc import ByteReceiveStream, ByteStream, SocketAttribute, SocketListener, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from satchel.errors import SatchelError
from satchel.tools.web.addresses import AddressRules, Target

__all__ = ["USER", "Gateway", "Spawn"]

USER = "satchel"
Spawn: TypeAlias = Callable[[Callable[[], Coroutine[Any, Any, None]]], None]
"""Runs something in the background, in a task group that outlives the browser."""

_HEAD_S = 30.0
_CONNECT_S = 15.0
_MOST_HEAD_BYTES = 262_144
"""Of a request's or an answer's head: what Chromium itself takes."""
_MOST_REFUSALS = 100
_ASKS_WHO = 'Proxy-Authenticate: Basic realm="satchel"'
_STRANGER = "This proxy serves one browser of Satchel's."
_HOP_BY_HOP = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"proxy-authorization", b"upgrade")
)


class Gateway:
    """Serves one browser.

    Attributes:
        url: What the browser is told as its proxy; its user is `USER`.
        password: What it has to prove that it is this browser.
        refused: Why a host was not dialled, by "host:port".
    """

    def __init__(self, rules: AddressRules) -> None:
        """Take the rules; nothing listens yet."""
        self._rules = rules
        self._scope = anyio.CancelScope()
        self._is_over = anyio.Event()
        self.url = ""
        self.password = secrets.token_urlsafe(24)
        self.refused: dict[str, str] = {}

    async def open(self, spawn: Spawn) -> None:
        """Listen on a port of loopback."""
        listeners = await anyio.create_tcp_listener(local_host="127.0.0.1")
        listener = listeners.listeners[0]
        assert isinstance(listener, SocketListener)
        self.url = f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"

        async def serve() -> None:
            try:
                with self._scope:
                    async with listener:
                        await listener.serve(self._serve)
            finally:
                self._is_over.set()

        spawn(serve)

    async def aclose(self) -> None:
        """End every connection."""
        if self.url:
            self._scope.cancel()
            await self._is_over.wait()

    async def _serve(self, browser: SocketStream) -> None:
        async with browser:
            try:
                await self._answer(browser, BufferedByteReceiveStream(browser))
            # A boundary: either side may hang up or talk nonsense at any moment, which ends this connection alone.
            except Exception:  # noqa: BLE001
                return

    async def _answer(self, browser: SocketStream, asked: BufferedByteReceiveStream) -> None:
        with anyio.fail_after(_HEAD_S):
            line, *headers = (await asked.receive_until(b"\r\n\r\n", _MOST_HEAD_BYTES)).split(b"\r\n")
        method, place, _ = line.decode("latin-1").split(" ")
        if not self._is_known(headers):
            await _say(browser, "407 Proxy Authentication Required", _STRANGER, [_ASKS_WHO])
            return
        tunnels = method == "CONNECT"
        try:
            target = await self._rules.check(f"https://{place}" if tunnels else place)
        except SatchelError as error:
            self._keep(place, str(error))
            await _say(browser, "403 Forbidden", str(error))
            return
        try:
            with anyio.fail_after(_CONNECT_S):
                server = await anyio.connect_tcp(target.address, target.port)
        except (OSError, TimeoutError) as error:
            await _say(browser, "502 Bad Gateway", f"{target.host} does not answer: {error}.")
            return
        async with server:
            if tunnels:
                await browser.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
                await _relay(browser, asked, server)
            else:
                await _forward(method, target, headers, browser, asked, server)

    def _is_known(self, headers: Sequence[bytes]) -> bool:
        said = [value for name, value in map(_parted, headers) if name == b"proxy-authorization"]
        expected = b"Basic " + base64.b64encode(f"{USER}:{self.password}".encode())
        return len(said) == 1 and hmac.compare_digest(said[0], expected)

    def _keep(self, place: str, reason: str) -> None:
        if len(self.refused) < _MOST_REFUSALS:
            self.refused[place] = reason


async def _relay(browser: SocketStream, asked: ByteReceiveStream, server: ByteStream) -> None:
    """Both ways, until one side has had enough."""

    async def pump(source: ByteReceiveStream, sink: ByteStream) -> None:
        try:
            async for piece in source:
                await sink.send(piece)
            await sink.send_eof()
        except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(pump, asked, server)
        group.start_soon(pump, server, browser)


async def _forward(
    method: str,
    target: Target,
    headers: list[bytes],
    browser: SocketStream,
    asked: BufferedByteReceiveStream,
    server: SocketStream,
) -> None:
    """One request and its answer. The connection ends with it: the next request may be for another host."""
    length = 0
    for name, value in (_parted(header) for header in headers):
        if name == b"content-length":
            length = int(value)
        elif name == b"transfer-encoding":
            await _say(browser, "501 Not Implemented", "A body of unknown length is not passed on.")
            return
    path = target.url.split("://", 1)[1].partition("/")[2]
    kept = [header for header in headers if _parted(header)[0] not in (*_HOP_BY_HOP, b"host")]
    head = [
        f"{method} /{path} HTTP/1.1".encode("latin-1"),
        b"Host: " + target.host_header.encode("ascii"),
        *kept,
    ]
    await server.send(b"\r\n".join([*head, b"Connection: close", b"", b""]))
    while length > 0:
        piece = await asked.receive(min(length, 65_536))
        length -= len(piece)
        await server.send(piece)
    answer = BufferedByteReceiveStream(server)
    while True:
        first, *lines = (await answer.receive_until(b"\r\n\r\n", _MOST_HEAD_BYTES)).split(b"\r\n")
        # "HTTP/1.1 103 Early Hints" and the like announce the answer, and are none.
        if not first.split(b" ")[1].startswith(b"1"):
            break
    kept = [header for header in lines if _parted(header)[0] not in _HOP_BY_HOP]
    await browser.send(b"\r\n".join([first, *kept, b"Connection: close", b"", b""]))

    async def watch() -> None:
        # What else it says is not passed on; that it hangs up ends this.
        async for _ in asked:
            pass
        group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(watch)
        async for piece in answer:
            await browser.send(piece)
        group.cancel_scope.cancel()


def _parted(header: bytes) -> tuple[bytes, bytes]:
    name, _, value = header.partition(b":")
    return name.strip().lower(), value.strip()


async def _say(browser: SocketStream, status: str, text: str, headers: Sequence[str] = ()) -> None:
    body = text.encode()
    more = "".join(f"{header}\r\n" for header in headers)
    await browser.send(
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        f"{more}Connection: close\r\n\r\n".encode()
        + body
    )
