"""What a browser that has logged in may do: its cookie, its place, and the proof that a change comes from our pages.

Browsers send a cookie to every port of a host, so another service on this machine would get it. A browser that logs in
therefore gets a place of its own: a path that nobody can guess, `/s/` with 32 hexadecimal digits, below which it finds
all pages. Its cookie is for that path only, so a browser sends it nowhere else, and only our pages know the path.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, Protocol
from urllib.parse import parse_qs

from starlette.formparsers import MultiPartException
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope

from satchel.addresses import host_and_port
from satchel.runtime.browsers import Browsers

FORM_TOKEN_FIELD: Final = "form_token"
FORM_TOKEN_HEADER: Final = "x-form-token"

_KEY: Final = "satchel.browser"
_ASKED: Final = "satchel.place"
_PLACE: Final = re.compile(r"(/s/[0-9a-f]{32})(/.*)?", re.DOTALL)
_SHARED: Final = re.compile(r"/(?:login\b|static/|/)")
"""What stands outside of all places: logging in, and files that are the same for everybody."""
_COOKIE_LASTS_S: Final = 30 * 24 * 3600
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_FORM: Final = "application/x-www-form-urlencoded"
_FILES: Final = "multipart/form-data"
_OURS: Final = frozenset({"same-origin", "none"})


def browser_of(scope: Scope) -> str | None:
    """What the browser of a request sent to log in; None for a request with a bearer token or without either."""
    found: str | None = scope.get(_KEY)
    return found


def as_browser(scope: Scope, value: str) -> Scope:
    """The request as one of the browser that sent this value, for who has found out that it is logged in."""
    return {**scope, _KEY: value}


def as_passed_on(scope: Scope, *, browser: str | None, place: str) -> Scope:
    """A request that another server has admitted, with what it knew of its browser there."""
    found = {**scope, _ASKED: place} if place else scope
    return found if browser is None else as_browser(found, browser)


def with_place(scope: Scope) -> Scope:
    """The request without the place at the beginning of its path; `BrowserAccess.admit` checks the place."""
    found = _PLACE.fullmatch(scope.get("path", ""))
    return {**scope, "path": found[2] or "/", _ASKED: found[1]} if found else scope


def place_of(scope: Scope) -> str:
    """The place that a request asked for, whoever sent it; "" for a path outside of all places."""
    asked: str = scope.get(_ASKED, "")
    return asked


def place_for(browser: str) -> str:
    """The place of the browser that sends this value. The value doesn't follow from it."""
    return f"/s/{hmac.new(browser.encode(), b'place', sha256).hexdigest()[:32]}"


def within(scope: Scope, path: str) -> str:
    """A path of this server as the browser of the request has to ask for it: below its place."""
    if browser_of(scope) is None or not path.startswith("/") or _SHARED.match(path):
        return path
    return place_of(scope) + path


def form_token_of(scope: Scope) -> str:
    """What a change by this browser has to contain; "" where no browser is logged in.

    It follows from the cookie, which no page of another site can read, and the cookie doesn't follow from it.
    """
    browser = browser_of(scope)
    return _token(browser) if browser else ""


def _token(browser: str) -> str:
    return hmac.new(browser.encode(), b"form", sha256).hexdigest()


class Gatekeeper(Protocol):
    """Who gets in."""

    def is_token(self, given: str) -> bool:
        """Whether this is a token that lets programs in. The time tells nothing of it."""

    async def admit(self, scope: Scope) -> bool:
        """Whether the request comes from a browser that is logged in.

        Raises:
            StorageError: That is not known at the moment.
        """

    async def proves_origin(self, scope: Scope, body: bytes) -> bool:
        """Whether a request by a browser is safe, or a change that came from one of our own pages."""


def values_of(scope: Scope) -> Iterator[str]:
    """The values of our cookie that belong to the place that was asked for, if no page of another site asked."""
    connection = HTTPConnection(scope)
    # For SameSite every port of this machine is one site. So a request that another page caused doesn't count, unless
    # the user followed a link.
    site = connection.headers.get("sec-fetch-site", "none")
    is_visit = scope.get("method") == "GET" and connection.headers.get("sec-fetch-mode") == "navigate"
    if site in _OURS or is_visit:
        yield from (one for one in _sent(scope) if hmac.compare_digest(place_for(one), place_of(scope)))


@dataclass(frozen=True, slots=True)
class BrowserAccess:
    """Reads and writes the cookie, and checks changes that came with it."""

    browsers: Browsers

    def is_token(self, given: str) -> bool:
        """See `Gatekeeper`."""
        return self.browsers.is_token(given)

    async def admit(self, scope: Scope) -> bool:
        """Whether the request comes from a browser that is logged in. Then `browser_of` knows it."""
        for value in values_of(scope):
            if await self.browsers.known(value):
                scope[_KEY] = value
                return True
        return False

    async def proves_origin(self, scope: Scope, body: bytes) -> bool:
        """Whether a request by a browser is safe, or a change that came from one of our own pages.

        The gate has compared `Origin` with `Host` where it is there; here it has to be there, and the form token too:
        in a header, or in a field of the form.
        """
        browser = browser_of(scope)
        if browser is None or scope["method"] in _SAFE:
            return True
        headers = HTTPConnection(scope).headers
        if "origin" not in headers:
            return False
        given = headers.get(FORM_TOKEN_HEADER, "")
        if not given and headers.get("content-type", "").partition(";")[0].strip().lower() == _FORM:
            try:
                fields = parse_qs(body.decode("utf-8", "replace"), max_num_fields=1000)
            except ValueError:
                return False
            given = fields.get(FORM_TOKEN_FIELD, [""])[0]
        elif not given and headers.get("content-type", "").lower().startswith(_FILES):
            # A form with a file, which a browser without scripts can send in no other way.
            try:
                async with Request(scope, replayed(body)).form(max_files=1, max_fields=10) as form:
                    given = str(form.get(FORM_TOKEN_FIELD, ""))
            except MultiPartException:
                return False
        return hmac.compare_digest(given.encode("utf-8", "replace"), _token(browser).encode())

    def set_cookie(self, scope: Scope, response: Response, value: str) -> None:
        """Have the browser send this value to its place from now on; "" has it forget the value of the request's."""
        response.set_cookie(
            cookie_name(scope),
            value,
            max_age=_COOKIE_LASTS_S if value else 0,
            path=place_for(value) if value else place_of(scope),
            httponly=True,
            samesite="strict",
            secure=scope["scheme"] == "https",
        )


def replayed(body: bytes, after: Receive | None = None) -> Receive:
    """Receives a body that has been read, then whatever follows."""
    waiting = [body]

    async def receive() -> Message:
        if waiting or after is None:
            return {"type": "http.request", "body": waiting.pop() if waiting else b"", "more_body": False}
        return await after()

    return receive


def _sent(scope: Scope) -> Iterator[str]:
    """The values of our cookie. There may be several: every service on this machine can set one of this name."""
    name = cookie_name(scope)
    for header in HTTPConnection(scope).headers.getlist("cookie"):
        for pair in header.split(";"):
            key, _, value = pair.strip().partition("=")
            if key == name:
                yield value


def cookie_name(scope: Scope) -> str:
    """One name for each port, so that the cookies of two servers on one machine can be told apart."""
    port = host_and_port(HTTPConnection(scope).headers.get("host", ""))[1]
    return f"satchel_{port or (443 if scope['scheme'] == 'https' else 80)}"
