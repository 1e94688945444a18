"""One connection of an HTTP proxy: read what is asked, let the owner decide where it leads, pass it on.

It serves the browser and the sandbox alike. The owner decides about each request and names the addresses to dial; the
relay never resolves a name. A plain request is passed on alone, with the `Host` that was decided about, and its
connection ends with its answer. A tunnel is passed on as it is, except that the server name in a TLS greeting can be
checked. TLS itself is not opened: a server that was allowed can serve other hosts' content under its own name.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import anyio
from anyio.abc import ByteReceiveStream, ByteStream, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from satchel.sandbox.hello import MOST_HELLO_BYTES, server_name

_HOP_BY_HOP = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"proxy-authorization", b"upgrade", b"te", b"trailer")
)
_UNKNOWN_NAME = b"\x15\x03\x03\x00\x02\x02\x70"
"""A fatal TLS alert `unrecognized_name` (RFC 6066, 3)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestHead:
    """The head of a request.

    Attributes:
        place: "host:port" for a tunnel, otherwise a URL, as it was sent.
        headers: Names as they were sent: a careless server knows only "X-Auth", not "x-auth".
    """

    method: str
    place: str
    headers: tuple[tuple[bytes, bytes], ...]

    @property
    def tunnels(self) -> bool:
        """Whether a connection is asked for rather than a page."""
        return self.method == "CONNECT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Where a request goes.

    Attributes:
        addresses: Tried in this order; each was checked.
        path: For a plain request: path and query, beginning with a slash.
        host_header: For a plain request: what the server is told.
    """

    host: str
    port: int
    addresses: Sequence[str]
    path: str = "/"
    host_header: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayRefusal:
    """Why a request goes nowhere.

    Attributes:
        status: The code and a phrase. Many clients show nothing but this line.
        headers: Complete lines.
    """

    status: str
    text: str
    headers: Sequence[str] = ()


Decide: TypeAlias = Callable[[RequestHead], Awaitable[Route | RelayRefusal]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayLimits:
    """Bounds of one connection.

    Attributes:
        head_bytes: Of a request's and of an answer's head; 256 KiB is what Chromium takes.
        head_s: For the whole head of a request.
        connect_s: For each address.
        idle_s: How long nothing may pass in either direction.
    """

    head_bytes: int = 262_144
    head_s: float = 30.0
    connect_s: float = 15.0
    idle_s: float = math.inf


class Relay:
    """Serves the connections of one owner."""

    def __init__(
        self,
        decide: Decide,
        *,
        limits: RelayLimits | None = None,
        may_pass: Callable[[int], bool] | None = None,
        may_greet: Callable[[Route, str], bool] | None = None,
    ) -> None:
        """Take the decisions.

        Args:
            decide: Asked about each request; must be bounded in time.
            limits: The bounds of each connection.
            may_pass: Told the size of each piece that is passed on, in bytes; False ends the connection.
                None lets everything pass.
            may_greet: Whether a tunnel may begin with a TLS greeting to this server name. None leaves greetings unread.
        """
        self.decide = decide
        self.limits = limits or RelayLimits()
        self.may_pass = may_pass
        self.may_greet = may_greet

    async def serve(self, client: ByteStream) -> None:
        """Serve one connection to its end, and close it."""
        async with client:
            try:
                await _Connection(self, client).run()
            # A boundary: either side may hang up or talk nonsense at any moment, which ends this connection alone.
            except Exception:  # noqa: BLE001
                return


class _Connection:
    def __init__(self, relay: Relay, client: ByteStream) -> None:
        self._relay = relay
        self._limits = relay.limits
        self._client = client
        self._asked = BufferedByteReceiveStream(client)
        self._scope = anyio.CancelScope()

    async def run(self) -> None:
        with self._scope:
            with anyio.fail_after(self._limits.head_s):
                asked = _parsed(await self._asked.receive_until(b"\r\n\r\n", self._limits.head_bytes))
            decided = await self._relay.decide(asked)
            if isinstance(decided, RelayRefusal):
                await self._say(decided)
                return
            try:
                server = await self._dial(decided)
            except (OSError, TimeoutError) as error:
                text = f"{decided.host}:{decided.port} does not answer: {str(error) or 'it took too long'}."
                await self._say(RelayRefusal(status="502 Bad Gateway", text=text))
                return
            async with server:
                self._touch()
                if asked.tunnels:
                    await self._tunnel(decided, server)
                else:
                    await self._forward(asked, decided, server)

    async def _dial(self, route: Route) -> SocketStream:
        failure: OSError | TimeoutError = OSError("it has no address")
        for address in route.addresses:
            try:
                with anyio.fail_after(self._limits.connect_s):
                    return await anyio.connect_tcp(address, route.port)
            except (OSError, TimeoutError) as error:
                failure = error
        raise failure

    async def _tunnel(self, route: Route, server: SocketStream) -> None:
        await self._client.send(b"HTTP/1.1 200 Connection established\r\n\r\n")

        async def upwards() -> None:
            if self._relay.may_greet is not None:
                await server.send(await self._greeting(route, self._relay.may_greet))
            await self._pump(self._asked, server)

        async with anyio.create_task_group() as group:
            group.start_soon(upwards)
            group.start_soon(self._pump, server, self._client)

    async def _greeting(self, route: Route, may_greet: Callable[[Route, str], bool]) -> bytes:
        """The beginning of what the client says, once it is certain which server it greets, or that it greets none."""
        said = b""
        while True:
            try:
                said += await self._asked.receive()
            except anyio.EndOfStream:
                return said
            self._count(said)
            try:
                name = server_name(said)
            except ValueError:
                name = "?"
            if name is None and len(said) < MOST_HELLO_BYTES:
                continue
            if name == "" or (name is not None and may_greet(route, name)):
                return said
            await self._client.send(_UNKNOWN_NAME)
            self._scope.cancel()
            await anyio.lowlevel.checkpoint()

    async def _pump(self, source: ByteReceiveStream, sink: ByteStream) -> None:
        """One way. The end of one direction leaves the other open; a failure ends both."""
        try:
            async for piece in source:
                self._count(piece)
                await sink.send(piece)
            await sink.send_eof()
        except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            self._scope.cancel()

    async def _forward(self, asked: RequestHead, route: Route, server: SocketStream) -> None:
        """One request and its answer. The connection ends with it: the next request may be for another host."""
        length = 0
        for name, value in asked.headers:
            if name.lower() == b"content-length":
                length = int(value)
            elif name.lower() == b"transfer-encoding":
                text = (
                    "A body of unknown length is not passed on. Send it with a Content-Length, or use https."
                )
                await self._say(RelayRefusal(status="501 Not Implemented", text=text))
                return
        kept = [name + b": " + value for name, value in _end_to_end(asked.headers) if name.lower() != b"host"]
        head = [
            f"{asked.method} {route.path} HTTP/1.1".encode("latin-1"),
            b"Host: " + route.host_header.encode("ascii"),
            *kept,
        ]
        await server.send(b"\r\n".join([*head, b"Connection: close", b"", b""]))
        while length > 0:
            piece = await self._asked.receive(min(length, 65_536))
            length -= len(piece)
            self._count(piece)
            await server.send(piece)
        answer = BufferedByteReceiveStream(server)
        while True:
            # An answer may be long in the making; the idle limit bounds this.
            head_bytes = await answer.receive_until(b"\r\n\r\n", self._limits.head_bytes)
            self._count(head_bytes)
            first, *lines = head_bytes.split(b"\r\n")
            # "HTTP/1.1 103 Early Hints" and the like announce the answer, and are none.
            if not first.split(b" ")[1].startswith(b"1"):
                break
        kept = [name + b": " + value for name, value in _end_to_end(tuple(map(_parted, lines)))]
        await self._client.send(b"\r\n".join([first, *kept, b"Connection: close", b"", b""]))

        async def watch() -> None:
            # What else it says is not passed on; that it hangs up ends this.
            async for piece in self._asked:
                self._count(piece)
            self._scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(watch)
            async for piece in answer:
                self._count(piece)
                await self._client.send(piece)
            group.cancel_scope.cancel()

    def _touch(self) -> None:
        self._scope.deadline = anyio.current_time() + self._limits.idle_s

    def _count(self, piece: bytes) -> None:
        self._touch()
        if self._relay.may_pass is not None and not self._relay.may_pass(len(piece)):
            self._scope.cancel()

    async def _say(self, refusal: RelayRefusal) -> None:
        body = refusal.text.encode()
        more = "".join(f"{header}\r\n" for header in refusal.headers)
        await self._client.send(
            f"HTTP/1.1 {refusal.status}\r\nContent-Type: text/plain; charset=utf-8\r\n"
            f"Content-Length: {len(body)}\r\n{more}Connection: close\r\n\r\n".encode()
            + body
        )


def _parsed(head: bytes) -> RequestHead:
    line, *headers = head.split(b"\r\n")
    method, place, version = line.decode("latin-1").split(" ")
    if not version.startswith("HTTP/1.") or not method or not place:
        raise ValueError("it is no HTTP/1 request")
    return RequestHead(method=method, place=place, headers=tuple(map(_parted, headers)))


def _parted(header: bytes) -> tuple[bytes, bytes]:
    name, _, value = header.partition(b":")
    return name.strip(), value.strip()


def _end_to_end(headers: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Without those that are meant for this connection alone (RFC 9110, 7.6.1)."""
    listed = {
        name.strip().lower()
        for key, value in headers
        if key.lower() == b"connection"
        for name in value.split(b",")
    }
    return [(name, value) for name, value in headers if name.lower() not in _HOP_BY_HOP | listed]
