"""Hosts and addresses: the one spelling of a host, which addresses are public, and how names are resolved."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias
from urllib.parse import unquote

import anyio

DEFAULT_PORTS = {"http": 80, "https": 443}
_HOST = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")
_NUMERIC_HOST = re.compile(r"[0-9a-fx]+(\.[0-9a-fx]+){0,3}")

Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""Gives the addresses of a name, as text; raises `OSError` where it has none."""


def ascii_host(host: str) -> str:
    """A host as it is dialled: percent-decoded, mapped as browsers do (UTS #46), lower case, no trailing dot.

    A numeric host is written as an address: `0x7f.1` and `2130706433` are 127.0.0.1.

    Raises:
        ValueError: It is no host.
    """
    host = unquote(host, errors="strict").lower()
    if ":" in host:
        return str(ipaddress.IPv6Address(host))
    if not host.isascii():
        # Imported when needed: hardly any host has such letters.
        import idna  # noqa: PLC0415

        # `idna.IDNAError` is a `ValueError`.
        host = idna.encode(host, uts46=True).decode("ascii").lower()
    host = host.removesuffix(".")
    if not _HOST.fullmatch(host):
        raise ValueError("it holds characters that no host has")
    if _NUMERIC_HOST.fullmatch(host):
        try:
            return socket.inet_ntoa(socket.inet_aton(host))
        except OSError:
            return host
    return host


async def resolve_name(host: str, port: int) -> Sequence[str]:
    """The system's own resolver."""
    found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


def host_and_port(entry: str) -> tuple[str, int | None]:
    """The host and the port of an entry such as "nas.local", "127.0.0.1:8000" or "[::1]:8000"; None is any port."""
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


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server at this name or address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


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
