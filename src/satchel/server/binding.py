"""Where the server may listen, and by which names clients may address it."""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Sequence
from pathlib import Path

from satchel.addresses import host_and_port, is_loopback
from satchel.config import ServerSettings
from satchel.errors import ConfigError


def check_binding(settings: ServerSettings, home: Path) -> None:
    """Check that the server may listen where the settings say.

    Args:
        settings: The settings of the server.
        home: The folder that relative names of files refer to.

    Raises:
        ConfigError: Other machines could reach it without TLS, or the certificate can't be used.
    """
    if bool(settings.tls_cert) != bool(settings.tls_key):
        missing = "server.tls_key" if settings.tls_cert else "server.tls_cert"
        raise ConfigError(f"TLS needs a certificate and its key, but {missing} is not set.")
    if settings.tls_cert:
        cert, key = tls_files(settings, home)
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(cert, key, password="")
        except FileNotFoundError:
            absent = cert if not cert.exists() else key
            raise ConfigError(f"There is no file {absent} (server.tls_cert, server.tls_key).") from None
        except (ssl.SSLError, OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
            raise ConfigError(f"The certificate {cert} and its key {key} can't be used: {reason}.") from error
    elif not is_loopback(settings.host):
        raise ConfigError(
            f"server.host is {settings.host!r}, which other machines can reach, and there is no TLS: whoever sees the "
            "traffic could read your conversations and the token. Set server.tls_cert and server.tls_key, or listen "
            "on 127.0.0.1 and reach it through an SSH tunnel or a reverse proxy with TLS (server.allowed_hosts names "
            "the proxy's host)."
        )


def tls_files(settings: ServerSettings, home: Path) -> tuple[Path, Path]:
    """The certificate and its key; relative names are below the home."""
    return home / Path(settings.tls_cert).expanduser(), home / Path(settings.tls_key).expanduser()


def url_of(settings: ServerSettings, port: int) -> str:
    """The address for clients on this machine."""
    host = settings.host
    try:
        if ipaddress.ip_address(host).is_unspecified:
            host = "localhost"
        elif ":" in host:
            host = f"[{host}]"
    except ValueError:
        pass
    return f"{'https' if settings.tls_cert else 'http'}://{host}:{port}"


class Hosts:
    """The names by which clients may address the server.

    A request for another name is refused: a page of a hostile site can't reach the server by having its own name
    resolve to this machine (DNS rebinding).
    """

    def __init__(self, host: str, allowed: Sequence[str]) -> None:
        """`host` is where the server listens, and `allowed` are more names, with or without a port."""
        self._names = {host_and_port(name) for name in (*allowed, "localhost", "127.0.0.1", "::1")}
        try:
            unspecified = ipaddress.ip_address(host).is_unspecified
        except ValueError:
            unspecified = False
        if not unspecified:
            self._names.add((host_and_port(host)[0], None))

    def accepts(self, header: str) -> bool:
        """Whether a `Host` header names this server."""
        host, port = host_and_port(header)
        return (host, None) in self._names or (host, port) in self._names
