"""`satchel mcp` beside a running server: hands each message to the server's `/mcp`, and its answers to the client.

Nothing is opened and no SDK is loaded here, so an agent's start costs a fraction of a second and a few megabytes.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Final

import anyio
import httpx2
from anyio.abc import TaskGroup

from satchel.config import Settings
from satchel.errors import SatchelError
from satchel.plain import json_in
from satchel.runtime.server_api import http_client, sent_events
from satchel.runtime.serving import Serving, serving
from satchel.runtime.stdio import Lines, has_plain_id, refusal

_PATH: Final = "/mcp"
_VERSION_KEY: Final = "io.modelcontextprotocol/protocolVersion"
_NAMED: Final[Mapping[str, str]] = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""The requests whose target is also in a header, with the parameter that names it."""
_LAST_ANSWERS_S: Final = 10.0
_LATER_S: Final = 1.0
"""The pause before the stream of an old revision's notifications is reopened."""
_FAREWELL_S: Final = 2.0
_GONE: Final = (
    "Satchel's server has stopped. Start it again with `satchel serve`, or restart the MCP server `satchel` "
    "in this agent."
)


async def relay(settings: Settings, found: Serving, lines: Lines) -> None:
    """Serve a client through a server, until the client closes its stream.

    Args:
        settings: Of the home that the server serves.
        found: The server. If it is restarted, the new one is used.
        lines: The client.
    """
    async with AsyncExitStack() as stack, anyio.create_task_group() as group:
        carrier = _Relay(settings, found, lines, stack, group)
        await carrier.run()
        group.cancel_scope.cancel()


class _Lost(Exception):
    """The server did not take the message: it can't be reached, or doesn't know the session."""


class _Relay:
    def __init__(
        self, settings: Settings, found: Serving, lines: Lines, stack: AsyncExitStack, group: TaskGroup
    ) -> None:
        self._settings = settings
        self._found = found
        self._lines = lines
        self._stack = stack
        self._group = group
        self._client: httpx2.AsyncClient | None = None
        self._connecting = anyio.Lock()
        self._restoring = anyio.Lock()
        self._running: dict[Any, anyio.CancelScope] = {}
        self._is_idle = anyio.Event()
        # Of a client that speaks an older revision: its session in the server, and how it began.
        self._session = ""
        self._version = ""
        self._beginning: dict[str, Any] | None = None
        # What that client asked for that holds for its session: what to log, and which resources it follows.
        self._standing: dict[str, dict[str, Any]] = {}

    async def run(self) -> None:
        async for line in self._lines:
            try:
                message = json.loads(line)
            except (ValueError, RecursionError):
                await self._refuse(None, -32700, "The line is not JSON.")
                continue
            if not isinstance(message, dict) or not has_plain_id(message):
                await self._refuse(None, -32600, "The line is not a JSON-RPC message.")
                continue
            id, method = message.get("id"), message.get("method")
            if isinstance(method, str) and id is not None and method != "initialize":
                self._group.start_soon(self._request, id, message, line)
            else:
                # Notifications, and `initialize`, on which the rest depends, keep their order.
                await self._request(id, message, line)
        self._is_idle = anyio.Event()
        if self._running:
            with anyio.move_on_after(_LAST_ANSWERS_S):
                await self._is_idle.wait()
        if self._session:
            with anyio.move_on_after(_FAREWELL_S), suppress(_Lost, httpx2.HTTPError, SatchelError):
                await (await self._http()).delete(_PATH, headers=self._headers({}))

    async def _request(self, id: Any, message: dict[str, Any], line: bytes) -> None:
        if self._is_cancellation(message):
            return
        with anyio.CancelScope() as scope:
            if id is not None:
                self._running[id] = scope
            session = self._session
            try:
                await self._carry(message, line)
            except _Lost:
                await self._again(id, message, line, session)
            except (httpx2.HTTPError, SatchelError):
                await self._lose(id, message)
            finally:
                self._running.pop(id, None)
                if not self._running:
                    self._is_idle.set()

    async def _again(self, id: Any, message: dict[str, Any], line: bytes, session: str) -> None:
        """Send a message that the server did not take in a session once more, if the server was restarted."""
        try:
            await self._reconnect(session)
            await self._carry(message, line)
        except (_Lost, httpx2.HTTPError, SatchelError):
            await self._lose(id, message)

    async def _lose(self, id: Any, message: dict[str, Any]) -> None:
        """Report that a message is lost. It is not sent again: the server may have carried it out."""
        if id is not None and "method" in message:
            await self._refuse(id, -32000, _GONE)

    def _is_cancellation(self, message: dict[str, Any]) -> bool:
        """End a request of the newest revision: over HTTP, its stream is closed for that."""
        params = message.get("params")
        if message.get("method") != "notifications/cancelled" or self._session:
            return False
        id = params.get("requestId") if isinstance(params, dict) else None
        scope = self._running.get(id) if isinstance(id, str | int) else None
        if scope is not None:
            scope.cancel()
        return True

    # To the server

    async def _carry(self, message: dict[str, Any], line: bytes) -> None:
        client = await self._http()
        headers = {**self._headers(message), "content-type": "application/json"}
        try:
            # Sent as the client wrote it: JSON may hold what can't be encoded again, such as lone surrogates.
            request = client.build_request("POST", _PATH, content=line, headers=headers, timeout=None)
            answer = await client.send(request, stream=True)
        except httpx2.ConnectError as error:
            raise _Lost from error
        async with _closing(answer):
            if answer.status_code == 404 and self._session and "mcp-session-id" in headers:
                raise _Lost
            await self._take(message, answer)

    async def _take(self, message: dict[str, Any], answer: httpx2.Response) -> None:
        if answer.status_code == 202:
            if message.get("method") == "notifications/initialized":
                self._group.start_soon(self._listen, self._session)
            return
        if answer.headers.get("content-type", "").startswith("text/event-stream"):
            has_answer = False
            try:
                async for data in _events(answer):
                    said = _parsed(data)
                    has_answer = has_answer or "method" not in said
                    self._note(message, answer, said)
                    await self._lines.send(data)
            except httpx2.HTTPError:
                has_answer = False
            if not has_answer and message.get("id") is not None:
                # The server took the request, so it may have been carried out; it is not sent again.
                await self._refuse(message["id"], -32000, _GONE)
            return
        body = (await answer.aread()).decode("utf-8", "replace")
        said = _parsed(body)
        id = message.get("id")
        if said.get("jsonrpc") != "2.0":
            if id is not None:
                await self._refuse(id, -32603, _detail(body, answer.status_code))
            return
        self._note(message, answer, said)
        if said.get("id") is None and "error" in said and id is not None:
            # The server could not read the request's id; the client waits for an answer that has it.
            body = json.dumps({**said, "id": id})
        await self._lines.send(" ".join(body.split("\n")))

    def _note(self, message: dict[str, Any], answer: httpx2.Response, said: dict[str, Any]) -> None:
        """Remember the session that a client of an older revision has begun, and what holds for the whole of it."""
        result, params = said.get("result"), message.get("params")
        if not isinstance(result, dict) or not isinstance(params, dict):
            return
        match message.get("method"):
            case "initialize" if answer.headers.get("mcp-session-id"):
                self._version = str(result.get("protocolVersion"))
                self._session = answer.headers["mcp-session-id"]
                self._beginning = message
                self._standing.clear()
            case "logging/setLevel":
                self._standing[""] = message
            case "resources/subscribe":
                self._standing[str(params.get("uri"))] = message
            case "resources/unsubscribe":
                self._standing.pop(str(params.get("uri")), None)
            case _:
                pass

    def _headers(self, message: dict[str, Any]) -> dict[str, str]:
        headers = {"accept": "application/json, text/event-stream"}
        params = message.get("params")
        params = params if isinstance(params, dict) else {}
        meta = params.get("_meta")
        version = meta.get(_VERSION_KEY) if isinstance(meta, dict) else None
        method = message.get("method")
        if isinstance(version, str) and isinstance(method, str):
            headers |= {"mcp-protocol-version": _header(version), "mcp-method": _header(method)}
            target = params.get(_NAMED.get(method, ""))
            if isinstance(target, str):
                headers["mcp-name"] = _header(target)
        elif self._session:
            headers |= {"mcp-session-id": self._session, "mcp-protocol-version": self._version}
        return headers

    async def _listen(self, session: str) -> None:
        """Pass the server's notifications on to a client of an older revision, which may send nothing for hours: it
        also hears a server that was started anew.
        """
        while session == self._session:
            with suppress(httpx2.HTTPError, _Lost, SatchelError):
                try:
                    await self._hear()
                except (_Lost, httpx2.ConnectError):
                    await self._reconnect(session)
            await anyio.sleep(_LATER_S)

    async def _hear(self) -> None:
        client = await self._http()
        headers = {**self._headers({}), "accept": "text/event-stream"}
        request = client.build_request("GET", _PATH, headers=headers, timeout=None)
        async with _closing(await client.send(request, stream=True)) as answer:
            if answer.status_code == 404:
                raise _Lost
            if answer.status_code == 200:
                async for data in _events(answer):
                    await self._lines.send(data)

    # Connections

    async def _http(self) -> httpx2.AsyncClient:
        async with self._connecting:
            if self._client is None:
                self._client = await self._stack.enter_async_context(
                    http_client(self._found, settings=self._settings)
                )
            return self._client

    async def _reconnect(self, lost: str) -> None:
        """Use the server that runs now, and begin the session again that was lost, "" if there was none.

        Raises:
            _Lost: There is none.
        """
        found = serving(self._settings.home)
        if found is None:
            raise _Lost
        async with self._connecting:
            if found != self._found:
                self._found, self._client = found, None
        async with self._restoring:
            # Of several requests that were lost together, the first one begins the session again for all.
            if self._beginning is not None and self._session == lost:
                await self._begin_again(self._beginning)

    async def _begin_again(self, beginning: dict[str, Any]) -> None:
        """Begin the client's session again, without the client noticing."""
        client = await self._http()
        headers = {"accept": "application/json, text/event-stream"}
        answer = await client.post(_PATH, json=beginning, headers=headers)
        self._session = answer.headers.get("mcp-session-id", "")
        if not self._session:
            raise _Lost
        initialized = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        for message in (initialized, *self._standing.values()):
            await client.post(_PATH, json=message, headers=self._headers(message))
        self._group.start_soon(self._listen, self._session)

    async def _refuse(self, id: Any, code: int, words: str) -> None:
        await self._lines.send(refusal(id, code, words))


@asynccontextmanager
async def _closing(answer: httpx2.Response) -> AsyncIterator[httpx2.Response]:
    """Closes an answer even while the task is being cancelled."""
    try:
        yield answer
    finally:
        with anyio.CancelScope(shield=True), anyio.move_on_after(_FAREWELL_S):
            await answer.aclose()


async def _events(answer: httpx2.Response) -> AsyncIterator[str]:
    """The data of each server-sent event."""
    async for _, data in sent_events(answer):
        # A message is one line.
        if text := " ".join(data.split("\n")).strip():
            yield text


def _parsed(text: str) -> dict[str, Any]:
    """A message; empty if it is none."""
    said = json_in(text)
    return said if isinstance(said, dict) else {}


def _header(text: str) -> str:
    """A value for a header, encoded as the protocol describes if a header can't hold it."""
    if text.isascii() and text.isprintable() and text == text.strip() and not text.startswith("=?base64?"):
        return text
    return f"=?base64?{base64.b64encode(text.encode('utf-8', 'replace')).decode()}?="


def _detail(body: str, status: int) -> str:
    try:
        return str(json.loads(body)["detail"])
    except (ValueError, KeyError, TypeError):
        return f"Satchel's server answered with status {status}."
