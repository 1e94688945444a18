"""Keys that the user gave to Satchel instead of setting variables: a file of the home that only its owner can read."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from satchel.config.home import ensure_home, locked_folder, replace_file
from satchel.errors import ConfigError

__all__ = ["KEYS_FILE", "store_key", "store_values", "stored_keys"]

KEYS_FILE: Final = "keys.json"
"""In SATCHEL_HOME. Backups leave it out."""


def stored_keys(home: Path) -> Mapping[str, str]:
    """The keys, by the variable that they stand for. A variable of the environment has precedence.

    Raises:
        ConfigError: The file can't be read, is damaged, or can be read by others.
    """
    path = home / KEYS_FILE
    try:
        with path.open(encoding="utf-8") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path} can't be read: {getattr(error, 'strerror', None) or 'it is damaged'}."
        ) from error
    if mode & 0o077:
        raise ConfigError(f"Others can read the keys in {path}. Run: chmod 600 {path}")
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value.values()):
        raise ConfigError(f"{path} is damaged. Remove it, and give the keys again.")
    return value


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

    Raises:
        ConfigError: The file is damaged.
        StorageUnwritable: The file can't be written; it is unchanged.
    """
    ensure_home(home)
    with locked_folder(home):
        stored = stored_keys(home)
        keys = {name: value for name, value in {**stored, **values}.items() if value is not None}
        if keys != stored:
            replace_file(home / KEYS_FILE, json.dumps(keys, indent=1, sort_keys=True) + "\n")
