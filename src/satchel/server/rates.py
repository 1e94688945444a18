"""Rate limits for each client, and which addresses are one client."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from typing import Final

from starlette.types import Scope

_MOST_CLIENTS: Final = 4096
_V6_BITS: Final = 64
_TRIES_PER_S: Final = 0.2
_TRIES: Final = 10.0


class Rates:
    """Limits how often each client may do something: a bucket for each, filled at a constant rate."""

    def __init__(self, *, per_s: float, burst: float) -> None:
        """Allow `per_s` on average, and at most `burst` at once."""
        self._per_s = per_s
        self._burst = max(burst, 1.0)
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str, now_s: float) -> float:
        """Count one more. Returns 0.0 if it is allowed, otherwise the seconds until the next one is."""
        left, at = self._left.pop(client, (self._burst, now_s))
        left = min(self._burst, left + (now_s - at) * self._per_s)
        allowed = left >= 1
        self._left[client] = (left - 1 if allowed else left, now_s)
        if len(self._left) > _MOST_CLIENTS:
            self._left.popitem(last=False)
        return 0.0 if allowed else (1 - left) / self._per_s


def login_tries() -> Rates:
    """How often each client may try to log in."""
    return Rates(per_s=_TRIES_PER_S, burst=_TRIES)


def client_of(scope: Scope) -> str:
    """The client that a request belongs to: an IPv4 address, or the /64 network of an IPv6 address."""
    host = scope["client"][0] if scope.get("client") else ""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return str(host)
    if address.version == 6:
        return str(ipaddress.ip_network((address, _V6_BITS), strict=False))
    return str(address)
