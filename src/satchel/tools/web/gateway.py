"""The browser's only way to the network: a proxy on loopback that enforces the address rules.

Intercepting requests inside the browser would miss redirects, sockets, and names whose address changes between the
check and the connection. The proxy checks every connection and connects to the address that it checked.

Any process on this machine can connect to a port on loopback, but what the user allowed this browser is for this
browser only. So each proxy has a new password, which only its browser knows.
"""

from __future__ import annotations

import base64
import hmac
import secrets
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

import anyio
from anyio.abc import SocketAttribute, SocketListener

from satchel.errors import SatchelError
from satchel.sandbox.relay import Relay, RelayRefusal, RequestHead, Route
from satchel.tools.web.addresses import AddressRules

USER = "satchel"
Spawn: TypeAlias = Callable[[Callable[[], Coroutine[Any, Any, None]]], None]
"""Runs a function in the background, in a task group that outlives the browser."""

_MOST_REFUSALS = 100
_ASKS_WHO = 'Proxy-Authenticate: Basic realm="satchel"'
_STRANGER = "This proxy only serves one browser that Satchel started."


class Gateway:
    """A proxy for one browser.

    Attributes:
        url: The address of the proxy; the user name is `USER`.
        password: Proves that a client is this browser.
        refused: Why connections were refused, by "host:port".
    """

    def __init__(self, rules: AddressRules) -> None:
        self._rules = rules
        self._scope = anyio.CancelScope()
        self._is_over = anyio.Event()
        self.url = ""
        self.password = secrets.token_urlsafe(24)
        self.refused: dict[str, str] = {}

    async def open(self, spawn: Spawn) -> None:
        """Listen on a loopback port."""
        listeners = await anyio.create_tcp_listener(local_host="127.0.0.1")
        listener = listeners.listeners[0]
        assert isinstance(listener, SocketListener)
        self.url = f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"

        relay = Relay(self._decide)

        async def serve() -> None:
            try:
                with self._scope:
                    async with listener:
                        await listener.serve(relay.serve)
            finally:
                self._is_over.set()

        spawn(serve)

    async def aclose(self) -> None:
        """End every connection."""
        if self.url:
            self._scope.cancel()
            await self._is_over.wait()

    async def _decide(self, asked: RequestHead) -> Route | RelayRefusal:
        if not self._is_known(asked):
            return RelayRefusal(
                status="407 Proxy Authentication Required", text=_STRANGER, headers=[_ASKS_WHO]
            )
        try:
            target = await self._rules.check(f"https://{asked.place}" if asked.tunnels else asked.place)
        except SatchelError as error:
            self._keep(asked.place, str(error))
            return RelayRefusal(status="403 Forbidden", text=str(error))
        return Route(
            host=target.host,
            port=target.port,
            addresses=[target.address],
            path="/" + target.url.split("://", 1)[1].partition("/")[2],
            host_header="" if asked.tunnels else target.host_header,
        )

    def _is_known(self, asked: RequestHead) -> bool:
        said = [value for name, value in asked.headers if name.lower() == b"proxy-authorization"]
        expected = b"Basic " + base64.b64encode(f"{USER}:{self.password}".encode())
        return len(said) == 1 and hmac.compare_digest(said[0], expected)

    def _keep(self, place: str, reason: str) -> None:
        if len(self.refused) < _MOST_REFUSALS:
            self.refused[place] = reason
