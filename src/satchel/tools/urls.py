"""How a URL is read: one spelling for what the web tools dial and for what permission rules are compared with."""

from __future__ import annotations

import posixpath
import re
import unicodedata
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from satchel.addresses import DEFAULT_PORTS, ascii_host

_UNCLEAR = re.compile(r"[\x00-\x1f\x7f\ufffd\ud800-\udfff]")
"""Control characters, where some servers end a path, and bytes that are not UTF-8, as in a dot of two bytes."""
_MAX_DECODINGS = 5
"""A path that is still percent-encoded after so many decodings is read by no rule that allows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainUrl:
    """A URL in its plain spelling.

    Attributes:
        scheme: Lower case.
        host: ASCII, lower case, without a trailing dot; an address in its shortest form, without brackets.
        port: Always a number.
        paths: Every reading of the path: as written with `.` and `..` resolved, and decoded before that. Servers
            disagree on which of them a request means.
        query: With its question mark, or "".
    """

    scheme: str
    host: str
    port: int
    paths: tuple[str, ...]
    query: str

    @property
    def netloc(self) -> str:
        """Host and port, the port only where it is not the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS.get(self.scheme) else f"{host}:{self.port}"


def plain_url(text: str) -> PlainUrl | None:
    """Read a URL; None where it is none, or where programs would disagree about its host.

    User information is ignored: it does not change where a URL leads.
    """
    # Browsers and Python's parser drop these characters, wherever they stand (WHATWG URL, 4.4).
    text = re.sub(r"[\t\r\n]", "", text.strip())
    try:
        parts = urlsplit(text)
        scheme, port = parts.scheme.lower(), parts.port
        host = ascii_host(parts.hostname or "")
    except ValueError:
        return None
    if not scheme or not host or "\\" in parts.netloc:
        return None
    return PlainUrl(
        scheme=scheme,
        host=host,
        port=DEFAULT_PORTS.get(scheme, 0) if port is None else port,
        paths=_paths(parts.path),
        query=f"?{parts.query}" if parts.query else "",
    )


def _paths(path: str) -> tuple[str, ...]:
    found = [_walked(path)]
    for _ in range(_MAX_DECODINGS):
        decoded = unquote(path)
        if decoded == path:
            break
        path = decoded
        found.append(_walked(path))
    else:
        found.append("")  # no rule that allows fits an empty path
    # Some servers take `\` for `/`, leave out what follows a `;`, and full-width dots for dots.
    alike = unicodedata.normalize("NFKC", path).replace("\\", "/")
    found.append(_walked(re.sub(r";[^/]*", "", alike)))
    if _UNCLEAR.search(path):
        found.append("")
    return tuple(dict.fromkeys(found))


def _walked(path: str) -> str:
    """A path with `.` and `..` resolved; a slash at its end stays."""
    walked = posixpath.normpath(f"/{path.lstrip('/')}")
    return f"{walked}/" if path.endswith(("/", "/.", "/..")) and walked != "/" else walked
