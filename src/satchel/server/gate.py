"""The gate in front of every request: who asks, for which server, how often, and how much.

It is plain ASGI, so nothing that is mounted behind it (pages, MCP, web sockets) can be reached around it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, urlsplit

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from satchel.addresses import DEFAULT_PORTS, host_and_port
from satchel.clock import Clock
from satchel.errors import StorageError
from satchel.server.binding import Hosts
from satchel.server.browser_access import Gatekeeper, place_of, replayed, with_place, within
from satchel.server.json_answers import json_bytes
from satchel.server.metrics import Metrics
from satchel.server.pages.rendering import error_page, wants_page
from satchel.server.problems import DEFECT, PROBLEM_TYPE, problem_body
from satchel.server.rates import Rates, client_of
from satchel.server.v1_errors import has_v1_form, v1_fields

_log = logging.getLogger(__name__)

MOST_BODY_BYTES: Final = 16_000_000
"""The longest body: more than any memory, message or piece of a conversation needs."""
MOST_V1_BODY_BYTES: Final = 64_000_000
"""The same below /v1 and for AG-UI, where other programs send whole conversations with images. Providers take 32 MB."""
_MOST_HEADER_BYTES: Final = 16_384
_MOST_HEADERS: Final = 100
_PIECE_WAIT_S: Final = 20.0
"""How long the next piece of a body may take."""
_BODY_WAIT_S: Final = 120.0
"""How long a whole body may take: 16 MB at 1 Mbit/s."""
_LINGER_S: Final = 2.0
"""After a refusal, what the client is still sending is read for this long: a connection that is closed with unread data
is reset, and the client might never see the answer."""
TOKEN_HEADER: Final = b"x-satchel-token"
"""The token, if `Authorization` is for the provider: the proxy passes that one on, and never this one."""
KEY_HEADER: Final = b"x-api-key"
"""The header in which Anthropic clients send their key. Below /v1 it may hold the token."""
_OPEN_PATHS: Final = frozenset(
    {"/healthz", "/readyz", "/login", "/login/passkey", "/login/passkey/begin", "/favicon.ico"}
)
"""These need no token: they report only yes or no, or are the login page itself."""
_STATIC: Final = "/static/"
"""Scripts and styles, the same for everybody."""
_NO_PROOF: Final = (
    "The request changes something, and doesn't show that it comes from a page of this server. Reload the page and try "
    "again."
)
_BURST_S: Final = 10.0
_WRONG_TOKENS_PER_S: Final = 0.5
_WRONG_TOKENS: Final = 20.0
_HEADERS: Final[tuple[tuple[bytes, bytes], ...]] = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
"""Added to every response that doesn't set them itself."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request goes no further."""

    status: int
    detail: str
    headers: tuple[tuple[bytes, bytes], ...] = ()


class RequestGate:
    """Checks every request before any route sees it.

    In this order: the size of its headers, the rate of its client, `Host`, `Origin`, the token or the cookie of a
    browser that is logged in, the size of its body, which is read here, and for a change by a browser, its form token.
    """

    asks_for = (
        "Send the token of this home: Authorization: Bearer TOKEN. It is in the file `token` in SATCHEL_HOME."
    )

    def __init__(
        self,
        app: ASGIApp,
        *,
        access: Gatekeeper,
        hosts: Hosts,
        requests_per_s: float,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        """`app` gets the requests that pass."""
        self._app = app
        self._access = access
        self._hosts = hosts
        self._clock = clock
        self._metrics = metrics
        self._rates = Rates(per_s=requests_per_s, burst=requests_per_s * _BURST_S)
        self._wrong_tokens = Rates(per_s=_WRONG_TOKENS_PER_S, burst=_WRONG_TOKENS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        scope = with_place(scope)
        refusal = await self._prepare(scope) or await self._refusal(scope)
        if scope["type"] == "websocket":
            # No route uses web sockets. One that did would have to pass the same gate.
            await receive()
            await send({"type": "websocket.close", "code": 1008})
            return
        began_s = self._clock.monotonic_s()
        answer = _Answer(send, scope)
        try:
            if refusal is None:
                refusal = await self._serve(scope, receive, answer)
            if refusal is not None:
                await _refuse(refusal, scope, receive, answer)
        # A boundary: a defect in one request must not take down the others, and its traceback must not reach a client.
        except Exception as error:  # noqa: BLE001
            if answer.status != 500:  # otherwise the application has logged it before it answered
                log_defect(scope, error)
            if not answer.status:
                await _refuse(Refusal(500, DEFECT), scope, receive, answer)
        finally:
            self._metrics.request(
                scope["method"], _route_of(scope), answer.status, self._clock.monotonic_s() - began_s
            )

    async def _prepare(self, scope: Scope) -> Refusal | None:
        """Find out what the checks need; why that failed."""
        return None

    async def _serve(self, scope: Scope, receive: Receive, answer: Send) -> Refusal | None:
        body = await _read_body(scope, receive, _most_body_bytes(scope["path"])) if _has_body(scope) else b""
        if isinstance(body, Refusal):
            return body
        if body is None:
            return None  # the client left
        if not await self._access.proves_origin(scope, body):
            return Refusal(403, _NO_PROOF)
        await self._app(scope, replayed(body, receive) if _has_body(scope) else receive, answer)
        return None

    async def _refusal(self, scope: Scope) -> Refusal | None:
        headers = scope["headers"]
        if (
            len(headers) > _MOST_HEADERS
            or sum(len(name) + len(value) for name, value in headers) > _MOST_HEADER_BYTES
        ):
            return Refusal(
                431, f"The headers are longer than {_MOST_HEADER_BYTES} bytes, or more than {_MOST_HEADERS}."
            )
        client, now_s = client_of(scope), self._clock.monotonic_s()
        wait_s = self._rates.take(client, now_s)
        if wait_s:
            return _too_many(
                wait_s,
                "There are too many requests from this address (server.requests_per_s). Try again in a moment.",
            )
        named = _header(scope, b"host")
        if named is None or not self._hosts.accepts(named):
            return Refusal(
                421,
                "The server is not known by the name in the Host header. Use the address that it printed when it "
                "started, or add the name to server.allowed_hosts.",
            )
        origin = _header(scope, b"origin")
        if origin is not None and not _same_origin(origin, named):
            return Refusal(403, "Requests from pages of other sites are refused.")
        try:
            if self._has_token(scope) or await self._access.admit(scope):
                return None
        except StorageError as error:
            return Refusal(503, str(error), ((b"retry-after", b"5"),))
        if scope["path"] in _OPEN_PATHS or scope["path"].startswith(_STATIC):
            return None
        if scope.get("method") == "GET" and wants_page(scope):
            return Refusal(303, "Log in first.", ((b"location", _login_with(scope)),))
        wait_s = self._wrong_tokens.take(client, now_s)
        if wait_s:
            return _too_many(
                wait_s,
                "There were too many requests without a valid token from this address. Try again later.",
            )
        return Refusal(
            401,
            self.asks_for,
            ((b"www-authenticate", b'Bearer realm="satchel"'),),
        )

    def _has_token(self, scope: Scope) -> bool:
        is_token = self._access.is_token
        scheme, _, token = (_header(scope, b"authorization") or "").partition(" ")
        if is_token(token.strip()) and scheme.lower() == "bearer":
            return True
        if is_token(_header(scope, TOKEN_HEADER) or ""):
            return True
        return has_v1_form(scope["path"]) and is_token(_header(scope, KEY_HEADER) or "")


def _login_with(scope: Scope) -> bytes:
    """The login page, which leads back to where the browser was going.

    It is told when a place doesn't count any more: its script would lead there again.
    """
    query = scope["query_string"].decode("latin-1")
    there = quote(scope["path"], safe="/") + (f"?{query}" if query else "")
    said = ["ended=1"] if place_of(scope) else []
    said += [f"next={quote(there, safe='/')}"] if there != "/" else []
    return ("/login" + ("?" + "&".join(said) if said else "")).encode()


def log_defect(scope: Scope, error: Exception) -> None:
    """Log where a request failed."""
    _log.error("%s %s failed", scope["method"], _route_of(scope), exc_info=error)


class _Answer:
    """Sends an answer, with the headers that every answer has, and remembers its status.

    Where it leads a browser elsewhere on this server, it leads it to a path below the browser's place.
    """

    def __init__(self, send: Send, scope: Scope) -> None:
        self._send = send
        self._scope = scope
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [
                (name, within(self._scope, value.decode("latin-1")).encode("latin-1"))
                if name.lower() == b"location"
                else (name, value)
                for name, value in message.get("headers", ())
            ]
            names = {name.lower() for name, _ in headers}
            headers += [(name, value) for name, value in _HEADERS if name not in names]
            message = {**message, "headers": headers}
        await self._send(message)


def _header(scope: Scope, name: bytes) -> str | None:
    """The value of the only header with this name; None if there is none or more than one."""
    found = [value for key, value in scope["headers"] if key == name]
    return found[0].decode("latin-1") if len(found) == 1 else None


def _same_origin(origin: str, host: str) -> bool:
    """Whether a page of this origin comes from the server that a `Host` header names."""
    try:
        parts = urlsplit(origin)
        default = DEFAULT_PORTS.get(parts.scheme)
        if default is None or not parts.hostname:
            return False
        there = (
            host_and_port(f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname)[0],
            parts.port,
        )
    except ValueError:
        return False
    name, port = host_and_port(host)
    return (there[0], there[1] or default) == (name, port or default)


def _route_of(scope: Scope) -> str:
    """The path as its route is declared, without what the client filled in; "other" for one that there is not."""
    if scope["path"] == "/mcp":
        return "/mcp"  # It is no route of FastAPI, which would name it.
    return str(getattr(scope.get("route"), "path", "other"))


def _has_body(scope: Scope) -> bool:
    return any(name in (b"content-length", b"transfer-encoding") for name, _ in scope["headers"])


def _most_body_bytes(path: str) -> int:
    is_long = has_v1_form(path) or path in ("/api/agui", "/memories/move")
    return MOST_V1_BODY_BYTES if is_long else MOST_BODY_BYTES


async def _read_body(scope: Scope, receive: Receive, most_bytes: int) -> bytes | Refusal | None:
    """The whole body; why it is not taken; or None if the client left."""
    length = _header(scope, b"content-length") or "0"
    if length.isdigit() and int(length) > most_bytes:
        return _too_large(most_bytes)
    pieces: list[bytes] = []
    size = 0
    with anyio.move_on_after(_BODY_WAIT_S):
        while True:
            message = await next_piece(receive)
            if message is None:
                break
            if message["type"] == "http.disconnect":
                return None
            pieces.append(message.get("body", b""))
            size += len(pieces[-1])
            if size > most_bytes:
                return _too_large(most_bytes)
            if not message.get("more_body", False):
                return b"".join(pieces)
    return too_slow()


async def next_piece(receive: Receive) -> Message | None:
    """The next message of a body; None if it takes too long."""
    with anyio.move_on_after(_PIECE_WAIT_S):
        return await receive()
    return None


def too_slow() -> Refusal:
    """Why a body is not waited for any longer."""
    return Refusal(408, "The body took too long to arrive.", ((b"connection", b"close"),))


def _too_large(most_bytes: int) -> Refusal:
    return Refusal(
        413, f"The body is longer than {most_bytes // 1_000_000} MB.", ((b"connection", b"close"),)
    )


def _too_many(wait_s: float, detail: str) -> Refusal:
    return Refusal(429, detail, ((b"retry-after", str(max(1, round(wait_s))).encode()),))


async def _refuse(
    refusal: Refusal, scope: Scope, receive: Receive, send: Callable[[Message], Awaitable[None]]
) -> None:
    if wants_page(scope):
        page = error_page(scope, refusal.status, refusal.detail)
        body, headers = bytes(page.body), [*page.raw_headers, *refusal.headers]
    else:
        kind, body = PROBLEM_TYPE, problem_body(refusal.status, refusal.detail)
        if has_v1_form(scope["path"]):
            kind, body = "application/json", json_bytes(v1_fields(refusal.status, refusal.detail))
        headers = [
            (b"content-type", kind.encode()),
            (b"content-length", str(len(body)).encode()),
            *refusal.headers,
        ]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": True})
    if (b"connection", b"close") in refusal.headers:
        with anyio.move_on_after(_LINGER_S):
            message: Message = {"type": "http.request", "more_body": True}
            rest = MOST_BODY_BYTES
            while message["type"] == "http.request" and message.get("more_body") and rest > 0:
                message = await receive()
                rest -= len(message.get("body", b""))
    await send({"type": "http.response.body", "body": b"", "more_body": False})
