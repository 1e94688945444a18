"""A keyring for tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import keyring
from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked


class Ring(KeyringBackend):
    """A keyring in memory, which may be locked."""

    priority = 5

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kept: dict[tuple[str, str], str] = {}
        self.is_locked = False

    @property
    def name(self) -> str:
        return "ring"

    def get_password(self, service: str, username: str) -> str | None:
        self._check()
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self._check()
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        self._check()
        del self.kept[service, username]

    def _check(self) -> None:
        if self.is_locked:
            raise KeyringLocked("locked; the secret was hunter2")


@contextmanager
def ringed() -> Iterator[Ring]:
    """While this is open, the machine has this keyring."""
    before, ring = keyring.get_keyring(), Ring()
    keyring.set_keyring(ring)
    try:
        yield ring
    finally:
        keyring.set_keyring(before)
