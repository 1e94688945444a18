"""Secrets in text: replaced by `[redacted:kind]` before anything is written; and what the user calls private."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from satchel.memory.text.credentials import Secret

_DONE: Final = re.compile(r"\[redacted:[a-z-]+\]")

_PRIVATE_TAG: Final = re.compile(
    r"(?:<|&lt;)\s*(/?)\s*private(?:\s(?:(?!&[gl]t;)[^<>])*)?/?(?:>|&gt;)", re.IGNORECASE
)
"""Also as HTML has it: an editor or a form may have escaped what the user wrote."""

PRIVATE: Final = "[private]"
"""What stands in a session log for a `<private>` part."""


def strip_private(text: str) -> str:
    """The text without its `<private>…</private>` parts. They may hold others; one that is never closed reaches to the
    end.
    """
    return _without_private(text, "").replace(PRIVATE, "") if _may_hold_tag(text) or PRIVATE in text else text


def hide_private(text: str) -> str:
    """The text with `[private]` in the place of each `<private>` part."""
    return _without_private(text, PRIVATE) if _may_hold_tag(text) else text


def private_parts(text: str) -> tuple[str, ...]:
    """The words inside the `<private>` parts of a text, without the marks and the blanks around them.

    Of parts within parts, the words before, in and after the inner one are given one by one.
    """
    if not _may_hold_tag(text):
        return ()
    # Every second part is what the pattern captures of a tag.
    inner = (
        words.strip()
        for start, end in _private_spans(text)
        for words in _PRIVATE_TAG.split(text[start:end])[::2]
    )
    return tuple(words for words in inner if words)


def _may_hold_tag(text: str) -> bool:
    return "<" in text or "&lt;" in text.lower()


def _without_private(text: str, mark: str) -> str:
    parts: list[str] = []
    at = 0
    for start, end in _private_spans(text):
        parts += (text[at:start], mark)
        at = end
    return "".join([*parts, text[at:]])


def _private_spans(text: str) -> Iterator[tuple[int, int]]:
    depth = start = 0
    for tag in _PRIVATE_TAG.finditer(text):
        if not tag[1]:
            start = tag.start() if depth == 0 else start
            depth += 1
        elif depth:
            depth -= 1
            if depth == 0:
                yield start, tag.end()
    if depth:
        yield start, len(text)


def redact(text: str) -> str:
    """The text with every secret that is found replaced by `[redacted:kind]`; doing it again changes
    nothing.
    """
    secrets = find_secrets(text)
    if not secrets:
        return text
    parts: list[str] = []
    at = 0
    for secret in secrets:
        parts += (text[at : secret.start], f"[redacted:{secret.kind}]")
        at = secret.end
    return "".join([*parts, text[at:]])


def find_secrets(text: str) -> tuple[Secret, ...]:
    """The secrets in a text, in order and without overlaps: two that overlap are one, of the kind that begins first, or
    of the longer one where they begin together.
    """
    done = [match.span() for match in _DONE.finditer(text)]
    starts = [start for start, _ in done]
    found = sorted(_in_parts(text), key=lambda secret: (secret.start, -secret.end))
    kept: list[Secret] = []
    for secret in found:
        if kept and secret.start < kept[-1].end:
            kept[-1] = replace(kept[-1], end=max(kept[-1].end, secret.end))
            continue
        before = bisect_left(starts, secret.end) - 1
        if before >= 0 and done[before][1] > secret.start:
            continue  # it was redacted before
        kept.append(secret)
    return tuple(kept)


_PART_CHARS: Final = 100_000
_PART_OVERLAP_CHARS: Final = 21_000
"""A long text is searched in parts, so that other threads run in between; the overlap holds the longest key."""


def _in_parts(text: str) -> Iterator[Secret]:
    for start in range(0, max(1, len(text) - _PART_OVERLAP_CHARS), _PART_CHARS - _PART_OVERLAP_CHARS):
        part = text[start : start + _PART_CHARS]
        yield from _in_part(part, start)


def _in_part(part: str, offset: int) -> Iterator[Secret]:
    # Imported when used: a start that writes nothing would pay 15 ms for the patterns.
    from satchel.memory.text.credentials import Secret, candidates  # noqa: PLC0415

    for secret in candidates(part):
        yield Secret(kind=secret.kind, start=secret.start + offset, end=secret.end + offset)
