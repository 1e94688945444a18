"""Keys that the user gave to Satchel instead of setting variables: in the system's keyring, or where there is none, in
a file of the home that only its owner can read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from threading import Thread
from typing import Final, TypeAlias, TypeVar

from satchel.config.home import ensure_home, locked_folder, open_regular, replace_file
from satchel.config.keyrings import KeyringStore, system_keyring
from satchel.errors import ConfigError, StorageError

T = TypeVar("T")
_Entry: TypeAlias = str | dict[str, str]
"""Of the file: a key, or which keyring has it."""

KEYS_FILE: Final = "keys.json"
"""In SATCHEL_HOME: the keys, or which keyring has them. Backups leave it out."""
_READ_S: Final = 10.0
"""For a keyring to give what it has. It may ask for its password, and where nobody is, nobody answers."""
_WRITE_S: Final = 30.0
"""For a keyring to take a key: the user is there, and may have to unlock it."""


class StoredKeys(Mapping[str, str]):
    """Keys by the variables that they stand for.

    What keyrings have is read when the first of it is asked for. What they don't give in time, which is waited for
    once, is "".
    """

    def __init__(self, known: Mapping[str, str], in_keyring: Mapping[str, str], home: Path) -> None:
        """Nothing is read. `in_keyring` has the names of the keyrings with the other keys, by their variables."""
        self.in_keyring = in_keyring
        self._known = known
        self._home = home
        self._wait_s = _READ_S

    def __getitem__(self, name: str) -> str:
        """See `Mapping`."""
        if name in self._known:
            return self._known[name]
        if name not in self.in_keyring:
            raise KeyError(name)
        try:
            return self._found.result(self._wait_s).get(name, "")
        except (StorageError, TimeoutError):
            return ""
        finally:
            self._wait_s = 0.0

    def __contains__(self, name: object) -> bool:
        """See `Mapping`; reads nothing."""
        return name in self._known or name in self.in_keyring

    def __iter__(self) -> Iterator[str]:
        """See `Mapping`; reads nothing."""
        return iter({**self._known, **self.in_keyring})

    def __len__(self) -> int:
        """See `Mapping`; reads nothing."""
        return len({**self._known, **self.in_keyring})

    def below(self, given: Mapping[str, str]) -> Mapping[str, str]:
        """These, and others that have precedence."""
        known = {**self._known, **given}
        left = {name: ring for name, ring in self.in_keyring.items() if name not in given}
        return StoredKeys(known, left, self._home) if left else known

    def place(self, name: str) -> str:
        """Where a key lies, in words."""
        ring = self.in_keyring.get(name)
        return f"the keyring {ring}" if ring else str(self._home / KEYS_FILE)

    @cached_property
    def _found(self) -> Future[Mapping[str, str]]:
        def read() -> Mapping[str, str]:
            if (ring := system_keyring()) is None:
                return {}
            return {name: ring.get(_name_of(self._home, name)) or "" for name in self.in_keyring}

        return _beside(read)


def stored_keys(home: Path, *, logins: bool = False) -> StoredKeys:
    """The keys, or the `logins`, whose names have a slash. A variable of the environment has precedence.

    Raises:
        ConfigError: The file can't be read, is damaged, or can be read by others.
    """
    entries = {name: entry for name, entry in _read(home).items() if ("/" in name) is logins}
    known = {name: entry for name, entry in entries.items() if isinstance(entry, str)}
    rings = {name: entry["keyring"] for name, entry in entries.items() if not isinstance(entry, str)}
    return StoredKeys(known, rings, home)


def _read(home: Path) -> dict[str, _Entry]:
    path = home / KEYS_FILE
    try:
        if (file := open_regular(path)) is None:
            raise ConfigError(f"{path} is no file. Move it away, and give the keys again.")
        with file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read().decode()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path} can't be read: {getattr(error, 'strerror', None) or 'it is damaged'}."
        ) from error
    if mode & 0o077:
        raise ConfigError(f"Others can read the keys in {path}. Run: chmod 600 {path}")
    try:
        return {
            name: entry if isinstance(entry, str) else {"keyring": str(entry["keyring"])}
            for name, entry in json.loads(text).items()
        }
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
        raise ConfigError(f"{path} is damaged. Remove it, and give the keys again.") from None


def place_of_new_keys() -> str:
    """Where a key that is given now goes, in words. Looks for a keyring, which takes a moment."""
    ring = system_keyring()
    return f"the keyring {ring.name}" if ring is not None else "a file of the home that only you can read"


def store_key(home: Path, variable: str, key: str | None) -> None:
    """Keep a key, or remove it if `key` is None.

    Raises:
        ConfigError: It can't be a key, or the file is damaged.
        StorageUnwritable: The file can't be written; it is unchanged.
    """
    if key is not None and not (key.isascii() and key.isprintable() and key and " " not in key):
        raise ConfigError("This can't be a key: it contains blanks or other characters that no key has.")
    store_values(home, {variable: key})


def store_values(home: Path, values: Mapping[str, str | None]) -> None:
    """Keep values by the variables that they stand for, such as those of an MCP server's headers; None removes one.

    They go into the keyring. What it doesn't take, because it is locked, goes into the file: it must not be lost.

    Raises:
        ConfigError: The file is damaged.
        StorageUnwritable: The file can't be written; it is unchanged.
    """
    ensure_home(home)
    in_ring = {name for name, entry in _read(home).items() if isinstance(entry, dict)}
    ring = system_keyring() if in_ring or any(values.values()) else None
    # A keyring may ask for its password, so this is done before the folder is locked.
    entries = {name: _put(ring, home, name, value) for name, value in values.items()}
    with locked_folder(home):
        before = _read(home)
        after = {name: entry for name, entry in {**before, **entries}.items() if entry is not None}
        if after != before:
            replace_file(home / KEYS_FILE, json.dumps(after, indent=1, sort_keys=True) + "\n")
    for name in in_ring & entries.keys():
        if ring is not None and not isinstance(entries[name], dict):
            with suppress(StorageError, TimeoutError):
                _beside(partial(ring.delete, _name_of(home, name))).result(_WRITE_S)


def _put(ring: KeyringStore | None, home: Path, name: str, value: str | None) -> _Entry | None:
    """Keep a value in the keyring, if that takes it.

    Returns:
        What the file says of it.
    """
    if value is None or ring is None:
        return value
    try:
        _beside(lambda: ring.set(_name_of(home, name), value)).result(_WRITE_S)
    except (StorageError, TimeoutError):
        return value
    return {"keyring": ring.name}


def _name_of(home: Path, variable: str) -> str:
    # One user may have several homes.
    return f"{home.resolve()}/{variable}"


def _beside(action: Callable[[], T]) -> Future[T]:
    """Run what a keyring may never end in a thread that keeps no process from ending."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(action())
        except StorageError as error:
            future.set_exception(error)

    Thread(target=run, daemon=True).start()
    return future
