"""Texts for people: on one line, numbers with their nouns, and what to type for a part that is missing."""

from __future__ import annotations

import sys

__all__ = ["LINE_CHARS", "counted", "cut_text", "install_extra", "one_line", "without_overwritten"]

LINE_CHARS = 400
"""A face cuts lines to its own width; this bounds what it has to look at."""


def one_line(text: str, limit: int = LINE_CHARS) -> str:
    """The text on one line of at most `limit` characters."""
    line = " ".join(text[: limit * 8].split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


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
    """What a terminal shows of a text in the end: without what a progress display took back by \\r or \\b."""
    return "\n".join(map(_in_the_end, text.split("\n"))) if "\r" in text or "\b" in text else text


def _in_the_end(line: str) -> str:
    body = line.rstrip("\r")
    shown: list[str] = []
    for character in body.rpartition("\r")[2]:
        if character != "\b":
            shown.append(character)
        elif shown:
            shown.pop()
    return "".join(shown) + line[len(body) :]


def counted(number: int, one: str, many: str = "") -> str:
    """A number with its noun, as in "1 turn" or "2,000 turns".

    Args:
        number: How many.
        one: The singular.
        many: The plural; "" adds an s to the singular.
    """
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def install_extra(name: str) -> str:
    """The command that adds an extra of pyproject.toml to the environment of this process."""
    return f'{sys.executable} -m pip install "satchel[{name}]"'
