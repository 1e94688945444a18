"""Requests to the running server over a plain socket: an HTTP client takes longer to load than a hook may take."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Mapping
from typing import Any, Final

from satchel.errors import StorageError

_MOST_BYTES: Final = 4 << 20
_CHUNK: Final = 65_536


def ask(
    url: str,
    token: str,
    method: str,
    path: str,
    body: Mapping[str, Any] | None = None,
    *,
    left_s: Callable[[], float],
) -> Any:
    """Send a request to the server of this home, and return the JSON that it answers. `left_s` gives the seconds that
    are left, and is asked before each wait.

    Raises:
        StorageError: It could not be reached, took too long or answered with something else.
    """
    scheme, _, rest = url.partition("://")
    name, _, port = rest.rstrip("/").rpartition(":")
    host = name.strip("[]")
    content = b"" if body is None else json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
    # HTTP/1.0: the answer comes in one piece and ends with the connection.
    head = (
        f"{method} {path} HTTP/1.0\r\nHost: {name}:{port}\r\nAuthorization: Bearer {token}\r\n"
        f"Accept: application/json\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    try:
        with socket.create_connection((host, int(port)), timeout=_wait_s(left_s)) as raw:
            connection = _with_tls(raw, host) if scheme == "https" else raw
            with connection:
                connection.sendall(head.encode("latin-1") + content)
                answer = _read(connection, left_s)
    except (OSError, ValueError) as error:
        raise StorageError(f"the server at {url} did not answer: {error}") from error
    status, _, rest_of_it = answer.partition(b"\r\n")
    _, _, found = rest_of_it.partition(b"\r\n\r\n")
    code = status.split(b" ")[1:2]
    if code not in ([b"200"], [b"202"]):
        raise StorageError(f"the server at {url} answered {status[:60].decode('latin-1')!r}")
    try:
        return json.loads(found)
    except (ValueError, RecursionError) as error:
        raise StorageError(f"the server at {url} answered with no JSON") from error


def _wait_s(left_s: Callable[[], float]) -> float:
    left = left_s()
    if left <= 0:
        raise TimeoutError("it took too long")
    return left


def _read(connection: socket.socket, left_s: Callable[[], float]) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        connection.settimeout(_wait_s(left_s))
        part = connection.recv(_CHUNK)
        if not part:
            return b"".join(parts)
        parts.append(part)
        size += len(part)
        if size > _MOST_BYTES:
            raise ValueError("the answer is too long")


def _with_tls(raw: socket.socket, host: str) -> socket.socket:
    # Loaded only for a server with a certificate.
    import ssl  # noqa: PLC0415

    context = ssl.create_default_context()
    if host in ("localhost", "127.0.0.1", "::1"):
        # The certificate is for the public name. Here, the lock on the home's file proves who listens.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context.wrap_socket(raw, server_hostname=host)
