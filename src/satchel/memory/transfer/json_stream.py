"""Reads JSON in bounded memory: line by line, or element by element of a long array.

docs/decisions/0028-the-memory-room.md says why this isn't ijson.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, BinaryIO

from satchel.memory.transfer.parts import LeftOut

_MAX_BYTES = 64 << 20
"""The limit of one line or element. The longest conversations have about ten megabytes."""
_MAX_DEPTH = 200
_CHUNK = 1 << 20

_OUTSIDE = re.compile(rb'["{}\[\]]')
_INSIDE = re.compile(rb'["\\]')


def parse(raw: bytes) -> Any:
    """Parse JSON that is UTF-8 or, if it isn't, Windows-1252.

    Raises:
        ValueError: It isn't JSON, or is nested too deeply.
    """
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        text = raw.decode("cp1252", "replace")
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def lines(stream: BinaryIO, name: str) -> Iterator[tuple[int, dict[str, Any] | LeftOut]]:
    """The objects of a file in the JSON Lines format, with their line numbers, counted from 1.

    An invalid line yields a `LeftOut`. So does a last line that is truncated because the file is still being written.
    """
    number = 0
    while True:
        raw = stream.readline(_MAX_BYTES)
        if not raw:
            return
        number += 1
        where = f"{name}:{number}"
        if len(raw) >= _MAX_BYTES and not raw.endswith(b"\n"):
            while raw and not raw.endswith(b"\n"):
                raw = stream.readline(_CHUNK)
            yield number, LeftOut(reason="a line of more than 64 MB", where=where)
            continue
        body = raw.strip(b" \t\r\n\x00")
        if not body:
            continue
        try:
            found = parse(body)
        except ValueError as error:
            if not raw.endswith(b"\n"):
                reason = "the last line is truncated"
            else:
                reason = "nested too deeply" if "too deep" in str(error) else "a line that is not JSON"
            yield number, LeftOut(reason=reason, where=where)
            continue
        is_object = isinstance(found, dict)
        yield number, found if is_object else LeftOut(reason="a line that is not a JSON object", where=where)


def elements(stream: BinaryIO, name: str) -> Iterator[tuple[int, dict[str, Any] | LeftOut]]:
    """The objects of a long array, with their numbers, counted from 1.

    The array is the whole file or a member of an object that is the whole file, as in {"results": [...]}. If there are
    several arrays, all are read. An invalid element yields a `LeftOut`.
    """
    for number, (raw, reason) in enumerate(_raw_elements(stream), start=1):
        found: Any = None
        if not reason:
            try:
                found = parse(raw)
            except ValueError:
                reason = "an element that is not JSON"
        yield number, LeftOut(reason=reason, where=f"{name}#{number}") if reason else found


def _raw_elements(stream: BinaryIO) -> Iterator[tuple[bytes, str]]:
    """The bytes of each object in the arrays, or the reason why it is left out. Only strings and brackets matter."""
    stack: list[int] = []  # the three outermost open brackets
    depth = 0
    inside_string = False
    kept: list[bytes] = []
    size = 0
    begun = -1  # the depth at which the current element began
    reason = ""
    while chunk := stream.read(_CHUNK):
        at = start = 0
        while True:
            found = (_INSIDE if inside_string else _OUTSIDE).search(chunk, at)
            if found is None:
                break
            at = found.end()
            mark = chunk[found.start()]
            if inside_string:
                if mark == 0x22:
                    inside_string = False
                elif at < len(chunk):
                    at += 1
                else:
                    # The character that the backslash escapes is in the next chunk.
                    more = stream.read(1)
                    chunk += more
                    at += len(more)
                continue
            if mark == 0x22:
                inside_string = True
            elif mark in b"{[":
                depth += 1
                if depth <= 3:
                    stack.append(mark)
                if begun < 0 and mark == 0x7B and depth in (2, 3) and stack[-2] == 0x5B:
                    begun, start, reason, kept, size = depth, found.start(), "", [], 0
                if depth > _MAX_DEPTH:
                    reason = "nested too deeply"
            else:
                if depth == begun:
                    kept.append(chunk[start:at])
                    yield b"" if reason else b"".join(kept), reason
                    begun, kept, size = -1, [], 0
                if depth <= 3 and stack:
                    stack.pop()
                depth = max(0, depth - 1)
        if begun >= 0:
            size += len(chunk) - start
            if size > _MAX_BYTES:
                reason = reason or "an element of more than 64 MB"
            if reason:
                kept = []
            else:
                kept.append(chunk[start:])
    if begun >= 0:
        yield b"", reason or "the last element is truncated"
