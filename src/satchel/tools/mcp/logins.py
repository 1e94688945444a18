"""Logins at remote MCP servers: the tokens that OAuth gave, kept where the user's keys are.

They are not part of the settings, are never logged, and are left out of backups.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from satchel.config import McpServerSettings, ensure_home
from satchel.config.keys import store_values, stored_keys
from satchel.errors import SatchelError, StorageError

_LOCK_S = 60.0
"""For the lock: twice the time that a renewal may take."""
_LOCK_POLL_S = 0.05


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

    def __init__(self, home: Path) -> None:
        """Take SATCHEL_HOME; nothing is read."""
        self._home = home
        self._folder = home / "oauth"

    async def load(self, entry: McpServerSettings) -> Login | None:
        """The login at a server, or None.

        Raises:
            StorageError: The keyring that has it doesn't give it, or it is damaged.
            ConfigError: The file of keys is damaged.
        """
        return await anyio.to_thread.run_sync(self._load, entry, abandon_on_cancel=True)

    def _load(self, entry: McpServerSettings) -> Login | None:
        name, kept = self._name(entry), stored_keys(self._home, logins=True)
        if name not in kept:
            return None
        try:
            return Login(**json.loads(kept[name]))
        except (TypeError, ValueError, RecursionError):
            # The message of the error could quote it.
            place = kept.place(name)
            raise StorageError(
                f"The login at {entry.name} can't be read from {place}. Unlock that, or log in again."
            ) from None

    async def save(self, entry: McpServerSettings, login: Login) -> str:
        """Store a login, replacing an earlier one.

        Returns:
            Where it is, in words.

        Raises:
            ConfigError, StorageError: It can't be written.
        """
        name, text = self._name(entry), json.dumps(asdict(login))
        await self._store(name, text)
        return stored_keys(self._home, logins=True).place(name)

    async def delete(self, entry: McpServerSettings) -> None:
        """Delete a login.

        Raises:
            ConfigError, StorageError: As `save`.
        """
        await self._store(self._name(entry), None)

    def exists(self, entry: McpServerSettings) -> bool:
        """Whether there is a login. Does not use a keyring."""
        return self._name(entry) in stored_keys(self._home, logins=True)

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

    async def _store(self, name: str, text: str | None) -> None:
        change = partial(store_values, self._home, {name: text})
        await anyio.to_thread.run_sync(change, abandon_on_cancel=True)

    def _name(self, entry: McpServerSettings) -> str:
        # The address is part of the name, so tokens for one server are never sent to another. With its slash, it is
        # none of the keys that settings, and with them other processes, get.
        identity = json.dumps([entry.url, str(entry.base or "")])
        return f"oauth/{entry.name}-{hashlib.sha256(identity.encode()).hexdigest()[:12]}"
