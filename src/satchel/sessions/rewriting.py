"""A log that is rewritten: how its writer is kept out, and which words were forgotten."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from satchel.config.home import replacing
from satchel.spacing import FORGOTTEN

_OMITS = "[…"
_TELLING_CHARS = 12
"""Shorter pieces of a text say too little to be looked for elsewhere; a text that went as a whole does not."""


def words_taken(before: Iterable[bytes], after: Iterable[bytes]) -> tuple[str, ...]:
    """The words that stand in the lines of a log before, and have `FORGOTTEN` in their place after.

    A rewrite keeps every line with words in its place, so the lines are compared in pairs. Lines that follow in only
    one of the two are not looked at.
    """
    found: dict[str, None] = {}
    pairs = zip(filter(bytes.strip, before), filter(bytes.strip, after), strict=False)
    for old, new in pairs:
        if old != new:
            had, has = set(_texts(old)), set(_texts(new))
            gone = had - has
            for text in has - had:
                found |= dict.fromkeys(piece for whole in gone for piece in _pieces(whole, text))
    return tuple(found)


def _texts(line: bytes) -> Iterator[str]:
    """Every text in a line, the names of an object's members included; the line itself if it is not JSON."""
    try:
        stack: list[Any] = [json.loads(line)]
    except (ValueError, RecursionError):
        stack = [line.decode("utf-8", "surrogateescape")]
    while stack:
        match stack.pop():
            case str(text):
                yield text
            case dict(members):
                stack += [*members, *members.values()]
            case list(items):
                stack += items
            case _:
                pass


def _pieces(old: str, new: str) -> Iterator[str]:
    """The parts of `old` that `new` has `FORGOTTEN` for; none if `new` was not made from `old`."""
    if FORGOTTEN not in new:
        return
    head, *between, tail = new.split(FORGOTTEN)
    end = len(old) - len(tail)
    at = len(head)
    if at > end or not (old.startswith(head) and old.endswith(tail)):
        return
    spans: list[tuple[int, int]] = []
    for literal in between:
        found = old.find(literal, at, end)
        if found < 0:
            return
        if not literal or old.find(literal, found + 1, end) >= 0:
            spans, at = [], len(head)  # it can't be told where one ends: all of it is one piece
            break
        spans.append((at, found))
        at = found + len(literal)
    spans.append((at, end))
    for start, stop in spans:
        piece = old[start:stop].strip()
        if piece and FORGOTTEN not in piece and (new == FORGOTTEN or len(piece) >= _TELLING_CHARS):
            yield piece


def rewriting_path(path: Path) -> Path:
    """The temporary file of a rewrite. The next rewrite replaces what an interrupted one left there."""
    return path.with_suffix(".rewriting")


@contextlib.contextmanager
def locked_log(path: Path) -> Iterator[int]:
    """Keep writers out of a log while it is rewritten. Yields its mode bits."""
    while True:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            # A writer holds this lock only while it writes.
            fcntl.flock(fd, fcntl.LOCK_EX)
            here, there = os.fstat(fd), path.stat(follow_symlinks=False)
            if (here.st_ino, here.st_dev) == (there.st_ino, there.st_dev):
                yield here.st_mode & 0o777
                return
        finally:
            os.close(fd)


def rewrite_file(file: Path, how: Callable[[bytes], bytes | None], home: Path) -> bool:
    """Rewrite a plain file below `home` unless `how` returns None. Returns whether it was rewritten."""
    try:
        real = file.resolve(strict=True)
    except (OSError, ValueError):
        return False
    if (
        not real.is_file()
        or not real.is_relative_to(home.resolve())
        or (new := how(real.read_bytes())) is None
    ):
        return False
    with replacing(real) as out:
        out.write(new)
    return True
