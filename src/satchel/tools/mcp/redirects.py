"""The end of a login in a browser: the address that the authorization server sends it back to.

A listener on 127.0.0.1 takes it (RFC 8252). Where the browser runs on another machine, the user copies the address that
it could not open; both are read in the same way.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

import anyio
from anyio.abc import SocketAttribute, SocketStream

from satchel.errors import UsageError
from satchel.tools.visible import visible

_PATH = "/callback"
_MAX_BYTES = 16_384
"""Of a request's head: a code has a few hundred characters."""
_REQUEST_S = 10.0
"""For a request to come in whole, and for the answer to go out."""
_MAX_CHARS = 300
_PAGE = (
    "<!doctype html><html lang=en><meta charset=utf-8><title>Satchel</title>"
    "<body style='font: 1.1rem sans-serif; margin: 4rem'><p>{text}</p>"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Redirected:
    """What an authorization server sent the browser back with.

    Attributes:
        state: The value that Satchel sent, for comparing.
        issuer: Who answers (RFC 9207), or None.
        error: Why there is no code, "" where there is one.
    """

    state: str
    code: str = ""
    issuer: str | None = None
    error: str = ""


def read_redirect(address: str) -> Redirected | None:
    """Read the address that the browser was sent to, or its query alone; None where it is not the end of a login."""
    try:
        query = urlsplit(address.strip()).query or address.strip().lstrip("?")
        given = parse_qs(query, max_num_fields=50)
    except ValueError:
        return None
    first = {name: values[0] for name, values in given.items()}
    if "state" not in first or not ("code" in first or "error" in first):
        return None
    error = first.get("error_description") or first.get("error") or ""
    return Redirected(
        state=first["state"], code=first.get("code", ""), issuer=first.get("iss"), error=clause(error)
    )


def clause(text: str) -> str:
    """A stranger's text as a clause of bounded length."""
    return " ".join(visible(text[: 4 * _MAX_CHARS]).split())[:_MAX_CHARS].rstrip(".")


class RedirectListener:
    """Waits for browsers; made by `listening`."""

    def __init__(self, port: int) -> None:
        """Use `listening`."""
        self.uri = f"http://127.0.0.1:{port}{_PATH}"
        self._state: str | None = None
        self._redirected: Redirected | None = None
        self._arrived = anyio.Event()

    async def wait(self, state: str) -> Redirected:
        """Wait for a browser that comes with this state; all others are sent away."""
        self._state = state
        while self._redirected is None:
            await self._arrived.wait()
        return self._redirected

    def offer(self, redirected: Redirected | None) -> bool:
        """Take what a browser, or the user, came with.

        Returns:
            Whether it is the answer that is waited for.
        """
        if redirected is None or self._state is None or redirected.state != self._state:
            return False
        self._redirected = redirected
        self._arrived.set()
        return True

    async def serve(self, stream: SocketStream) -> None:
        """Answer one request."""
        # A boundary: whoever connects to the port; what they do wrong must not end the login.
        try:
            with anyio.move_on_after(_REQUEST_S):
                async with stream:
                    await stream.send(_response(*self._answer(await _head(stream))))
        except (anyio.BrokenResourceError, anyio.EndOfStream, anyio.ClosedResourceError, OSError):
            pass

    def _answer(self, head: bytes) -> tuple[str, str]:
        method, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
        target = rest.rpartition(" ")[0]
        if method != "GET" or target.partition("?")[0] != _PATH:
            return "404 Not Found", "There is nothing here."
        redirected = read_redirect(target)
        if not self.offer(redirected):
            return "400 Bad Request", "This is not the login that Satchel waits for. Start it again."
        if redirected is not None and redirected.error:
            return "200 OK", "You were not logged in. Satchel says why. You can close this window."
        return "200 OK", "You can close this window and go back to Satchel."


@asynccontextmanager
async def listening(port: int | None) -> AsyncIterator[RedirectListener]:
    """Listen on 127.0.0.1 while the block runs. Without a port, a free one is taken.

    Raises:
        UsageError: The port is taken.
    """
    try:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=port or 0)
    except OSError as error:
        raise UsageError(
            f"Port {port} of 127.0.0.1 can't be used for the login: {error.strerror}."
        ) from error
    async with listener, anyio.create_task_group() as group:
        redirects = RedirectListener(listener.extra(SocketAttribute.local_port))
        group.start_soon(listener.serve, redirects.serve)
        yield redirects
        group.cancel_scope.cancel()


async def _head(stream: SocketStream) -> bytes:
    head = b""
    while b"\r\n\r\n" not in head and len(head) < _MAX_BYTES:
        head += await stream.receive()
    return head


def _response(status: str, text: str) -> bytes:
    body = _PAGE.format(text=text).encode()
    return (
        f"HTTP/1.1 {status}\r\ncontent-type: text/html; charset=utf-8\r\ncontent-length: {len(body)}\r\n"
        # What is in the address must not be sent on by the browser.
        "referrer-policy: no-referrer\r\ncache-control: no-store\r\nconnection: close\r\n\r\n"
    ).encode() + body
