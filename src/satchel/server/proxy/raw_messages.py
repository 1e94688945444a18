"""A request's JSON kept as text: parsed for reading, and changed only where a block is added.

Encoding parsed JSON again would change numbers, escapes and spaces, and a provider would read the whole conversation
again. So a block is inserted into the text, and every other byte stays.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["RawMessages"]

_DECODER: Final = json.JSONDecoder()
_SPACE: Final = re.compile(r"[ \t\n\r]*")


@dataclass(frozen=True, slots=True)
class _Span:
    start: int
    end: int


class RawMessages:
    """The messages of a request, and their positions in its text.

    Attributes:
        fields: The request's other fields.
        messages: The messages as they were sent.
    """

    def __init__(
        self, text: str, fields: Mapping[str, Any], messages: list[Mapping[str, Any]], spans: list[_Span]
    ) -> None:
        """Use `read`."""
        self.fields = fields
        self.messages = messages
        self._text = text
        self._spans = spans

    @classmethod
    def read(cls, body: bytes) -> RawMessages | None:
        """Read a body; None if it is not a request with messages, so that the provider reports the error."""
        try:
            text = body.decode()
            return cls._read(text)
        except (ValueError, RecursionError):
            return None

    @classmethod
    def _read(cls, text: str) -> RawMessages | None:
        fields: dict[str, Any] = {}
        messages: list[Mapping[str, Any]] = []
        spans: list[_Span] = []
        at = _open(text, _after_space(text, 0), "{")
        is_first, has_messages = True, False
        while (at := _next(text, at, "}", is_first=is_first)) >= 0:
            is_first = False
            name, at = _name(text, at)
            if name == "messages":
                if has_messages:
                    return None
                has_messages = True
                at = cls._read_messages(text, at, messages, spans)
                if at < 0:
                    return None
            else:
                fields[name], at = _DECODER.raw_decode(text, at)
        return cls(text, fields, messages, spans) if messages else None

    @staticmethod
    def _read_messages(text: str, at: int, messages: list[Mapping[str, Any]], spans: list[_Span]) -> int:
        """Read the array; returns where it ends, or -1 if something in it is no message."""
        start = at
        at = _open(text, at, "[")
        is_first = True
        while (following := _next(text, at, "]", is_first=is_first)) >= 0:
            is_first = False
            message, at = _DECODER.raw_decode(text, following)
            if not isinstance(message, dict):
                return -1
            messages.append(message)
            spans.append(_Span(following, at))
        return _DECODER.raw_decode(text, start)[1] if is_first else _after_space(text, at) + 1

    def with_blocks(self, blocks: Mapping[int, str]) -> bytes:
        """The body with a text block at the end of some messages, by their numbers."""
        text, parts, at = self._text, [], 0
        for number in sorted(blocks):
            span = self._content(number)
            if span is None:
                continue
            block = json.dumps({"type": "text", "text": blocks[number]}, ensure_ascii=False)
            content = text[span.start : span.end]
            if content.startswith('"'):
                parts += [text[at : span.start], f'[{{"type": "text", "text": {content}}}, {block}]']
            else:
                inner = content[:-1].rstrip(" \t\n\r")
                parts += [text[at : span.start], inner, "" if inner == "[" else ", ", block, "]"]
            at = span.end
        return "".join([*parts, text[at:]]).encode()

    def _content(self, number: int) -> _Span | None:
        """The position of a message's content; None if there is none, or more than one."""
        found = None
        at = _open(self._text, self._spans[number].start, "{")
        is_first = True
        while (at := _next(self._text, at, "}", is_first=is_first)) >= 0:
            is_first = False
            name, at = _name(self._text, at)
            start, (_, at) = at, _DECODER.raw_decode(self._text, at)
            if name == "content":
                if found is not None:
                    return None
                found = _Span(start, at)
        return found


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found is not None else at


def _open(text: str, at: int, bracket: str) -> int:
    if text[at : at + 1] != bracket:
        raise ValueError(f"no {bracket} at {at}")
    return at + 1


def _next(text: str, at: int, closing: str, *, is_first: bool) -> int:
    """Where the next element begins; -1 at the end of the object or array."""
    at = _after_space(text, at)
    if text[at : at + 1] == closing:
        return -1
    return at if is_first else _after_space(text, _open(text, at, ","))


def _name(text: str, at: int) -> tuple[str, int]:
    """A name in an object, and where its value begins."""
    if text[at : at + 1] != '"':
        raise ValueError(f"no name at {at}")
    name, at = _DECODER.raw_decode(text, at)
    return name, _after_space(text, _open(text, _after_space(text, at), ":"))
