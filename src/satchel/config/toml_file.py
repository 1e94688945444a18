"""Reads one TOML file, and tells in which line a key stands: Python's own parser doesn't."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from satchel.errors import ConfigError

__all__ = ["TomlFile", "read_toml"]

# A settings file is a page or two; what is larger is another file by mistake.
MAX_BYTES: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TomlFile:
    """A file that was read: its text, and the tables in it."""

    path: Path
    text: str
    tables: Mapping[str, Any]

    def where(self, key_path: Sequence[str | int]) -> str:
        """The place of a key in words, "FILE, line N": for a key, a section, or an entry of a list."""
        line = _line_of(self.text, key_path)
        return f"{self.path}, line {line}" if line else str(self.path)


def read_toml(path: Path) -> TomlFile | None:
    """Read a file.

    Returns:
        None where there is no such file.

    Raises:
        ConfigError: It can't be read, or is not TOML; names the line and the column.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except IsADirectoryError:
        raise ConfigError(f"{path} is a folder, and should be a file. Move it away.") from None
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror}.") from error
    if len(content) > MAX_BYTES:
        raise ConfigError(f"{path} is larger than {MAX_BYTES:,} bytes: that is no settings file.")
    try:
        # Some editors put a mark before the first character.
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}, line {line}: this is not UTF-8 text. Save the file as UTF-8.") from error
    try:
        return TomlFile(path=path, text=text, tables=tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}, {_place(str(error), text)}") from error
    except RecursionError:
        raise ConfigError(f"{path} is nested deeper than any settings are.") from None


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
    """The line, from 1, in which a key stands.

    The beginnings of a TOML document are documents as well, wherever no value is cut in two: the key stands
    in the first statement whose end makes it appear. So only lines that hold the key's name are tried, and no
    syntax has to be known here.
    """
    names = [part for part in key_path if isinstance(part, str)]
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        # A name may be written with escapes, and then it is found in no line; the file alone is named.
        if names[-1] not in line:
            continue
        for end in range(number, len(lines) + 1):
            try:
                tables = tomllib.loads("\n".join(lines[:end]))
            except (tomllib.TOMLDecodeError, RecursionError):
                continue  # The value goes on in the next line.
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
