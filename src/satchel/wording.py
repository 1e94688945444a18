"""Texts for people: on one line, numbers with their nouns, and what to type for a part that is missing."""

from __future__ import annotations

import sys

__all__ = ["LINE_CHARS", "counted", "install_extra", "one_line"]

LINE_CHARS = 400
"""A face cuts lines to its own width; this bounds what it has to look at."""


def one_line(text: str, limit: int = LINE_CHARS) -> str:
    """The text on one line of at most `limit` characters."""
    line = " ".join(text[: limit * 8].split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


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
