"""Shows what a person can't see in a stranger's text, such as zero-width and tag characters, which a model reads."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Any

_BLANK = "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef"
"""Characters that Unicode calls printable and that show nothing: fillers, the braille blank, variation selectors."""
_CANDIDATES = re.compile(
    rf"[\x00-\x08\x0b-\x1f\x7f-\xa0\xad{_BLANK}\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u1680\u180e"
    r"\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ud800-\uf8ff\ufdd0-\ufdef\ufeff\ufff0-\uffff\U00010000-\U0010ffff]+"
)
"""Runs that may hold one; all else is visible, and Python is asked about these character by character."""
_SHOWN_RUN = 3
"""Characters of a run that are named one by one; of a longer one, how many they are."""
_PROSE = ("title", "description", "$comment")
"""The parts of a schema that are text for a reader; all others are data that a call sends back."""


def visible(text: str) -> str:
    """The text with each invisible character written out, such as `<U+200B>`.

    Control characters, bidirectional controls, zero-width, tag and private-use characters and unassigned ones are
    invisible. Line breaks, tabs and spaces of every width are not; nor are joiners and variation selectors where a
    script or an emoji needs them.
    """
    return _CANDIDATES.sub(_written_out, text)


def hidden_in(text: str) -> str:
    """The first invisible character of a name, such as `U+200B`, or "". In a name, line breaks and tabs are too."""
    for position, character in enumerate(text):
        if character in "\n\r\t" or _is_hidden(text, position):
            return _code(character)
    return ""


def visible_schema(schema: Any) -> Any:
    """A JSON Schema with its titles, descriptions and comments made `visible`; a copy."""
    if isinstance(schema, Mapping):
        return {
            key: visible(value) if key in _PROSE and isinstance(value, str) else visible_schema(value)
            for key, value in schema.items()
        }
    return [visible_schema(part) for part in schema] if isinstance(schema, list | tuple) else schema


def hidden_in_schema(schema: Any) -> str:
    """The first invisible character in a key, or in a value that a call would send back (enum, const, default), or "".

    Those can't be written out: the server would not know them. Line breaks and tabs are allowed in values.
    """
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Mapping):
            for key, value in part.items():
                found = hidden_in(str(key))
                if found:
                    return found
                if not (key in _PROSE and isinstance(value, str)):
                    waiting.append(value)
        elif isinstance(part, list | tuple):
            waiting.extend(part)
        elif isinstance(part, str):
            for position in range(len(part)):
                if _is_hidden(part, position):
                    return _code(part[position])
    return ""


def _written_out(match: re.Match[str]) -> str:
    text = match.string
    parts: list[str] = []
    run: list[str] = []
    for position in range(match.start(), match.end()):
        if _is_hidden(text, position):
            run.append(text[position])
            continue
        parts += [_shown(run), text[position]]
        run = []
    return "".join([*parts, _shown(run)])


def _shown(run: list[str]) -> str:
    if len(run) > _SHOWN_RUN:
        return f"<{len(run):,} invisible characters, {_code(run[0])} first>"
    return "".join(f"<{_code(character)}>" for character in run)


def _is_hidden(text: str, position: int) -> bool:
    character = text[position]
    if " " <= character <= "~" or character in "\n\t" or unicodedata.category(character) == "Zs":
        return False
    if character == "\r":
        return text[position + 1 : position + 2] != "\n"
    before, after = text[position - 1 : position], text[position + 1 : position + 2]
    if character in "\u200c\u200d":
        # Persian, Hindi and others need them inside of words, and emoji to make one of two.
        return not (_joins(before) and _joins(after))
    if character in "\ufe0e\ufe0f":
        return not (_joins(before) or before in tuple("0123456789#*"))
    return not character.isprintable() or re.match(f"[{_BLANK}]", character) is not None


def _joins(character: str) -> bool:
    """Whether it is a letter, mark or symbol of a script beyond Latin, Greek and Cyrillic, or a variation selector."""
    return character >= "\u0600" and (character == "\ufe0f" or unicodedata.category(character)[0] in "LMS")


def _code(character: str) -> str:
    return f"U+{ord(character):04X}"
