"""Reads a TOML file and finds the line of a key, which Python's own parser can't."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from satchel.config.home import open_regular
from satchel.errors import ConfigError

# A settings file has a page or two. A larger one is some other file by mistake.
MAX_BYTES: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TomlFile:
    """A parsed file: its text and its tables."""

    path: Path
    text: str
    tables: Mapping[str, Any]

    def where(self, key_path: Sequence[str | int]) -> str:
        """The place of a key, a section or an entry of a list, as "FILE, line N"."""
        line = _line_of(self.text, key_path)
        return f"{self.path}, line {line}" if line else str(self.path)


def read_toml(path: Path) -> TomlFile | None:
    """Read a file.

    Returns:
        The file, or None if it doesn't exist.

    Raises:
        ConfigError: It can't be read, or is not TOML; the message names the line and the column.
    """
    try:
        file = open_regular(path)
        if file is None:
            raise ConfigError(f"{path} is not a regular file, and should be one. Move it away.")
        with file:
            content = file.read(MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror}.") from error
    if len(content) > MAX_BYTES:
        raise ConfigError(f"{path} is larger than {MAX_BYTES:,} bytes, too large for a settings file.")
    try:
        # Some editors write a byte-order mark.
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}, line {line}: this is not UTF-8 text. Save the file as UTF-8.") from error
    try:
        return TomlFile(path=path, text=text, tables=tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}, {_place(str(error), text)}") from error
    except RecursionError:
        raise ConfigError(f"{path} is nested too deeply.") from None


def _place(message: str, text: str) -> str:
    """`line 3, column 7: what is wrong` from the parser's `What is wrong (at line 3, column 7)`."""
    found = re.fullmatch(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", message, re.DOTALL)
    if found is None:
        return f"this is not TOML: {message}."
    what, line, column = found.groups()
    what = what[:1].lower() + what[1:]
    if line is None:
        return f"line {text.count(chr(10)) + 1}: the file ends too early: {what}."
    return f"line {line}, column {column}: this is not TOML: {what}."


def _line_of(text: str, key_path: Sequence[str | int]) -> int | None:
    """The number of the line that contains a key, counted from 1.

    The first lines of a TOML document are a valid document too, unless they end in the middle of a value. The key is in
    the first statement after which the parsed document contains it. So this needs no knowledge of the syntax, and only
    has to try lines that contain the key's name.
    """
    names = [part for part in key_path if isinstance(part, str)]
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        # If a name is written with escapes, no line contains it, and only the file is named.
        if names[-1] not in line:
            continue
        for end in range(number, len(lines) + 1):
            try:
                tables = tomllib.loads("\n".join(lines[:end]))
            except (tomllib.TOMLDecodeError, RecursionError):
                continue  # The value continues on the next line.
            if _holds(tables, key_path):
                return number
            break
    return None


def _holds(tables: object, key_path: Sequence[str | int]) -> bool:
    for part in key_path:
        if isinstance(part, str):
            if not isinstance(tables, dict) or part not in tables:
                return False
            tables = tables[part]
        else:
            if not isinstance(tables, list) or part >= len(tables):
                return False
            tables = tables[part]
    return True
