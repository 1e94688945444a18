"""Which addresses the web tools may dial: public ones, and those that the user named.

A name is resolved once, and the address that was checked is the one that is dialled: a name that answers with a
public address now and a private one a moment later gains nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from satchel.addresses import DEFAULT_PORTS, Resolve, ascii_host, host_and_port, is_public, resolve_name
from satchel.errors import Refused, UsageError

__all__ = ["AddressRules", "Target"]

_MOST_URL_CHARS = 8_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """An address that was checked, and what is asked of it.

    Attributes:
        url: As it was given, without its fragment.
        address: What is dialled.
    """

    url: str
    scheme: str
    host: str
    port: int
    address: str

    @property
    def dialled_url(self) -> str:
        """The same with the address in place of the name."""
        parts = urlsplit(self.url)
        host = f"[{self.address}]" if ":" in self.address else self.address
        return parts._replace(netloc=f"{host}:{self.port}").geturl()

    @property
    def host_header(self) -> str:
        """What the server is told."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"


class AddressRules:
    """Decides where the web tools may go."""

    def __init__(self, *, allow_private: Collection[str] = (), resolve: Resolve = resolve_name) -> None:
        """Take the exceptions.

        Args:
            allow_private: Hosts, or hosts with a port ("127.0.0.1:8000", "nas.local"), that may be private.
            resolve: Gives the addresses of names.
        """
        self._allowed = {host_and_port(entry) for entry in allow_private}
        self._resolve = resolve

    async def check(self, url: str) -> Target:
        """Check where a URL leads.

        Raises:
            UsageError: It is none that can be fetched.
            Refused: It leads to a private address; the message names the setting that would allow it.
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
                        f"{host} is at {address}, which is not a public address: web tools do not go there. "
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
            raise UsageError(f"The URL has {len(url):,} characters; {_MOST_URL_CHARS:,} are the most.")
        try:
            parts = urlsplit(url.strip())
            scheme, host, port = parts.scheme.lower(), parts.hostname, parts.port
        except ValueError as error:
            raise UsageError(f"{url[:200]!r} is no URL: {error}.") from error
        if scheme not in DEFAULT_PORTS or not host or port == 0:
            raise UsageError(
                f"{url[:200]!r} can't be fetched: give a URL that begins with https:// or http://."
            )
        if parts.username is not None or parts.password is not None:
            raise UsageError("A URL with a user's name or a password in it is not fetched.")
        return parts._replace(scheme=scheme)
