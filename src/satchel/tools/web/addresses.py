"""Which addresses the web tools may dial: public ones, and those that the user named.

A name is resolved once, and the address that was checked is the one that is dialled: a name that answers with a
public address now and a private one a moment later gains nothing.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import SplitResult, urlsplit

import anyio

from satchel.errors import Refused, UsageError
from satchel.tools.urls import DEFAULT_PORTS, ascii_host

__all__ = ["AddressRules", "Resolve", "Target", "is_public", "resolve_name"]

Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""Gives the addresses of a name, as text; raises `OSError` where it has none."""

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
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"


class AddressRules:
    """Decides where the web tools may go."""

    def __init__(self, *, allow_private: Collection[str] = (), resolve: Resolve = resolve_name) -> None:
        """Take the exceptions.

        Args:
            allow_private: Hosts, or hosts with a port ("127.0.0.1:8000", "nas.local"), that may be private.
            resolve: Gives the addresses of names.
        """
        self._allowed = {_plain_entry(entry) for entry in allow_private}
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


def _plain_entry(entry: str) -> tuple[str, int | None]:
    """The host and the port, or None for any port, of an entry in `[web] allow_private`."""
    entry = entry.strip()
    # More than one colon without brackets is an IPv6 address alone.
    named = re.fullmatch(r"\[(?P<ip>[^\]]*)\](?::(?P<ip_port>\d+))?|(?P<host>[^:]*):(?P<port>\d+)", entry)
    host = (named["ip"] or named["host"] or "") if named else entry
    port = (named["ip_port"] or named["port"]) if named else None
    try:
        host = ascii_host(host)
    except ValueError:
        host = host.casefold()
    return host, int(port) if port else None


# IANA's special-purpose registries for IPv4 and IPv6, as of 2025, without what is globally reachable in them:
# https://www.iana.org/assignments/iana-ipv4-special-registry, …/iana-ipv6-special-registry.
_SPECIAL_V4 = tuple(
    ipaddress.IPv4Network(text)
    for text in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "168.63.129.16/32",  # Azure's metadata and DNS, at a public address of Microsoft's
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
    )
)
_GLOBAL_V6 = ipaddress.IPv6Network("2000::/3")
"""All that IANA has given out as global unicast; every other address is special, or nobody's."""
_SPECIAL_V6 = tuple(
    ipaddress.IPv6Network(text)
    for text in (
        "2001::/23",  # IETF protocols; Teredo (2001::/32) leads to an IPv4 address that it names in disguise
        "2001:db8::/32",
        "3ffe::/16",
        "3fff::/20",
    )
)
_SIXTOFOUR = ipaddress.IPv6Network("2002::/16")
_MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_ISATAP = (0x0000_5EFE, 0x0200_5EFE)
"""The upper half of an interface's identifier that ends in an IPv4 address (RFC 5214, 6.1)."""


def is_public(address: str) -> bool:
    """Whether an address belongs to the public internet; one that can't be read does not.

    An IPv6 address that carries an IPv4 address is public where that one is, as translators and tunnels lead there.
    """
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv4Address):
        return not any(ip in network for network in _SPECIAL_V4)
    bits = int(ip)
    if ip in _MAPPED or ip in _NAT64:
        return is_public(str(ipaddress.IPv4Address(bits & 0xFFFF_FFFF)))
    if ip not in _GLOBAL_V6 or any(ip in network for network in _SPECIAL_V6):
        return False
    if ip in _SIXTOFOUR and not is_public(str(ipaddress.IPv4Address(bits >> 80 & 0xFFFF_FFFF))):
        return False
    if bits >> 32 & 0xFFFF_FFFF in _ISATAP:
        return is_public(str(ipaddress.IPv4Address(bits & 0xFFFF_FFFF)))
    return True
