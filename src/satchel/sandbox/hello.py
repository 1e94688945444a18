"""The server name in a TLS greeting (ClientHello; RFC 8446, 4.1.2; RFC 6066, 3)."""

from __future__ import annotations

MOST_HELLO_BYTES = 65_536
"""Longer than any greeting: with post-quantum keys and a session ticket they have some 3 KiB."""
_MOST_RECORD_BYTES = 16_384 + 256
_HANDSHAKE, _CLIENT_HELLO, _SERVER_NAME, _HOST_NAME = 22, 1, 0, 0


def server_name(said: bytes) -> str | None:
    """The name of the server that a client greets, in lower case.

    Returns:
        "" if the greeting has no server name or is not TLS; None if more must be read to know.

    Raises:
        ValueError: It begins as TLS and is none.
    """
    if not said:
        return None
    if said[0] != _HANDSHAKE or (len(said) > 1 and said[1] != 3):
        return ""
    hello = b""
    while len(hello) < 4 or len(hello) < 4 + int.from_bytes(hello[1:4], "big"):
        if len(said) < 5:
            return None
        size = int.from_bytes(said[3:5], "big")
        if said[0] != _HANDSHAKE or said[1] != 3 or not 0 < size <= _MOST_RECORD_BYTES:
            raise ValueError("a TLS record is malformed")
        hello += said[5 : 5 + size]
        if hello and hello[0] != _CLIENT_HELLO:
            raise ValueError("the first TLS message is no greeting")
        if len(said) < 5 + size:
            return None
        said = said[5 + size :]
    return _name_in(_Reader(hello[4 : 4 + int.from_bytes(hello[1:4], "big")]))


def _name_in(hello: _Reader) -> str:
    hello.take(2 + 32)  # version, random
    for size_bytes in (1, 2, 1):  # session, ciphers, compressions
        hello.vector(size_bytes)
    if hello.is_empty:
        return ""
    name = ""
    extensions = hello.vector(2)
    while not extensions.is_empty:
        kind = extensions.number(2)
        extension = extensions.vector(2)
        if kind != _SERVER_NAME:
            continue
        names = extension.vector(2)
        if name or names.number(1) != _HOST_NAME:
            raise ValueError("the server name is malformed")
        name = names.vector(2).rest.decode("ascii").lower()
        if not name or not names.is_empty:
            raise ValueError("the greeting does not have exactly one server name")
    return name


class _Reader:
    """Reads numbers and vectors; raises `ValueError` at the end of the data."""

    def __init__(self, rest: bytes) -> None:
        self.rest = rest

    @property
    def is_empty(self) -> bool:
        return not self.rest

    def take(self, size: int) -> bytes:
        if size > len(self.rest):
            raise ValueError("the greeting is cut off")
        taken, self.rest = self.rest[:size], self.rest[size:]
        return taken

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def vector(self, size_bytes: int) -> _Reader:
        return _Reader(self.take(self.number(size_bytes)))
