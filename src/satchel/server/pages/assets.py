"""The scripts, styles and icons of the pages: files of this package, which browsers may cache."""

from __future__ import annotations

import gzip
import re
from base64 import b64encode
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Final

from anyio.to_thread import run_sync
from markupsafe import Markup
from starlette.datastructures import Headers
from starlette.responses import Response

from satchel.errors import NotFound

_TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "gz": "application/gzip",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "png": "image/png",
    "svg": "image/svg+xml",
    "webmanifest": "application/manifest+json",
}
_KEEP: Final = "public, max-age=31536000, immutable"
_ASK_AGAIN: Final = "no-cache"
FRAMED: Final = {
    "content-security-policy": (
        "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
        "img-src data:; font-src data:; frame-ancestors 'self'"
    ),
    "x-dns-prefetch-control": "off",
}
"""What a frame of the chat page has: its scripts run and reach no page, no cookie, and no address but by WebRTC, which
browsers let no policy forbid. The page around it allows frames of this server alone, so a script can't leave for
another one either."""


@dataclass(frozen=True, slots=True)
class _Asset:
    body: bytes
    media_type: str
    etag: str


@cache
def _assets() -> tuple[str, dict[str, _Asset]]:
    """A version that changes with every file, and the files. They are read once: they are few and small."""
    found: dict[str, _Asset] = {}
    for file in sorted(
        files("satchel.server.pages").joinpath("static").iterdir(), key=lambda each: each.name
    ):
        suffix = file.name.rpartition(".")[2]
        if suffix in _TYPES:
            body = file.read_bytes()
            found[file.name] = _Asset(body, _TYPES[suffix], f'"{sha256(body).hexdigest()[:20]}"')
    version = sha256("".join(f"{name}{asset.etag}" for name, asset in found.items()).encode()).hexdigest()
    return version[:12], found


def asset_url(name: str) -> str:
    """The address of a file in `static/`.

    It contains the version of all files, so browsers cache a file without asking, and a module that imports another
    gets the one that fits.

    Raises:
        KeyError: There is no such file.
    """
    version, found = _assets()
    if name not in found:
        raise KeyError(name)
    return f"/static/{version}/{name}"


def asset_text(name: str) -> Markup:
    """What is in a file in `static/`, for a page that stands alone."""
    # A file of this package.
    return Markup(_assets()[1][name].body.decode())


@cache
def _diagram() -> tuple[bytes, dict[str, str]]:
    """The page that draws a diagram, with mermaid's script in it, compressed, and its headers. A document without an
    origin could load no script of this server's. What a diagram might smuggle in runs nothing: the page's own two
    scripts run, by their hashes.
    """
    found = _assets()[1]
    script = gzip.decompress(found["mermaid.js.gz"].body)
    body = found["diagram.html"].body.replace(b"/*mermaid*/", script)
    own = re.findall(rb"<script>(.*?)</script>", body, re.DOTALL)
    hashes = " ".join(f"'sha256-{b64encode(sha256(each).digest()).decode()}'" for each in own)
    policy = FRAMED["content-security-policy"].replace("script-src 'unsafe-inline'", f"script-src {hashes}")
    return gzip.compress(body, 6), {**FRAMED, "content-security-policy": policy}


async def asset_answer(version: str, name: str, headers: Headers) -> Response:
    """The answer to a request for a file; 304 where the browser has it.

    Raises:
        NotFound: There is no such file.
    """
    current, found = _assets()
    asset = found.get(name)
    if asset is None:
        raise NotFound("There is no such file.")
    # The one worker is for what apps share, at a path outside of this folder.
    scope = {"service-worker-allowed": "/"} if name == "worker.js" else {}
    keep = {**scope, "etag": asset.etag, "cache-control": _KEEP if version == current else _ASK_AGAIN}
    if asset.etag in headers.get("if-none-match", ""):
        return Response(status_code=304, headers=keep)
    if name == "diagram.html":
        body, framed = await run_sync(_diagram)
        keep = {**keep, **framed, "content-encoding": "gzip"}
        return Response(body, media_type=asset.media_type, headers=keep)
    return Response(asset.body, media_type=asset.media_type, headers=keep)
