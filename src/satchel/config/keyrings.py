"""The system's keyring, where the extra `keyring` is installed and finds a working one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from satchel.errors import StorageError

T = TypeVar("T")

_SERVICE = "satchel"


class KeyringStore:
    """The system's keyring, through the package `keyring`: texts by name. Every method may raise `StorageError`."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self.name = str(getattr(backend, "name", "keyring"))

    def get(self, name: str) -> str | None:
        """The text, or None."""
        found = self._do(lambda: self._backend.get_password(_SERVICE, name))
        return found if isinstance(found, str) else None

    def set(self, name: str, text: str) -> None:
        """Store it. One that has something else afterwards, as some do with long texts, has failed."""
        self._do(lambda: self._backend.set_password(_SERVICE, name, text))
        if self.get(name) != text:
            raise StorageError(f"The keyring ({self.name}) did not keep what it was given.")

    def delete(self, name: str) -> None:
        """Delete it, if it exists."""
        if self.get(name) is not None:
            self._do(lambda: self._backend.delete_password(_SERVICE, name))

    def _do(self, action: Callable[[], T]) -> T:
        # A boundary: back ends raise what their system's libraries raise, and the message may hold the secret.
        try:
            return action()
        except (Exception, SystemExit) as error:  # noqa: BLE001
            raise StorageError(f"The keyring ({self.name}) failed: {type(error).__name__}.") from None


def system_keyring() -> KeyringStore | None:
    """The keyring of this system; None if the package is not installed or finds no working one."""
    try:
        import keyring  # noqa: PLC0415  optional, and 0.2 s

        backend = keyring.get_keyring()
        # By the package's rule, back ends below 1 aren't meant for use: they fail, or store nothing.
        return KeyringStore(backend) if backend.priority >= 1 else None
    # A boundary: looking for back ends runs code of other packages.
    except Exception:  # noqa: BLE001
        return None
