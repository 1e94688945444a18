"""What goes to the user: data to stdout, everything else to stderr, and nothing that could steer a
terminal.
"""

from __future__ import annotations

import json
import sys
from typing import Any, TextIO

__all__ = ["is_terminal", "json_text", "plain", "prepare", "say", "say_json", "tell"]

# All C0 and C1 controls but newline and tab, DEL, and the marks that turn the direction of writing around.
_STEERING = {
    code: "\ufffd"
    for code in (*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
    if code not in (0x09, 0x0A)
}


def prepare() -> None:
    """Make the streams take any text, whatever the locale."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(encoding="utf-8", errors="replace")


def is_terminal(stream: TextIO) -> bool:
    """Whether a person sits at it."""
    try:
        return stream.isatty()
    except ValueError:
        return False  # closed


def plain(text: str) -> str:
    """The text without what a terminal would obey: what a model, a tool or a file says is never a command to
    it.
    """
    return text.replace("\r\n", "\n").translate(_STEERING)


def say(text: str) -> None:
    """Data: to stdout, with a newline. A terminal gets it without control characters, a pipe as it is."""
    print(plain(text) if is_terminal(sys.stdout) else text)


def tell(text: str) -> None:
    """Everything that is not the data that was asked for: to stderr."""
    print(plain(text), file=sys.stderr)


def json_text(value: Any, *, indent: int | None = None) -> str:
    """JSON that a terminal can show: characters as they are, and escapes where that could do harm."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=str)
    # JSON itself escapes what is below 0x20; the rest of the steering characters stand inside of strings.
    if any(ord(c) in _STEERING or "\ud800" <= c <= "\udfff" for c in text if c >= "\x7f"):
        return json.dumps(value, indent=indent, default=str)
    return text


def say_json(value: Any) -> None:
    """JSON data to stdout: indented for a person, one line for a program."""
    print(json_text(value, indent=2 if is_terminal(sys.stdout) else None))
