"""Divides a conversation into windows of about 500 tokens, each with the end of the previous text as context."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from satchel.memory.block import estimate_tokens
from satchel.memory.records import Trust

__all__ = ["OVERLAP_TOKENS", "WINDOW_TOKENS", "Piece", "Window", "shown", "windows_of"]

WINDOW_TOKENS = 500
"""The approximate amount of new text in a window (seed-2, 4.2)."""
OVERLAP_TOKENS = 100
"""The approximate amount of text before it that is repeated (seed-2, 4.2)."""
MAX_CHARS = 32_000
"""The part of an episode that is read, about twenty windows. Someone who pastes a book wants to ask about it, not to
have it remembered."""

# What `estimate_tokens` assumes for Latin text.
_CHARS_A_TOKEN = 3.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """An episode or a part of one.

    Attributes:
        rid: The rid of the episode.
        id: The id of the episode.
        text: Characters `start` to `end` of the episode, which has `total` characters.
        is_new: Whether it is read for the first time; otherwise it is context.
    """

    rid: int
    id: str
    session: str
    turn: int
    position: int
    speaker: str
    trust: Trust
    said_at: datetime
    text: str
    start: int
    end: int
    total: int
    is_new: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Consecutive pieces of one conversation; context comes first."""

    pieces: tuple[Piece, ...]

    @property
    def new(self) -> tuple[Piece, ...]:
        """The pieces that are read for the first time."""
        return tuple(piece for piece in self.pieces if piece.is_new)

    @property
    def session(self) -> str:
        """The conversation."""
        return self.pieces[0].session


def windows_of(episodes: Sequence[Piece]) -> Iterator[Window]:
    """Divide a conversation into windows.

    Args:
        episodes: The whole episodes of one session, in order. `start` says how far each was read before; an episode
            that was read completely (`start` = `total`) only provides context.
    """
    before: list[Piece] = []
    gathered: list[Piece] = []
    tokens = 0
    for episode in episodes:
        if episode.start and not gathered:
            before.append(replace(episode, text=episode.text[: episode.start], start=0, end=episode.start))
        for piece in _parts(episode):
            cost = estimate_tokens(piece.text)
            if gathered and tokens + cost > WINDOW_TOKENS:
                yield Window(pieces=(*_overlap(before), *gathered))
                before += gathered
                gathered, tokens = [], 0
            gathered.append(piece)
            tokens += cost
    if gathered:
        yield Window(pieces=(*_overlap(before), *gathered))


def _parts(episode: Piece) -> Iterator[Piece]:
    """The unread text of an episode in parts that fit into a window, split between words if possible."""
    at = episode.start
    last = min(episode.total, MAX_CHARS)
    while at < last:
        end = _fitting_end(episode.text, at, last)
        # Text beyond the limit is marked as read with the last part.
        yield replace(
            episode,
            text=episode.text[at:end],
            start=at,
            end=episode.total if end >= last else end,
            is_new=True,
        )
        at = end


def _fitting_end(text: str, start: int, last: int) -> int:
    if estimate_tokens(text[start:last]) <= WINDOW_TOKENS:
        return last
    low, high = start + 1, min(last, start + int(WINDOW_TOKENS * _CHARS_A_TOKEN))
    while low < high:
        middle = (low + high + 1) // 2
        if estimate_tokens(text[start:middle]) <= WINDOW_TOKENS:
            low = middle
        else:
            high = middle - 1
    for mark in ("\n\n", ". ", "\n", " "):
        cut = text.rfind(mark, start + (low - start) // 2, low)
        if cut > start:
            return cut + len(mark)
    return low


def _overlap(before: Sequence[Piece]) -> tuple[Piece, ...]:
    """The last pieces before a window, about `OVERLAP_TOKENS`."""
    found: list[Piece] = []
    left = OVERLAP_TOKENS
    for piece in reversed(before):
        if left <= 0:
            break
        cost = estimate_tokens(piece.text)
        text = piece.text
        if cost > left:
            cut = text.find(" ", max(0, len(text) - int(left * _CHARS_A_TOKEN)))
            text = text[cut + 1 :] if cut >= 0 else ""
        if text.strip():
            found.append(replace(piece, text=text, is_new=False))
        left -= cost
    return tuple(reversed(found))


def shown(window: Window) -> str:
    """The window as models see it: one line of JSON for each piece, so that no text can pose as another piece."""
    lines = []
    for number, piece in enumerate(window.pieces, 1):
        line: dict[str, object] = {
            "line": number,
            "said": f"{piece.said_at:%A %Y-%m-%d %H:%M}",
            "speaker": piece.speaker or ("user" if piece.trust == "user" else piece.trust),
        }
        if piece.trust == "outside":
            line["from_outside"] = True
        if not piece.is_new:
            line["read_before"] = True
        lines.append(json.dumps({**line, "text": piece.text}, ensure_ascii=False))
    return "\n".join(lines)
