"""Which addresses the web tools may dial: public ones, and those that the user named.

A name is resolved once, and the address that was checked is the one that is dialled: a name that answers with a
public address now and a private one a moment later gains nothing.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import SplitResult, urlsplit

import anyio

from satchel.errors import Refused, UsageError

__all__ = ["AddressRules", "Resolve", "Target", "is_public", "resolve_name"]

Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""Gives the addresses of a name, as text; raises `OSError` where it has none."""

_PORTS = {"http": 80, "https": 443}
_MOST_URL_CHARS = 8_000


async def resolve_name(host: str, port: int) -> Sequence[str]:
    """The system's own resolver."""
    found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


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
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


class AddressRules:
    """Decides where the web tools may go."""

    def __init__(self, *, allow_private: Collection[str] = (), resolve: Resolve = resolve_name) -> None:
        """Take the exceptions.

        Args:
            allow_private: Hosts, or hosts with a port ("127.0.0.1:8000", "nas.local"), that may be private.
            resolve: Gives the addresses of names.
        """
        self._allowed = {entry.strip().casefold() for entry in allow_private}
        self._resolve = resolve

    async def check(self, url: str) -> Target:
        """Check where a URL leads.

        Raises:
            UsageError: It is none that can be fetched.
            Refused: It leads to a private address; the message names the setting that would allow it.
        """
        parts = self._parts(url)
        port = parts.port or _PORTS[parts.scheme]
        host = parts.hostname or ""
        try:
            host = _in_ascii(host)
            addresses = await self._resolve(host, port)
        except (OSError, UnicodeError) as error:
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
        return bool(
            {host.casefold(), f"{host}:{port}".casefold(), f"[{host}]:{port}".casefold()} & self._allowed
        )

    def _parts(self, url: str) -> SplitResult:
        if len(url) > _MOST_URL_CHARS:
            raise UsageError(f"The URL has {len(url):,} characters; {_MOST_URL_CHARS:,} are the most.")
        try:
            parts = urlsplit(url.strip())
            scheme, host, port = parts.scheme.lower(), parts.hostname, parts.port
        except ValueError as error:
            raise UsageError(f"{url[:200]!r} is no URL: {error}.") from error
        if scheme not in _PORTS or not host or port == 0:
            raise UsageError(
                f"{url[:200]!r} can't be fetched: give a URL that begins with https:// or http://."
            )
        if parts.username is not None or parts.password is not None:
            raise UsageError("A URL with a user's name or a password in it is not fetched.")
        return parts._replace(scheme=scheme)


def _in_ascii(host: str) -> str:
    """A name as DNS knows it; an address is left as it is."""
    return host if host.isascii() else host.encode("idna").decode("ascii")


def is_public(address: str) -> bool:
    """Whether an address belongs to the public internet; one that can't be read does not."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        # 64:ff9b::/96 carries an IPv4 address through a translator (RFC 6052).
        # ::/96 once did the same without one (RFC 4291).
        if inner is None and (
            ip in ipaddress.ip_network("64:ff9b::/96") or ip in ipaddress.ip_network("::/96")
        ):
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFF_FFFF)
        if inner is not None:
            return is_public(str(inner))
        if ip.is_site_local:
            return False
    return ip.is_global and not ip.is_multicast
