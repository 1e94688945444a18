"""HTTP requests to authorization servers, with limits on where they go, how long they take and how much they return.

An MCP server names its authorization server, which names its endpoints, so strangers choose every address. Requests may
go to public addresses, and to addresses of the same kind as the MCP server's own, which the user chose. The connection
is made to the address that was checked.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

import anyio
import httpx2

from satchel.addresses import Resolve, is_public, resolve_name
from satchel.errors import Refused, SatchelError

REQUEST_S = 30.0
"""For one whole response."""
MAX_BYTES = 1_000_000
"""Of one response: metadata, a registration or tokens have a few thousand bytes."""
_PUBLIC, _PRIVATE, _LOOPBACK = range(3)


class Reach:
    """Decides where the requests of a login at one MCP server may go."""

    def __init__(self, url: str, *, resolve: Resolve = resolve_name) -> None:
        self._url = httpx2.URL(url)
        self._resolve = resolve
        self._most: int | None = None

    async def check(self, url: httpx2.URL) -> str:
        """The address to connect to for a URL.

        Raises:
            Refused: A login may not lead there.
            SatchelError: The host has no address.
        """
        if url.scheme not in ("https", "http") or not url.host:
            raise Refused(f"The login leads to {_short(url)}, which is not an HTTPS address.")
        addresses = await self._addresses(url)
        kinds = [_kind(address) for address in addresses]
        if self._most is None:
            own = [_kind(address) for address in await self._addresses(self._url)]
            # A server with addresses of several kinds is treated as the most public of them.
            self._most = min((kind for kind in own if kind is not None), default=_PUBLIC)
        for address, kind in zip(addresses, kinds, strict=True):
            if kind is None or kind > self._most:
                raise Refused(
                    f"The login leads to {_short(url)} at {address}, which is not a public address. A server may only "
                    "name addresses like that when it is itself at one."
                )
        if url.scheme == "http" and any(kind != _LOOPBACK for kind in kinds):
            raise Refused(f"The login leads to {_short(url)}, where tokens would be sent unencrypted.")
        return addresses[0]

    async def _addresses(self, url: httpx2.URL) -> Sequence[str]:
        port = url.port or (443 if url.scheme == "https" else 80)
        try:
            with anyio.fail_after(REQUEST_S):
                addresses = await self._resolve(url.host, port)
        except (OSError, UnicodeError) as error:
            # TimeoutError is an OSError.
            raise SatchelError(f"{url.host} has no address: {str(error) or type(error).__name__}.") from error
        if not addresses:
            raise SatchelError(f"{url.host} has no address.")
        return addresses


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Sends requests to the places that `Reach` allows, and reads whole responses within the limits."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        # Without the proxies of the environment, which would resolve names themselves.
        self._inner = httpx2.AsyncHTTPTransport(retries=0)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """See `httpx2.AsyncBaseTransport`."""
        url = request.url
        address = await self._reach.check(url)
        dialled = httpx2.Request(
            request.method,
            url.copy_with(host=address),
            headers=_headers(request),
            stream=request.stream,
            # The certificate is checked against the name, not the address.
            extensions={**request.extensions, "sni_hostname": url.host},
        )
        try:
            with anyio.fail_after(REQUEST_S):
                response = await self._inner.handle_async_request(dialled)
                try:
                    return await _whole(request, response)
                finally:
                    await response.aclose()
        except TimeoutError:
            raise SatchelError(f"{_short(url)} did not answer within {REQUEST_S:g} s.") from None
        except httpx2.HTTPError as error:
            raise SatchelError(
                f"{_short(url)} can't be reached: {type(error).__name__}: {error}".rstrip(": ")
            ) from error

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()


def _headers(request: httpx2.Request) -> httpx2.Headers:
    headers = request.headers.copy()
    headers.pop("accept-encoding", None)
    # The SDK's own requests have neither. Some servers answer a form, or nothing, to those.
    headers.setdefault("user-agent", "satchel")
    if headers.get("accept", "*/*") == "*/*":
        headers["accept"] = "application/json"
    return headers


async def _whole(request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        # A few compressed bytes can be gigabytes.
        raise SatchelError(f"{_short(request.url)} sent a compressed response, which was not requested.")
    body = bytearray()
    if response.headers.get("content-type", "").partition(";")[0].strip().lower() != "text/event-stream":
        # An event stream may never end, and only its status is needed.
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > MAX_BYTES:
                raise SatchelError(f"{_short(request.url)} sent more than {MAX_BYTES:,} bytes.")
    headers = [
        (k, v) for k, v in response.headers.raw if k.lower() not in (b"content-length", b"transfer-encoding")
    ]
    return httpx2.Response(response.status_code, headers=headers, content=bytes(body), request=request)


def _kind(address: str) -> int | None:
    """What kind an address is; None if no login may lead to it, as with the metadata service of a cloud."""
    if is_public(address):
        return _PUBLIC
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    if ip.is_loopback:
        return _LOOPBACK
    if str(ip) in _METADATA:
        return None
    is_inside = any(ip in network for network in _INSIDE if network.version == ip.version)
    return _PRIVATE if is_inside else None


_INSIDE = tuple(
    map(ipaddress.ip_network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"))
)
"""Networks of organisations and homes."""
_METADATA = ("100.100.100.200", "fd00:ec2::254")
"""Metadata services of clouds in those networks; others are link-local."""


def _short(url: httpx2.URL) -> str:
    """The address for a message, without the parts that may be secret."""
    return str(url.copy_with(userinfo=b"", query=None, fragment=None))[:200]
