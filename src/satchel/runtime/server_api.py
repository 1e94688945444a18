"""Requests to the server of this home. Its errors are raised as the same exceptions."""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx2

from satchel import errors
from satchel.config import Settings
from satchel.errors import ConfigError, SatchelError, ServerUnavailable, UsageError
from satchel.models.sse import EventReader
from satchel.runtime.serving import Serving, read_token

_REQUEST_S: Final = 60.0
"""The slowest request opens a long session, whose log is read."""
_SILENCE_S: Final = 45.0
"""The server sends something every 15 s on a stream; one that is silent for longer is gone."""
_CONNECT_S: Final = 5.0


class ServerApi:
    """A connection to a running server."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        """Use a client that `http_client` has opened."""
        self._client = client

    async def get(self, path: str, **params: Any) -> Any:
        """The answer to a GET, as JSON data. Parameters that are None are left out.

        Raises:
            ServerUnavailable: The server can't be reached, or is stopping.
            SatchelError: The error that the server reports.
        """
        return await self._asked("GET", path, params=_given(params))

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """The answer to a POST, as JSON data. Errors as in `get`."""
        return await self._asked("POST", path, json=_given(body))

    async def delete(self, path: str) -> Any:
        """The answer to a DELETE, as JSON data. Errors as in `get`."""
        return await self._asked("DELETE", path)

    async def content(self, path: str) -> bytes:
        """The answer to a GET as it is. Errors as in `get`."""
        return await self._answer("GET", path)

    async def _asked(self, method: str, path: str, **more: Any) -> Any:
        return json.loads(await self._answer(method, path, **more))

    async def _answer(self, method: str, path: str, **more: Any) -> bytes:
        try:
            answer = await self._client.request(method, path, **more)
        except httpx2.HTTPError as error:
            raise _unreachable(error) from error
        if not answer.is_success:
            raise _said(answer.status_code, answer.content)
        return answer.content

    @asynccontextmanager
    async def stream(
        self, method: str, path: str, *, body: Mapping[str, Any] | None = None, **params: Any
    ) -> AsyncIterator[AsyncGenerator[tuple[str, Any], None]]:
        """The events that the server sends, each with its name and its data. Errors as in `get`."""
        request = self._client.build_request(
            method,
            path,
            params=_given(params),
            json=_given(body) if body is not None else None,
            timeout=httpx2.Timeout(_SILENCE_S, connect=_CONNECT_S),
        )
        try:
            answer = await self._client.send(request, stream=True)
        except httpx2.HTTPError as error:
            raise _unreachable(error) from error
        try:
            if not answer.is_success:
                raise _said(answer.status_code, await answer.aread())
            async with aclosing(_events(answer)) as events:
                yield events
        finally:
            await answer.aclose()


@asynccontextmanager
async def http_client(found: Serving, *, settings: Settings) -> AsyncIterator[httpx2.AsyncClient]:
    """A client that sends the token of the home.

    Raises:
        ConfigError, StorageUnwritable: The token is missing or unusable, or the certificate can't be read.
    """
    home, certificate = settings.home, settings.server.tls_cert
    token = read_token(home)
    if token is None:
        raise ConfigError(f"There is no token in {home}. Start the server again.")
    verify: ssl.SSLContext | bool = True
    if found.url.startswith("https:") and certificate:
        verify = _only(home, certificate)
    async with httpx2.AsyncClient(
        base_url=found.url,
        headers={"authorization": f"Bearer {token}"},
        timeout=httpx2.Timeout(_REQUEST_S, connect=_CONNECT_S),
        verify=verify,
        # The server is on this machine, so no proxy applies.
        trust_env=False,
    ) as client:
        yield client


def _only(home: Path, name: str) -> ssl.SSLContext:
    """Trust only this certificate. It comes from the server's home, so checking its host name would add nothing."""
    certificate = home / Path(name).expanduser()
    try:
        context = ssl.create_default_context(cafile=str(certificate))
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"The certificate {certificate} can't be read: {error}.") from error
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


async def _events(answer: httpx2.Response) -> AsyncGenerator[tuple[str, Any], None]:
    try:
        async for name, data in sent_events(answer):
            yield name, json.loads(data)
    except httpx2.HTTPError as error:
        raise _unreachable(error) from error


async def sent_events(answer: httpx2.Response) -> AsyncGenerator[tuple[str, str], None]:
    """The name and the data of each server-sent event of an answer. Raises what `httpx2` raises."""
    reader = EventReader()
    async for chunk in answer.aiter_bytes():
        for data in reader.feed(chunk):
            yield reader.name, data


def _unreachable(error: Exception) -> ServerUnavailable:
    return ServerUnavailable(f"Satchel's server doesn't answer ({type(error).__name__}).")


_CLASSES: Final[Mapping[str, type[SatchelError]]] = {
    re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower(): getattr(errors, name) for name in errors.__all__
}


def _said(status: int, body: bytes) -> SatchelError:
    try:
        return error_of(json.loads(body))
    except (ValueError, KeyError, TypeError):
        return ServerUnavailable(
            f"Something other than Satchel answers at the server's address (status {status})."
        )


def error_of(problem: Mapping[str, Any]) -> SatchelError:
    """The error that a problem describes.

    Raises:
        KeyError, TypeError: It is not a problem.
    """
    detail, status = str(problem["detail"]), int(problem["status"])
    known = _CLASSES.get(str(problem["code"]))
    if known is not None:
        return known(detail)
    if status == 503:
        return ServerUnavailable(detail)
    if status == 401:
        return ServerUnavailable(f"Satchel's server refuses the token of this home: {detail}")
    return UsageError(detail) if status < 500 else SatchelError(detail)
