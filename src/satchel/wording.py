"""Texts for people: on one line, numbers with their nouns, and what to type for a part that is missing."""

from __future__ import annotations

import re
import sys
from typing import Final
from unicodedata import east_asian_width

LINE_CHARS = 400
"""A face cuts lines to its own width; this bounds what it has to look at."""

YES: Final = frozenset(
    ("y", "yes", "ok", "okay", "sure", "allow", "approve", "approved", "go ahead", "go on", "do it")
    + ("ja", "oui", "sí", "si", "sì", "sim", "tak", "да", "是", "是的", "好", "好的", "可以", "はい")
)
"""What is a plain yes; see `yes_or_no`."""
NO: Final = frozenset(
    (
        "n",
        "no",
        "deny",
        "never",
        "nein",
        "non",
        "não",
        "nie",
        "nee",
        "nej",
        "нет",
        "不",
        "不是",
        "不行",
        "いいえ",
    )
)
_PARTS: Final = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[\r\b\t\x1b]|[^\r\b\t\x1b]+")
"""An escape sequence, a character that moves the cursor, or text."""


def one_line(text: str, limit: int = LINE_CHARS) -> str:
    """The text on one line of at most `limit` characters."""
    line = " ".join(text[: limit * 8].split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def shown(text: str) -> str:
    """A name on one line: what is invisible or can't be decoded is escaped as in Python, so that no name looks like
    another.
    """
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode()
        for char in text
    )


def cut_text(text: str, first: int, last: int = 0, *, what: str = "more characters") -> str:
    """A text without its middle, with a note of how much is missing; the whole text if the note saves nothing.

    Args:
        text: The text.
        first: The characters that it keeps of its beginning.
        last: Those of its end.
        what: What is counted in the note.
    """
    end = len(text) - last
    note = f"\n[… {end - first:,} {what} …]" + ("\n" if last else "")
    return text if end - first <= len(note) else text[:first] + note + text[end:]


def without_overwritten(text: str) -> str:
    """What a wide terminal shows of a text in the end: without what a progress display wrote over.

    Only lines are changed in which \\r or \\b goes back; they lose colours, tabs and blanks at the end.
    """
    return "\n".join(map(_in_the_end, text.split("\n"))) if "\r" in text or "\b" in text else text


def _in_the_end(line: str) -> str:
    body = line.rstrip("\r")
    if "\r" not in body and "\b" not in body:
        return line
    cells: list[str] = []
    at = 0
    for part in _PARTS.findall(body):
        if part == "\r":
            at = 0
        elif part == "\b":
            at = max(0, at - 1)
        elif part == "\t":
            at += 8 - at % 8
        elif part in ("\x1b[K", "\x1b[0K"):
            del cells[at:]
        elif part == "\x1b[2K":
            cells = [" "] * at
        elif part[0] != "\x1b":
            written = [*part] if part.isascii() else [cell for one in part for cell in _cells_of(one)]
            cells += " " * (at - len(cells))
            cells[at : at + len(written)] = written
            at += len(written)
    return "".join(cells).rstrip(" ") + line[len(body) :]


def _cells_of(character: str) -> tuple[str, ...]:
    """What stands in the one or two columns that a character takes."""
    return (character, "") if east_asian_width(character) in "FW" else (character,)


def counted(number: int, one: str, many: str = "") -> str:
    """A number with its noun, as in "1 turn" or "2,000 turns".

    Args:
        number: How many.
        one: The singular.
        many: The plural; "" adds an s to the singular.
    """
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def yes_or_no(text: str) -> bool | None:
    """Whether a text is a plain yes or a plain no; None if it says anything else or more, which agrees to nothing.

    A key that was pressed twice ("yy") is one.
    """
    words = re.sub(r"^([yn])\1+", r"\1", " ".join(text.casefold().rstrip(" .!。！").split()))
    return True if words in YES else False if words in NO else None


def install_extra(name: str) -> str:
    """The command that adds an extra of pyproject.toml to the environment of this process."""
    return f'{sys.executable} -m pip install "satchel[{name}]"'
