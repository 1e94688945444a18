"""The memory proxy as the routes use it: the provider, the key, and what is added to a request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import anyio
import anyio.to_thread
import httpx2
from starlette.requests import Request
from starlette.responses import Response

from satchel.addresses import DEFAULT_PORTS, is_loopback
from satchel.config import ProviderSettings
from satchel.runtime import Satchel
from satchel.server.metrics import Metrics
from satchel.server.proxy.conversation import ProxiedConversation, is_auxiliary, read_conversation
from satchel.server.proxy.provider_answer import ProviderAnswer
from satchel.server.proxy.raw_messages import RawMessages
from satchel.server.proxy.relay import Header, RelayedResponse, passed_on, upstream_client
from satchel.server.proxy.remembering import Remembering, Replayed
from satchel.server.streams import Stopping
from satchel.server.v1_errors import V1Failure

_KEY: Final = b"x-api-key"
_AUTHORIZATION: Final = b"authorization"
_SHORT_BYTES: Final = 200_000
"""This much JSON is parsed in 2 ms."""


class MemoryProxy:
    """Passes requests on to the provider that the settings name, with memory."""

    def __init__(self, satchel: Satchel, *, holds_token: Callable[[str], bool], metrics: Metrics) -> None:
        """No connection is made before the first request; `holds_token` says whether the home's token is in a text."""
        self._satchel = satchel
        self._holds_token = holds_token
        self._metrics = metrics
        self._remembering = Remembering(satchel)
        self._client: httpx2.AsyncClient | None = None

    async def aclose(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()

    async def messages(self, request: Request, *, stopping: Stopping) -> Response:
        """Pass a request for an answer on, with memory, and capture the conversation.

        Raises:
            V1Failure: The body is no JSON object, which no provider takes; or as `_headers` and `_url`.
        """
        headers, body = self._headers(request), await _object_of(request)
        known = await self._conversation(request, body)
        replayed = await self._remembering.replayed(known[1]) if known is not None else None
        if known is None or replayed is None:
            return self._relay(request, headers, body, stopping=stopping)
        raw, conversation = known
        said: anyio.Event | None = None

        def accepted() -> None:
            nonlocal said
            if conversation.is_new:
                said = self._remembering.begun(conversation.turns[-1], replayed.place)

        async def heard(answer: ProviderAnswer) -> None:
            await self._remembering.answered(answer, conversation, replayed.place, said=said)

        return self._relay(
            request,
            headers,
            _with_memory(raw, body, replayed),
            stopping=stopping,
            accepted=accepted,
            heard=heard,
        )

    async def count(self, request: Request, *, stopping: Stopping) -> Response:
        """Pass a request for a count of tokens on, with the memory that the conversation has already. Errors as in
        `messages`.
        """
        headers, body = self._headers(request), await _object_of(request)
        known = await self._conversation(request, body)
        replayed = await self._remembering.replayed(known[1], searches=False) if known is not None else None
        if known is not None and replayed is not None:
            body = _with_memory(known[0], body, replayed)
        return self._relay(request, headers, body, stopping=stopping)

    async def other(self, request: Request, *, stopping: Stopping) -> Response:
        """Pass any other request on unchanged."""
        path = request.url.path
        if any(part in (".", "..") for part in path.split("/")) or self._holds_token(path):
            raise V1Failure(404, "There is no such path.")
        return self._relay(request, self._headers(request), await request.body(), stopping=stopping)

    async def _conversation(
        self, request: Request, body: bytes
    ) -> tuple[RawMessages, ProxiedConversation] | None:
        """The conversation of a request, or None if memory has nothing to do with it."""
        if request.headers.get("x-satchel-memory", "").lower() == "off" or not self._satchel.memory:
            return None
        # Parsing megabytes of JSON would hold up every other client.
        found = await anyio.to_thread.run_sync(_read, body) if len(body) > _SHORT_BYTES else _read(body)
        if found is None:
            return None
        raw, conversation = found
        agent = request.headers.get("user-agent", "")
        if is_auxiliary(raw, conversation, agent=agent, prompts=self._remembering.prompts):
            return None
        return raw, conversation

    def _headers(self, request: Request) -> list[Header]:
        """The headers for the provider. The token is never passed on, wherever it stands: if a client sent it as its
        key, the home's own key of the provider takes its place.

        Raises:
            V1Failure: The home has no key.
        """
        given = passed_on(request.headers.raw)
        headers = [header for header in given if not self._holds_token(header[1].decode("latin-1"))]
        own = [header[0] for header in given if header[0] in (_AUTHORIZATION, _KEY) and header not in headers]
        if not own:
            return headers
        if any(name in (_AUTHORIZATION, _KEY) and value.strip() for name, value in headers):
            return headers
        provider = self._provider()
        # As in `HostedModel`: an endpoint without a variable, such as one on this machine, needs no key.
        key = self._satchel.settings.secret(provider.env_api_key) if provider.env_api_key else "none"
        if key is None:
            raise V1Failure(
                401,
                f"Satchel has no key for {provider.name}: {provider.env_api_key} is not set where it "
                "runs. Set it; or send the provider's key as usual, and Satchel's token as X-Satchel-Token.",
            )
        # The key goes into the header in which the client sent the token.
        name = own[0]
        return [*headers, (name, f"Bearer {key}".encode() if name == _AUTHORIZATION else key.encode())]

    def _relay(
        self, request: Request, headers: Sequence[Header], body: bytes, *, stopping: Stopping, **more: object
    ) -> RelayedResponse:
        if self._client is None:
            self._client = upstream_client()
        url = self._url(request)
        passed = httpx2.Request(request.method, url, headers=list(headers), content=body or None)
        return RelayedResponse(
            passed,
            client=self._client,
            stopping=stopping,
            metrics=self._metrics,
            **more,  # type: ignore[arg-type]
        )

    def _url(self, request: Request) -> httpx2.URL:
        base = httpx2.URL(self._provider().base_url.rstrip("/").removesuffix("/v1") or "/")
        here = request.scope.get("server") or ("", 0)
        port = base.port or DEFAULT_PORTS.get(base.scheme, 0)
        if port == here[1] and (base.host == here[0] or (is_loopback(base.host) and is_loopback(here[0]))):
            raise V1Failure(
                500,
                "The provider's address is this server's own, so requests would loop. Where the server "
                "runs, ANTHROPIC_BASE_URL must not point to it; or set base_url of the provider.",
            )
        path = base.path.rstrip("/") + request.url.path
        asked = (request.scope.get("query_string") or b"").split(b"&")
        query = b"&".join(part for part in asked if not self._holds_token(part.decode("latin-1")))
        return base.copy_with(raw_path=path.encode() + (b"?" + query if query else b""))

    def _provider(self) -> ProviderSettings:
        return self._satchel.settings.provider(self._satchel.settings.server.messages_provider)


async def _object_of(request: Request) -> bytes:
    """The body. Only its first character is looked at: the rest is the provider's to judge."""
    body = await request.body()
    if "content-encoding" not in request.headers and not body.lstrip(b" \t\n\r").startswith(b"{"):
        raise V1Failure(400, "The body must be a JSON object.")
    return body


def _read(body: bytes) -> tuple[RawMessages, ProxiedConversation] | None:
    raw = RawMessages.read(body)
    conversation = read_conversation(raw) if raw is not None else None
    return (raw, conversation) if raw is not None and conversation is not None else None


def _with_memory(raw: RawMessages, body: bytes, replayed: Replayed) -> bytes:
    return raw.with_blocks(replayed.blocks) if replayed.blocks else body
