"""Fetches a page within limits and checks each redirect before following it."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING
from urllib.parse import urljoin

import anyio

from satchel.errors import Refused, SatchelError, UsageError
from satchel.tools.urls import plain_url
from satchel.tools.web.addresses import AddressRules, Target

if TYPE_CHECKING:
    import httpx2

_REDIRECTS = frozenset((301, 302, 303, 307, 308))


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedPage:
    """A fetched page.

    Attributes:
        url: Its address after all redirects.
        kind: The media type, in lower case and without parameters; "" if the server sent none.
        charset: As the server sent it, or "".
        body: Its first `max_bytes`, decompressed.
        is_cut: There was more.
    """

    url: str
    status: int
    kind: str
    charset: str
    body: bytes
    is_cut: bool


@dataclass(frozen=True, slots=True, eq=False)
class Fetcher:
    """Fetches pages. It keeps no cookies and sends no credentials.

    Attributes:
        timeout_s: The time limit for a page, including redirects.
        max_bytes: The largest body, after decompression.
        kept_from: Returns the user's rule that forbids a redirect to an address, or None.
    """

    rules: AddressRules
    _: KW_ONLY
    timeout_s: float = 20.0
    max_bytes: int = 10000000
    max_redirects: int = 5
    kept_from: Callable[[str], str | None] = lambda _url: None

    async def get(self, url: str, *, leaves_host: bool = True) -> FetchedPage:
        """Fetch a page. Without `leaves_host`, a redirect to another host is an error that names its target.

        Raises:
            UsageError: The URL is invalid, or the page can't be fetched.
            Refused: It leads to a private address, or to one that a rule forbids.
        """
        # Imported on demand: it takes 70 ms, which most conversations don't need.
        import httpx2  # noqa: PLC0415

        try:
            with anyio.fail_after(self.timeout_s):
                async with httpx2.AsyncClient(
                    follow_redirects=False,
                    # The environment's proxies would resolve names themselves, bypassing the rules.
                    trust_env=False,
                    timeout=self.timeout_s,
                    headers={
                        "User-Agent": "satchel",
                        "Accept": "text/html,*/*;q=0.8",
                        "Accept-Encoding": "gzip",
                    },
                ) as client:
                    return await self._follow(client, url, leaves_host=leaves_host)
        except TimeoutError:
            raise UsageError(f"{url[:200]} did not answer completely within {self.timeout_s:g} s.") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
            raise UsageError(
                f"{url[:200]} could not be fetched: {str(error) or type(error).__name__}."
            ) from error

    async def _follow(self, client: httpx2.AsyncClient, url: str, *, leaves_host: bool) -> FetchedPage:
        for _ in range(self.max_redirects + 1):
            target = await self.rules.check(url)
            request = client.build_request(
                "GET",
                target.dialled_url,
                headers={"Host": target.host_header},
                # The connection goes to the address, but the certificate must be for the name.
                extensions={"sni_hostname": target.host},
            )
            response = await client.send(request, stream=True)
            try:
                location = response.headers.get("location")
                if response.status_code in _REDIRECTS and location:
                    url = urljoin(target.url, location)
                    # The permission was decided for the first address, not for the target of a redirect.
                    if not leaves_host and not _stays_on_host(target.url, url):
                        raise Refused(
                            f"The page redirects to another host: {url[:200]}. If you need it, fetch that address."
                        )
                    if rule := self.kept_from(url):
                        raise Refused(
                            f"The page redirects to {url[:200]}, and the rule {rule!r} forbids that address."
                        )
                    client.cookies.clear()
                    continue
                return await self._read(target, response)
            finally:
                await response.aclose()
        raise SatchelError(
            f"The page redirects more than {self.max_redirects} times; the last address was {url[:200]}."
        )

    async def _read(self, target: Target, response: httpx2.Response) -> FetchedPage:
        body, is_cut = bytearray(), False
        inflate = _inflater(response.headers.get("content-encoding", ""), target.url)
        # Decompressed here and not by the library, which would decompress a small piece of a bomb to gigabytes at
        # once.
        async for piece in response.aiter_raw():
            body += inflate(piece, self.max_bytes + 1 - len(body))
            if len(body) > self.max_bytes:
                del body[self.max_bytes :]
                is_cut = True
                break
        kind, _, parameters = response.headers.get("content-type", "").partition(";")
        charset = parameters.partition("charset=")[2].partition(";")[0].strip(" \"'")
        return FetchedPage(
            url=target.url,
            status=response.status_code,
            kind=kind.strip().lower(),
            charset=charset,
            body=bytes(body),
            is_cut=is_cut,
        )


def _stays_on_host(before: str, after: str) -> bool:
    """Whether a redirect stays on the host and port, or goes from http to https on that host.

    From https to http doesn't count: then everyone on the network could read the address.
    """
    one, other = plain_url(before), plain_url(after)
    if one is None or other is None or (one.scheme, other.scheme) == ("https", "http"):
        return False
    return one.netloc == other.netloc


def _inflater(encoding: str, url: str) -> Callable[[bytes, int], bytes]:
    """A function that decompresses a body piece by piece, with a limit for each piece."""
    match encoding.strip().lower():
        case "" | "identity":
            return lambda piece, most: piece[:most]
        case "gzip" | "x-gzip" | "deflate":
            # 47: the largest window (15) and detection of gzip or zlib (+32); see zlib's manual, inflateInit2.
            unpacking = zlib.decompressobj(47)

            def unpack(piece: bytes, most: int) -> bytes:
                try:
                    return unpacking.decompress(piece, most)
                except zlib.error as error:
                    raise UsageError(
                        f"{url[:200]} sent a body that can't be decompressed: {error}."
                    ) from error

            return unpack
        case other:
            raise UsageError(
                f"{url[:200]} sent its body in the encoding {other[:40]!r}, which was not requested."
            )
