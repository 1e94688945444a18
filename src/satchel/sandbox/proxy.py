"""The one way out of a sandbox: a filtering HTTP proxy on a Unix socket, one for each run, session or box.

A sandbox has a network of its own, with nothing in it but a loopback interface. The socket is visible inside, and a
forwarder there (`guest/forwarder.py`) makes it a port that HTTP clients can use. What was allowed belongs to the
socket: no other program can reach it.

Every request names a host. It must fit one of the run's patterns; then the name is resolved once, every address is
checked, and a checked address is dialled. Addresses that are not public are refused, however they are written, unless
the user allowed that host and port in the settings. The server name in a TLS greeting must be allowed too. What is
refused is recorded and explained to the program in the sandbox.

What it can't see: inside of TLS, an allowed server can serve content under other names. To allow a host means to trust
whoever runs it with everything that the sandbox knows.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import anyio
from anyio.abc import ByteStream

from satchel.addresses import DEFAULT_PORTS, Resolve, ascii_host, is_public, resolve_name
from satchel.errors import SandboxError, UsageError
from satchel.sandbox.port import Denial, Network
from satchel.sandbox.relay import Relay, RelayLimits, RelayRefusal, RequestHead, Route

_RESOLVE_S = 10.0
_MOST_ADDRESSES = 4
_MOST_DENIED = 100
_MOST_HOST_CHARS = 253
"""The longest name of the DNS (RFC 1035, 2.3.4)."""
_PATTERN = re.compile(r"(?P<stars>\*\.)?(?P<host>\[[^\]]*\]|[^:]*)(?::(?P<port>\d{1,5}))?")
_ACCEPT_PAUSE_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPattern:
    """A host that may be reached.

    Attributes:
        host: As `ascii_host` writes it.
        port: None means 80 and 443.
        with_subdomains: Written `*.host`: all names below the host, at any depth, and not the host itself.
    """

    host: str
    port: int | None
    with_subdomains: bool

    @classmethod
    def parse(cls, text: str) -> HostPattern:
        """Read "example.org", "example.org:8443", "*.example.org", "127.0.0.1:8000" or "[::1]:8000".

        Raises:
            UsageError: It is none of these; the message says why.
        """
        match = _PATTERN.fullmatch(text)
        try:
            if match is None:
                raise ValueError("write HOST, HOST:PORT or *.HOST")
            host, port = ascii_host(match["host"].strip("[]")), match["port"]
            if len(host) > _MOST_HOST_CHARS:
                raise ValueError("no host has such a long name")
            if port is not None and not 0 < int(port) < 65_536:
                raise ValueError("there is no such port")
            if match["stars"] and ("." not in host or _is_address(host)):
                raise ValueError("the star stands before a domain such as example.org")
        except ValueError as error:
            raise UsageError(f"{text[:200]!r} names no host that could be reached: {error}.") from error
        return cls(host=host, port=int(port) if port else None, with_subdomains=bool(match["stars"]))

    def fits(self, host: str, port: int) -> bool:
        """Whether a host, as `ascii_host` writes it, and a port are meant."""
        if port != self.port and (self.port is not None or port not in DEFAULT_PORTS.values()):
            return False
        return host.endswith(f".{self.host}") if self.with_subdomains else host == self.host

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'*.' if self.with_subdomains else ''}{host}{'' if self.port is None else f':{self.port}'}"


class HostRules:
    """What one run may reach."""

    def __init__(
        self,
        hosts: Sequence[str] = (),
        *,
        public: bool = False,
        allow_private: Collection[str] = (),
        resolve: Resolve = resolve_name,
    ) -> None:
        """Take the rules of a run.

        Args:
            hosts: Patterns; see `HostPattern.parse`.
            public: Every public host may be reached, at any port.
            allow_private: Patterns of hosts that the user allowed to be private. This alone allows nothing: `hosts`
                or `public` must allow them too.
            resolve: Gives the addresses of names.

        Raises:
            UsageError: A pattern can't be read.
        """
        self.patterns = tuple(HostPattern.parse(host) for host in hosts)
        self.public = public
        self._private = tuple(HostPattern.parse(host) for host in allow_private)
        self._resolve = resolve

    def allows(self, host: str, port: int) -> bool:
        """Whether the patterns allow a host; its addresses are checked by `addresses`."""
        return self.public or any(pattern.fits(host, port) for pattern in self.patterns)

    async def addresses(self, host: str, port: int) -> Sequence[str] | Denial:
        """What may be dialled for an allowed host.

        Raises:
            OSError: The host has no address.
        """
        try:
            with anyio.fail_after(_RESOLVE_S):
                found = await self._resolve(host, port)
        except (TimeoutError, UnicodeError) as error:
            raise OSError(f"its name can't be resolved ({str(error) or 'it took too long'})") from error
        if not found:
            raise OSError("it has no address")
        if not any(pattern.fits(host, port) for pattern in self._private):
            for address in found:
                if not is_public(address):
                    reason = (
                        f"{_named(host, port)} is at {address}, which is not a public address. Only the user can allow "
                        "that, for this host and port."
                    )
                    return Denial(target=_named(host, port), reason=reason)
        return list(dict.fromkeys(found))[:_MOST_ADDRESSES]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyLimits(RelayLimits):
    """Bounds of one run's proxy, and of each connection.

    Attributes:
        connections: Open at once. More wait, unaccepted.
        total_bytes: Passed on in both directions together.
    """

    connections: int = 64
    total_bytes: int = 4 * 2**30
    head_bytes: int = 65_536
    head_s: float = 15.0
    connect_s: float = 10.0
    idle_s: float = 300.0


class EgressProxy:
    """The proxy of one run, session or box; made by `open_egress`.

    A backend makes `socket` visible in the sandbox and starts `guest/forwarder.py` there with it: a small server on
    127.0.0.1 that passes connections on to the socket. `forwarder.start(socket_path)` returns the environment
    variables (`HTTPS_PROXY`, …) that lead programs to it.
    """

    def __init__(self, rules: HostRules, limits: ProxyLimits, *, socket_path: Path) -> None:
        """Use `open_egress`."""
        self.socket = socket_path
        self._rules = rules
        self._limits = limits
        self._left_bytes = limits.total_bytes
        self._denied: dict[str, Denial] = {}
        self._relay = Relay(self._decide, limits=limits, may_pass=self._may_pass, may_greet=self._may_greet)

    @property
    def denied(self) -> tuple[Denial, ...]:
        """What was refused so far: each thing once, in order, at most 100."""
        return tuple(self._denied.values())

    async def serve(self, listener: socket.socket) -> None:
        """Accept connections until cancelled."""
        free = anyio.Semaphore(self._limits.connections)
        async with anyio.create_task_group() as group:
            while True:
                await free.acquire()
                await anyio.wait_readable(listener)
                try:
                    client, _ = listener.accept()
                except OSError:
                    # It hung up before it was accepted, or this program has no descriptor left.
                    free.release()
                    await anyio.sleep(_ACCEPT_PAUSE_S)
                    continue
                group.start_soon(self._serve_one, _UnixStream(client), free)

    async def _serve_one(self, client: ByteStream, free: anyio.Semaphore) -> None:
        try:
            await self._relay.serve(client)
        finally:
            free.release()

    async def _decide(self, asked: RequestHead) -> Route | RelayRefusal:
        try:
            host, port, path, host_header = _destination(asked)
        except ValueError as error:
            return RelayRefusal(
                status="400 Bad Request", text=f"This proxy passes on http:// URLs and CONNECT: {error}."
            )
        if self._left_bytes <= 0:
            reason = f"This run has passed on {self._limits.total_bytes:,} bytes, which is the most."
            return self._refuse(Denial(target=_named(host, port), reason=reason))
        if not self._rules.allows(host, port):
            reason = f"{_named(host, port)} is not among the hosts that this sandbox may reach."
            return self._refuse(Denial(target=_named(host, port), reason=reason))
        try:
            addresses = await self._rules.addresses(host, port)
        except OSError as error:
            return RelayRefusal(status="502 Bad Gateway", text=f"There is no host {host!r}: {error}.")
        if isinstance(addresses, Denial):
            return self._refuse(addresses)
        return Route(host=host, port=port, addresses=addresses, path=path, host_header=host_header)

    def _refuse(self, denied: Denial) -> RelayRefusal:
        self._keep(denied)
        allowed = ", ".join(map(str, self._rules.patterns)) or "none"
        if self._rules.public:
            allowed = "every public host"
        return RelayRefusal(
            # Most clients show this line and drop the text.
            status=f"403 Refused by the sandbox: {denied.reason}"[:300],
            text=(
                f"{denied.reason}\nAllowed hosts: {allowed}.\n"
                "To reach another host, it must be named (a capability names it in its manifest, a command needs a "
                "rule) and approved by the user. Only HTTP and HTTPS leave the sandbox, through the proxy in "
                "HTTP_PROXY and HTTPS_PROXY: urllib, requests, httpx, curl and git use it by themselves, aiohttp with "
                "ClientSession(trust_env=True). Plain TCP and UDP sockets and DNS lookups fail here.\n"
            ),
        )

    def _keep(self, denied: Denial) -> None:
        if len(self._denied) < _MOST_DENIED:
            self._denied.setdefault(denied.target, denied)

    def _may_pass(self, size: int) -> bool:
        self._left_bytes -= size
        return self._left_bytes > 0

    def _may_greet(self, route: Route, name: str) -> bool:
        with suppress(ValueError):
            if ascii_host(name) == route.host or self._rules.allows(ascii_host(name), route.port):
                return True
        reason = f"A tunnel to {_named(route.host, route.port)} greeted another server, {name[:_MOST_HOST_CHARS]!r}."
        self._keep(Denial(target=_named(name[:_MOST_HOST_CHARS], route.port), reason=reason))
        return False


@asynccontextmanager
async def open_egress(
    network: Network,
    *,
    folder: Path,
    limits: ProxyLimits | None = None,
    resolve: Resolve = resolve_name,
) -> AsyncIterator[EgressProxy]:
    """Serve a sandbox for as long as the block lasts; at its end every connection is closed. The socket is `folder /
    "proxy.sock"`; whoever can enter the folder can use the proxy.

    Raises:
        UsageError: A host can't be read.
        SandboxError: The socket can't be made.
    """
    rules = HostRules(
        network.hosts, public=network.mode == "public", allow_private=network.private, resolve=resolve
    )
    path = folder / "proxy.sock"
    proxy = EgressProxy(rules, limits or ProxyLimits(), socket_path=path)
    listener = _listening(path)
    failure: Exception | None = None
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(proxy.serve, listener)
            try:
                yield proxy
            # Raised again below: through the task group it would reach the caller as an exception group.
            except Exception as error:  # noqa: BLE001
                failure = error
            group.cancel_scope.cancel()
    finally:
        listener.close()
        path.unlink(missing_ok=True)
    if failure is not None:
        raise failure


def _listening(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        folder_fd = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
        try:
            # A socket's path has at most 107 bytes; this one is short wherever the folder is.
            listener.bind(f"/proc/self/fd/{folder_fd}/{path.name}")
        finally:
            os.close(folder_fd)
        # The guest may have another uid. The folder keeps everybody else out.
        path.chmod(0o666)
        listener.listen(128)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise SandboxError(
            f"No socket could be made for a sandbox's network at {path}: {error.strerror}."
        ) from error
    return listener


class _UnixStream(ByteStream):
    """A connected socket. Unlike anyio's own, cancelling it is never reported as an error of the event loop."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._socket = sock

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        while True:
            await anyio.wait_readable(self._socket)
            with suppress(BlockingIOError):
                piece = self._socket.recv(max_bytes)
                if not piece:
                    raise anyio.EndOfStream
                return piece

    async def send(self, item: bytes) -> None:
        rest = memoryview(item)
        while rest:
            await anyio.wait_writable(self._socket)
            with suppress(BlockingIOError):
                rest = rest[self._socket.send(rest) :]

    async def send_eof(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    async def aclose(self) -> None:
        anyio.notify_closing(self._socket)
        self._socket.close()


def _destination(asked: RequestHead) -> tuple[str, int, str, str]:
    """Host, port, path and Host header.

    Raises:
        ValueError: It is no destination.
    """
    parts = urlsplit(f"//{asked.place}" if asked.tunnels else asked.place)
    port = parts.port
    if asked.tunnels:
        if parts.netloc != asked.place or port is None:
            raise ValueError("a tunnel needs HOST:PORT")
    elif parts.scheme.lower() != "http":
        raise ValueError("the URL must begin with http://")
    if parts.username is not None or parts.password is not None or "\\" in parts.netloc:
        raise ValueError("a host with a user's name is not passed on")
    host = ascii_host(parts.hostname or "")
    port = DEFAULT_PORTS["http"] if port is None else port
    if not port or len(host) > _MOST_HOST_CHARS:
        raise ValueError("there is no such host")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return host, port, path, _named(host, port).removesuffix(f":{DEFAULT_PORTS['http']}")


def _named(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _is_address(host: str) -> bool:
    return ":" in host or host.replace(".", "").isdigit()
