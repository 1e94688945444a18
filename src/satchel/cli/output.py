"""Output: data to stdout, everything else to stderr, and nothing that could control the terminal."""

from __future__ import annotations

import io
import json
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import is_dataclass
from typing import Any, TextIO, cast

from satchel.plain import as_json
from satchel.tui.plain_text import is_plain, plain

_MOST_COLUMN = 48
"""A wider cell pushes only its own row to the right."""


def prepare() -> None:
    """Make the streams accept any text in every locale."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(encoding="utf-8", errors="replace")


def current_stdout() -> TextIO:
    """A stream that writes to whatever is stdout at that moment."""
    return cast(TextIO, _CurrentStdout())


class _CurrentStdout(io.TextIOBase):
    def write(self, text: str) -> int:
        return sys.stdout.write(text)

    def flush(self) -> None:
        sys.stdout.flush()

    def isatty(self) -> bool:
        return sys.stdout.isatty()


def is_terminal(stream: TextIO) -> bool:
    """Whether the stream is a terminal."""
    try:
        return stream.isatty()
    except ValueError:
        return False  # closed


def wrapped(text: str, stream: TextIO) -> str:
    """The text with lines broken between words to fit the terminal; unchanged if the stream is not a terminal.

    The continuation of a line is indented. Addresses and commands are not broken, so that they can be copied.
    """
    if not is_terminal(stream):
        return text
    columns = max(20, shutil.get_terminal_size().columns)
    return "\n".join(line if len(line) <= columns else _wrapped(line, columns) for line in text.splitlines())


def _wrapped(line: str, columns: int) -> str:
    indent = line[: len(line) - len(line.lstrip())]
    return textwrap.fill(
        line.strip(),
        columns,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
        replace_whitespace=False,
    )


def say(text: str) -> None:
    """Print data to stdout. Control characters are replaced on a terminal, and kept in a pipe."""
    print(plain(text) if is_terminal(sys.stdout) else text)


def say_lines(lines: Iterable[str], notes: Iterable[str]) -> None:
    """Print lines to stdout and, apart from them, notes to stderr, both without control characters."""
    for line in lines:
        say(plain(line))
    for note in notes:
        tell(note)


def say_rows(rows: Iterable[Sequence[str]], *, indent: str = "") -> None:
    """Print rows of cells to stdout, each column as wide as its widest cell."""
    table = list(rows)
    widths = [min(_MOST_COLUMN, max(map(len, column))) for column in zip(*table, strict=True)]
    for row in table:
        say(indent + "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())


def tell(text: str) -> None:
    """Print anything that is not the requested data to stderr; on a terminal, lines break between words."""
    print(wrapped(plain(text), sys.stderr), file=sys.stderr)


def json_text(value: Any, *, indent: int | None = None) -> str:
    """JSON that is safe to show on a terminal: characters as they are, or escaped where they could control it."""
    text = json.dumps(as_json(value), ensure_ascii=False, indent=indent, default=_data)
    # JSON escapes what is below 0x20; the other control characters can only be inside strings.
    if any(not is_plain(c) or "\ud800" <= c <= "\udfff" for c in text if c >= "\x7f"):
        return json.dumps(as_json(value), indent=indent, default=_data)
    return text


def _data(value: object) -> Any:
    return as_json(value) if is_dataclass(value) else str(value)


def say_json(value: Any) -> None:
    """Print JSON data to stdout, records as their fields: indented on a terminal, otherwise on one line."""
    print(json_text(value, indent=2 if is_terminal(sys.stdout) else None))
