"""Logins at remote MCP servers: the tokens that OAuth gave, kept in the system's keyring or in a file.

Each login has a file under `SATCHEL_HOME/oauth`, readable by its owner only. The secrets are in the keyring if the
package `keyring` finds a working one, and otherwise in the same file. They are not part of the settings, are never
logged, and are left out of backups.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, TypeVarTuple

import anyio
import anyio.to_thread

from satchel.config import McpServerSettings, ensure_home
from satchel.config.home import replace_file
from satchel.config.keyrings import KeyringStore, system_keyring
from satchel.errors import SatchelError, StorageError

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_FORM = 1
_KEYRING_S = 30.0
"""For a keyring to answer; it may ask the user to unlock it first."""
_LOCK_S = 60.0
"""For the lock: twice the time that a renewal may take."""
_LOCK_POLL_S = 0.05
_SECRET = ("client_secret", "access_token", "refresh_token")


class LoginNeeded(SatchelError):
    """A server needs a login that is missing, was refused or can't be renewed."""

    def __init__(self, server: str, why: str = "") -> None:
        """Make the message, a clause. `why` says, as a clause, what happened to the existing login; "" if there was
        none.
        """
        super().__init__(f"{f'{why}; ' if why else ''}it needs a login: satchel mcp-server login {server}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """What an authorization server issued.

    Attributes:
        url: The MCP server's.
        issuer: The authorization server; "" if it publishes no metadata.
        revocation_endpoint: The address that revokes them, or "".
        client_id: As registered or set by the user.
        client_auth: How the client authenticates itself: "client_secret_basic", "client_secret_post" or "none".
        resource: What the tokens are for (RFC 8707); "" if that is not sent.
        scope: The granted scopes, separated by spaces.
        expires_at: Of the access token, in seconds since 1970; None if unknown.
    """

    url: str
    issuer: str
    token_endpoint: str
    revocation_endpoint: str
    client_id: str
    client_auth: str
    resource: str
    scope: str
    expires_at: float | None
    client_secret: str = field(default="", repr=False)
    access_token: str = field(repr=False)
    refresh_token: str = field(default="", repr=False)


_refusals: ContextVar[list[str] | None] = ContextVar("refusals", default=None)


@contextmanager
def collecting_refusals() -> Iterator[list[str]]:
    """Collect why requests that are made in this block lacked a login or a permission.

    The SDK reports every such response as "Server returned an error response".
    """
    collected: list[str] = []
    token = _refusals.set(collected)
    try:
        yield collected
    finally:
        _refusals.reset(token)


def note_refusal(reason: str) -> None:
    """Add a reason, a clause, to those of the block that made the request."""
    collected = _refusals.get()
    if collected is not None:
        collected.append(reason)


class LoginStore:
    """The logins at all servers. Several processes may use it."""

    def __init__(
        self, home: Path, *, find_secrets: Callable[[], KeyringStore | None] = system_keyring
    ) -> None:
        """Take the home; nothing is read.

        Args:
            home: SATCHEL_HOME.
            find_secrets: Called once in a thread, when tokens are needed; returns where to store them, or None for the
                login's own file.
        """
        self._folder = home / "oauth"
        self._find_secrets = find_secrets

    @cached_property
    def _secrets(self) -> KeyringStore | None:
        return self._find_secrets()

    async def load(self, entry: McpServerSettings) -> Login | None:
        """The login at a server, or None.

        Raises:
            StorageError: The keyring that has it fails, or the file is damaged.
        """
        return await self._in_thread(self._load, entry)

    async def save(self, entry: McpServerSettings, login: Login) -> str:
        """Store a login, replacing an earlier one.

        Returns:
            The name of the keyring with its secrets, or the path of the file.

        Raises:
            StorageError: It can't be written.
        """
        return await self._in_thread(self._save, entry, login)

    async def delete(self, entry: McpServerSettings) -> bool:
        """Delete a login.

        Returns:
            Whether there was one.

        Raises:
            StorageError: The keyring that has it fails.
        """
        return await self._in_thread(self._delete, entry)

    def exists(self, entry: McpServerSettings) -> bool:
        """Whether there is a login. Does not use a keyring."""
        return self._path(entry).exists()

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """Keep other processes from renewing at the same time: many refresh tokens can be used only once.

        Raises:
            StorageError: Another process holds the lock for too long, or the folder can't be made.
        """
        ensure_home(self._folder)
        try:
            # The folder itself, which is there for every version: while one is replaced, both lock the same.
            descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise StorageError(f"The folder {self._folder} can't be opened: {error.strerror}.") from error
        try:
            with anyio.move_on_after(_LOCK_S) as scope:
                while True:
                    try:
                        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        break
                    except BlockingIOError:
                        # Polled, because a thread that waits for the lock can't be cancelled.
                        await anyio.sleep(_LOCK_POLL_S)
            if scope.cancelled_caught:
                raise StorageError(f"Another process holds the lock of {self._folder} for too long.")
            yield
        finally:
            os.close(descriptor)

    def _load(self, entry: McpServerSettings) -> Login | None:
        path = self._path(entry)
        try:
            value = json.loads(path.read_bytes())
            kept = value["login"]
            if value["form"] != _FORM:
                raise ValueError("another form")
            if value["keyring"]:
                text = self._secrets.get(self._name(path)) if self._secrets is not None else None
                if text is None:
                    raise StorageError(
                        f"The tokens are in the keyring {value['keyring']}, which no longer has them."
                    )
                kept = {**kept, **json.loads(text)}
            return Login(**{each.name: kept[each.name] for each in fields(Login)})
        except FileNotFoundError:
            return None
        except (OSError, KeyError, TypeError, ValueError, RecursionError) as error:
            # The message of the error could quote the file.
            raise StorageError(f"{path} is damaged ({type(error).__name__}). Log in again.") from None

    def _save(self, entry: McpServerSettings, login: Login) -> str:
        ensure_home(self._folder)
        path = self._path(entry)
        kept = {each.name: getattr(login, each.name) for each in fields(Login)}
        secret = {name: kept[name] for name in _SECRET}
        if self._secrets is not None:
            try:
                self._secrets.set(self._name(path), json.dumps(secret))
            except StorageError:
                # The keyring may be locked; the user's new login must not be lost.
                pass
            else:
                self._write(path, {**kept, **dict.fromkeys(_SECRET, "")}, self._secrets.name)
                return self._secrets.name
        self._write(path, kept, "")
        return str(path)

    def _write(self, path: Path, kept: Mapping[str, Any], keyring: str) -> None:
        replace_file(
            path, json.dumps({"form": _FORM, "keyring": keyring, "login": dict(kept)}, indent=1) + "\n"
        )

    def _delete(self, entry: McpServerSettings) -> bool:
        path = self._path(entry)
        try:
            keyring = str(json.loads(path.read_bytes()).get("keyring", ""))
        except FileNotFoundError:
            return False
        except (OSError, ValueError, AttributeError, RecursionError):
            keyring = ""
        if keyring and self._secrets is not None:
            self._secrets.delete(self._name(path))
        path.unlink(missing_ok=True)
        return True

    def _path(self, entry: McpServerSettings) -> Path:
        # The address is part of the name, so tokens for one server are never sent to another.
        identity = json.dumps([entry.url, str(entry.base or "")])
        return self._folder / f"{entry.name}-{hashlib.sha256(identity.encode()).hexdigest()[:12]}.json"

    def _name(self, path: Path) -> str:
        # One user may have several homes.
        return f"{self._folder.resolve()}/{path.stem}"

    async def _in_thread(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        try:
            with anyio.fail_after(_KEYRING_S):
                return await anyio.to_thread.run_sync(function, *args, abandon_on_cancel=True)
        except TimeoutError:
            raise StorageError(f"The keyring did not answer within {_KEYRING_S:g} s.") from None
