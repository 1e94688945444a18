"""JSON in bounded memory: one line after the other, or one element of a long array after the other."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, BinaryIO

from satchel.memory.transfer.pieces import Left

__all__ = ["elements", "lines", "parse"]

_MAX_BYTES = 64 << 20
"""Of one line or one element: the longest conversations have some ten megabytes."""
_MAX_DEPTH = 200
_CHUNK = 1 << 20

_OUTSIDE = re.compile(rb'["{}\[\]]')
_INSIDE = re.compile(rb'["\\]')


def parse(raw: bytes) -> Any:
    """JSON from bytes; what is no UTF-8 in it is read as the Windows code page that such files come from.

    Raises:
        ValueError: It is no JSON, or nested too deep.
    """
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        text = raw.decode("cp1252", "replace")
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None


def lines(stream: BinaryIO, name: str) -> Iterator[tuple[int, dict[str, Any] | Left]]:
    """The objects of a file that has one on each line, with their numbers counted from 1.

    A line that is none is left out with its reason; one that is cut off at the end of the file as well, as
    happens to a file that is being written.
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
            yield number, Left(reason="a line of more than 64 MB", where=where)
            continue
        body = raw.strip(b" \t\r\n\x00")
        if not body:
            continue
        try:
            found = parse(body)
        except ValueError as error:
            cut = not raw.endswith(b"\n")
            reason = (
                "the last line is cut off"
                if cut
                else "nested too deep"
                if "too deep" in str(error)
                else "a line that is no JSON"
            )
            yield number, Left(reason=reason, where=where)
            continue
        if isinstance(found, dict):
            yield number, found
        else:
            yield number, Left(reason="a line that is no JSON object", where=where)


def elements(stream: BinaryIO, name: str) -> Iterator[tuple[int, dict[str, Any] | Left]]:
    """The objects of a long array, with their numbers counted from 1.

    The array is the whole file, or stands in an object that is the whole file, as in {"results": [...]}; of
    several arrays there, each is read.
    """
    number = 0
    for raw, reason in _raw_elements(stream):
        number += 1
        where = f"{name}#{number}"
        if reason:
            yield number, Left(reason=reason, where=where)
            continue
        try:
            found = parse(raw)
        except ValueError:
            yield number, Left(reason="an element that is no JSON", where=where)
            continue
        yield (
            number,
            found if isinstance(found, dict) else Left(reason="an element that is no object", where=where),
        )


def _raw_elements(stream: BinaryIO) -> Iterator[tuple[bytes, str]]:
    """The bytes of each object in the arrays, or why there are none. Only brackets and strings are looked at."""
    stack: list[int] = []  # the brackets that are open, as far as they matter
    depth = 0
    inside_string = False
    kept: list[bytes] = []
    size = 0
    begun = -1  # the depth at which the element began
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
                    reason = "nested too deep"
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
        yield b"", reason or "the last element is cut off"
