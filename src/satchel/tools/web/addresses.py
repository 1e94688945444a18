"""Decides which addresses the web tools may connect to: public ones, and those that the user listed.

A name is resolved once, and the connection goes to the address that was checked. So a name that resolves to a public
address at first and to a private one a moment later (DNS rebinding) gets nowhere.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from satchel.addresses import DEFAULT_PORTS, Resolve, ascii_host, host_and_port, is_public, resolve_name
from satchel.errors import Refused, UsageError

_MOST_URL_CHARS = 8_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A checked address and the URL to request from it.

    Attributes:
        url: The original URL without its fragment.
    """

    url: str
    scheme: str
    host: str
    port: int
    address: str

    @property
    def dialled_url(self) -> str:
        """The URL with the address in place of the host's name."""
        parts = urlsplit(self.url)
        host = f"[{self.address}]" if ":" in self.address else self.address
        return parts._replace(netloc=f"{host}:{self.port}").geturl()

    @property
    def host_header(self) -> str:
        """The value of the `Host` header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"


class AddressRules:
    """Decides where the web tools may go."""

    def __init__(self, *, allow_private: Collection[str] = (), resolve: Resolve = resolve_name) -> None:
        """Set the rules. Hosts in `allow_private` may have private addresses; they stand with or without a port
        ("127.0.0.1:8000", "nas.local").
        """
        self._allowed = {host_and_port(entry) for entry in allow_private}
        self._resolve = resolve

    async def check(self, url: str) -> Target:
        """Check where a URL leads.

        Raises:
            UsageError: It can't be fetched.
            Refused: It leads to a private address; the message names the setting that would allow that.
        """
        parts = self._parts(url)
        port = parts.port or DEFAULT_PORTS[parts.scheme]
        host = parts.hostname or ""
        try:
            host = ascii_host(host)
            addresses = await self._resolve(host, port)
        except (OSError, ValueError) as error:
            raise UsageError(f"There is no host {host!r}: {error}.") from error
        if not addresses:
            raise UsageError(f"There is no host {host!r}.")
        if not self._is_allowed(host, port):
            for address in addresses:
                if not is_public(address):
                    named = f"[{host}]" if ":" in host else host
                    raise Refused(
                        f"{host} is at {address}, which is not a public address, so web tools don't connect to it. "
                        f'To allow it, the user sets [web] allow_private = ["{named}:{port}"].'
                    )
        return Target(
            url=parts._replace(fragment="").geturl(),
            scheme=parts.scheme,
            host=host,
            port=port,
            address=addresses[0],
        )

    def _is_allowed(self, host: str, port: int) -> bool:
        return bool({(host, None), (host, port)} & self._allowed)

    def _parts(self, url: str) -> SplitResult:
        if len(url) > _MOST_URL_CHARS:
            raise UsageError(f"The URL has {len(url):,} characters; the limit is {_MOST_URL_CHARS:,}.")
        try:
            parts = urlsplit(url.strip())
            scheme, host, port = parts.scheme.lower(), parts.hostname, parts.port
        except ValueError as error:
            raise UsageError(f"{url[:200]!r} is not a URL: {error}.") from error
        if scheme not in DEFAULT_PORTS or not host or port == 0:
            raise UsageError(
                f"{url[:200]!r} can't be fetched: give a URL that begins with https:// or http://."
            )
        if parts.username is not None or parts.password is not None:
            raise UsageError("URLs that contain a user name or a password are not fetched.")
        return parts._replace(scheme=scheme)
