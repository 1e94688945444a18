"""A request's JSON kept as text: parsed for reading, and changed only where a block is added.

Encoding parsed JSON again would change numbers, escapes and spaces, and a provider would read the whole conversation
again. So a block is inserted into the text, and every other byte stays.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

_DECODER: Final = json.JSONDecoder()
_SPACE: Final = re.compile(r"[ \t\n\r]*")


class _Part(NamedTuple):
    """A member of an object or an item of an array, and where its value stands in the text."""

    name: str
    value: Any
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class RawMessages:
    """The messages of a request, and their positions in its text.

    Attributes:
        fields: The request's other fields.
        messages: The messages as they were sent.
    """

    fields: Mapping[str, Any]
    messages: list[Mapping[str, Any]]
    _text: str
    _starts: list[int]

    @classmethod
    def read(cls, body: bytes) -> RawMessages | None:
        """Read a body; None if it is not a request with messages, so that the provider reports the error."""
        try:
            text = body.decode()
            parts = list(_parts(text, _after_space(text, 0), "{}"))
            fields = {part.name: part.value for part in parts if part.name != "messages"}
            (own,) = (part for part in parts if part.name == "messages")
            found = list(_parts(text, own.start, "[]"))
        except (ValueError, RecursionError):
            return None
        if not found or not all(isinstance(part.value, dict) for part in found):
            return None
        return cls(fields, [part.value for part in found], text, [part.start for part in found])

    def with_blocks(self, blocks: Mapping[int, str]) -> bytes:
        """The body with a text block at the end of some messages, by their numbers. A message without content, or with
        several, stays as it is.
        """
        text, parts, at = self._text, [], 0
        for number in sorted(blocks):
            found = [part for part in _parts(text, self._starts[number], "{}") if part.name == "content"]
            if len(found) != 1:
                continue
            block = json.dumps({"type": "text", "text": blocks[number]}, ensure_ascii=False)
            content = text[found[0].start : found[0].end]
            if content.startswith('"'):
                parts += [text[at : found[0].start], f'[{{"type": "text", "text": {content}}}, {block}]']
            else:
                inner = content[:-1].rstrip(" \t\n\r")
                parts += [text[at : found[0].start], inner, "" if inner == "[" else ", ", block, "]"]
            at = found[0].end
        return "".join([*parts, text[at:]]).encode()


def _parts(text: str, at: int, brackets: str) -> Iterator[_Part]:
    """The parts of the object or array that begins at a place; the names of an array's items are "".

    Raises:
        ValueError: It is none.
    """
    at = _after(text, at, brackets[0])
    is_first = True
    while text[at : at + 1] != brackets[1]:
        at, is_first, name = at if is_first else _after(text, at, ","), False, ""
        if brackets == "{}":
            name, at = _DECODER.raw_decode(text, at)
            if not isinstance(name, str):
                raise ValueError(f"a name that is no text before {at}")
            at = _after(text, _after_space(text, at), ":")
        value, end = _DECODER.raw_decode(text, at)
        yield _Part(name, value, at, end)
        at = _after_space(text, end)


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found is not None else at


def _after(text: str, at: int, sign: str) -> int:
    """What follows a sign and the space after it."""
    if text[at : at + 1] != sign:
        raise ValueError(f"no {sign} at {at}")
    return _after_space(text, at + 1)
