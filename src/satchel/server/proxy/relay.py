"""Passes a request on to a provider and its answer back, byte for byte and as it comes."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

import anyio
import httpx2
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from satchel.server.json_answers import JsonAnswer
from satchel.server.metrics import Metrics
from satchel.server.proxy.provider_answer import AnswerCollector, ProviderAnswer
from satchel.server.streams import Stopping, sent, until_gone
from satchel.server.v1_errors import v1_fields

Header = tuple[bytes, bytes]

_log = logging.getLogger(__name__)

_CONNECT_WAIT_S: Final = 10.0
_READ_WAIT_S: Final = 600.0
"""The limit of the official clients: a model may think for minutes before its first word."""
_WRITE_WAIT_S: Final = 60.0
_MOST_CONNECTIONS: Final = 200
OF_CONNECTION: Final = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
"""Headers of one connection (RFC 9110, 7.6.1)."""
_OURS: Final = frozenset({b"host", b"content-length", b"cookie", b"expect", b"x-form-token"})
"""Headers that are set again, and the proofs of this server's browsers, which must not leave it."""
_OF_ANSWER: Final = re.compile(
    rb"content-(type|encoding|length|language|range)|date|etag|last-modified|retry-after.*|x-should-retry"
    rb"|(.+-)?request-id|(.+-)?ratelimit-.+|anthropic-.+",
)
"""Headers that say something of an answer to the client of an API. The others (cookies, permissions for other sites,
policies) would tell browsers something in the name of this server."""


def passed_on(headers: Sequence[Header]) -> list[Header]:
    """The headers to pass on: all except those of the connection, and those of and for this server."""
    named = {
        name.strip().lower()
        for key, value in headers
        if key.lower() == b"connection"
        for name in value.split(b",")
    }
    leaving = OF_CONNECTION | _OURS | named
    return [
        (name, value)
        for name, value in headers
        if name.lower() not in leaving and not name.lower().startswith(b"x-satchel-")
    ]


def upstream_client() -> httpx2.AsyncClient:
    """Connections to the provider; made when they are first needed."""
    return httpx2.AsyncClient(
        timeout=httpx2.Timeout(
            connect=_CONNECT_WAIT_S, read=_READ_WAIT_S, write=_WRITE_WAIT_S, pool=_CONNECT_WAIT_S
        ),
        limits=httpx2.Limits(max_connections=_MOST_CONNECTIONS, max_keepalive_connections=20),
        follow_redirects=False,
    )


class RelayedResponse(Response):
    """The provider's answer: status, headers and bytes are its own. If the provider breaks off, so does this."""

    def __init__(
        self,
        request: httpx2.Request,
        *,
        client: httpx2.AsyncClient,
        stopping: Stopping,
        metrics: Metrics,
        accepted: Callable[[], None] = lambda: None,
        heard: Callable[[ProviderAnswer], Awaitable[None]] | None = None,
    ) -> None:
        """Nothing is sent before the answer is asked for.

        Args:
            request: For the provider.
            client: Sends it.
            stopping: Ends it with the server.
            metrics: Counts it.
            accepted: Called when the provider begins a good answer.
            heard: Called with the whole answer, before the client is told that it is whole.
        """
        super().__init__()
        self._request = request
        self._client = client
        self._stopping = stopping
        self._metrics = metrics
        self._accepted = accepted
        self._heard = heard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        self._metrics.streams += 1
        failed: httpx2.HTTPError | None = None
        has_begun = False
        try:
            async with anyio.create_task_group() as group:

                async def until(end: Callable[[], Awaitable[None]]) -> None:
                    await end()
                    group.cancel_scope.cancel()

                group.start_soon(until, partial(until_gone, receive))
                group.start_soon(until, self._stopping.wait)
                try:
                    answer = await self._client.send(self._request, stream=True)
                    try:
                        has_begun = True
                        await self._pass_back(answer, send)
                    finally:
                        # Even if the client has left: the provider should stop generating.
                        with anyio.CancelScope(shield=True):
                            await answer.aclose()
                except httpx2.HTTPError as error:
                    failed = error
                group.cancel_scope.cancel()
        finally:
            self._metrics.streams -= 1
        if failed is not None:
            _log.warning("The provider behind the memory proxy: %s", type(failed).__name__)
            if not has_begun:
                await _unreachable(self._request, failed)(scope, receive, send)
            # Otherwise the answer stays without an end, and the server closes the connection: the client sees the cut.

    async def _pass_back(self, answer: httpx2.Response, send: Send) -> None:
        headers = [
            (name.lower(), value) for name, value in answer.headers.raw if _OF_ANSWER.fullmatch(name.lower())
        ]
        collector = None
        if answer.is_success:
            self._accepted()
            collector = AnswerCollector(answer.headers) if self._heard is not None else None
        await send({"type": "http.response.start", "status": answer.status_code, "headers": headers})
        async for piece in answer.aiter_raw():
            if collector is not None:
                collector.take(piece)
            if not await sent(send, piece):
                return
        if collector is not None and self._heard is not None:
            with anyio.CancelScope(shield=True):
                await self._heard(collector.read())
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _unreachable(request: httpx2.Request, error: httpx2.HTTPError) -> Response:
    place = f"{request.url.scheme}://{request.url.host}"
    status = 504 if isinstance(error, httpx2.TimeoutException) else 502
    words = f"Satchel can't reach the provider at {place} ({type(error).__name__})."
    return JsonAnswer(v1_fields(status, words), status_code=status)
