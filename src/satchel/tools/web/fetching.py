"""Fetches a page within limits; each redirect is checked before it is followed."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urljoin

import anyio

from satchel.errors import Refused, SatchelError, UsageError
from satchel.tools.urls import plain_url
from satchel.tools.web.addresses import AddressRules, Target

if TYPE_CHECKING:
    import httpx2

__all__ = ["Fetcher", "Page"]

_REDIRECTS = frozenset((301, 302, 303, 307, 308))


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What came back.

    Attributes:
        url: Where it was found in the end.
        kind: The media type, lower case, without parameters; "" where none was said.
        charset: As said, or "".
        body: The first `max_bytes` of it, decompressed.
        is_cut: There was more.
    """

    url: str
    status: int
    kind: str
    charset: str
    body: bytes
    is_cut: bool


class Fetcher:
    """Fetches pages. It keeps no cookies and sends no credentials."""

    def __init__(
        self,
        rules: AddressRules,
        *,
        timeout_s: float = 20.0,
        max_bytes: int = 10_000_000,
        max_redirects: int = 5,
        kept_from: Callable[[str], str | None] = lambda _url: None,
    ) -> None:
        """Take the limits.

        Args:
            rules: Where it may go.
            timeout_s: For everything, redirects included.
            max_bytes: Of a body, after decompression.
            max_redirects: One after the other.
            kept_from: Names the user's rule that keeps a redirect from being followed to an address, or gives None.
        """
        self._rules = rules
        self._timeout_s = timeout_s
        self._max_bytes = max_bytes
        self._max_redirects = max_redirects
        self._kept_from = kept_from

    async def get(self, url: str, *, leaves_host: bool = True) -> Page:
        """Get a page.

        Args:
            url: Its address.
            leaves_host: Follow a redirect to another host as well; else it is an error that names the place.

        Raises:
            UsageError: The URL is none, or what is there can't be had.
            Refused: It leads to a private address, or to one that a rule keeps it from.
        """
        # Imported when a page is asked for: 70 ms that most conversations never need.
        import httpx2  # noqa: PLC0415

        try:
            with anyio.fail_after(self._timeout_s):
                async with httpx2.AsyncClient(
                    follow_redirects=False,
                    # The environment's proxies would resolve names by themselves, and past the rules.
                    trust_env=False,
                    timeout=self._timeout_s,
                    headers={
                        "User-Agent": "satchel",
                        "Accept": "text/html,*/*;q=0.8",
                        "Accept-Encoding": "gzip",
                    },
                ) as client:
                    return await self._follow(client, url, leaves_host=leaves_host)
        except TimeoutError:
            raise UsageError(f"{url[:200]} did not answer whole within {self._timeout_s:g} s.") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
            raise UsageError(
                f"{url[:200]} could not be fetched: {str(error) or type(error).__name__}."
            ) from error

    async def _follow(self, client: httpx2.AsyncClient, url: str, *, leaves_host: bool) -> Page:
        for _ in range(self._max_redirects + 1):
            target = await self._rules.check(url)
            request = client.build_request(
                "GET",
                target.dialled_url,
                headers={"Host": target.host_header},
                # The certificate must be the name's, though the address is dialled.
                extensions={"sni_hostname": target.host},
            )
            response = await client.send(request, stream=True)
            try:
                location = response.headers.get("location")
                if response.status_code in _REDIRECTS and location:
                    url = urljoin(target.url, location)
                    # The gate has seen where the call began, not where it leads.
                    if not leaves_host and not _stays_on_host(target.url, url):
                        raise Refused(
                            f"The page was moved to another host: {url[:200]}. If you need it, fetch that address."
                        )
                    if rule := self._kept_from(url):
                        raise Refused(
                            f"The page was moved to {url[:200]}, and the rule {rule!r} forbids that address."
                        )
                    client.cookies.clear()
                    continue
                return await self._read(target, response)
            finally:
                await response.aclose()
        raise SatchelError(
            f"The page was moved more than {self._max_redirects} times; the last place was {url[:200]}."
        )

    async def _read(self, target: Target, response: httpx2.Response) -> Page:
        body, is_cut = bytearray(), False
        inflate = _inflater(response.headers.get("content-encoding", ""), target.url)
        # Unpacked here and not by the library: a small piece of a bomb unpacks to gigabytes, and it would all be made.
        async for piece in response.aiter_raw():
            body += inflate(piece, self._max_bytes + 1 - len(body))
            if len(body) > self._max_bytes:
                del body[self._max_bytes :]
                is_cut = True
                break
        kind, _, parameters = response.headers.get("content-type", "").partition(";")
        charset = parameters.partition("charset=")[2].partition(";")[0].strip(" \"'")
        return Page(
            url=target.url,
            status=response.status_code,
            kind=kind.strip().lower(),
            charset=charset,
            body=bytes(body),
            is_cut=is_cut,
        )


def _stays_on_host(before: str, after: str) -> bool:
    """Whether a redirect leads to the same host and port, or from its http to its https; the other way, all on the way
    could read the address.
    """
    one, other = plain_url(before), plain_url(after)
    if one is None or other is None or (one.scheme, other.scheme) == ("https", "http"):
        return False
    return one.netloc == other.netloc


def _inflater(encoding: str, url: str) -> Callable[[bytes, int], bytes]:
    """What unpacks a body piece by piece, each time to so many bytes at most."""
    match encoding.strip().lower():
        case "" | "identity":
            return lambda piece, most: piece[:most]
        case "gzip" | "x-gzip" | "deflate":
            # 47: the largest window (15), and gzip or zlib by its first bytes (+32), as zlib's manual has it.
            unpacking = zlib.decompressobj(47)

            def unpack(piece: bytes, most: int) -> bytes:
                try:
                    return unpacking.decompress(piece, most)
                except zlib.error as error:
                    raise UsageError(f"{url[:200]} sent a body that can't be unpacked: {error}.") from error

            return unpack
        case other:
            raise UsageError(f"{url[:200]} sent its body packed as {other[:40]!r}, which was not asked for.")
