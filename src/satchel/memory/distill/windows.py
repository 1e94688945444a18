"""What is read at once: windows of about 500 tokens over a conversation, each with the end of what came before it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from satchel.memory.block import estimate_tokens
from satchel.memory.records import Trust

__all__ = ["OVERLAP_TOKENS", "WINDOW_TOKENS", "Piece", "Window", "shown", "windows_of"]

WINDOW_TOKENS = 500
"""New text of a window, about (seed-2, 4.2)."""
OVERLAP_TOKENS = 100
"""Text before it that is shown again, about (seed-2, 4.2)."""
MOST_CHARS = 32_000
"""Of one episode that are read, some twenty windows: whoever pastes a book means to ask about it, not to tell it."""

# The estimate that `estimate_tokens` makes for Latin text.
_CHARS_A_TOKEN = 3.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """An episode, or a part of one.

    Attributes:
        rid: Of the episode's row, and `id` its name.
        text: The part's words: characters `start` to `end` of the episode's `total`.
        is_new: It is read for the first time; else it stands there so that what follows is understood.
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
    """A few pieces of one conversation, in order; those that were read before come first."""

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
    """Cut a conversation into windows.

    Args:
        episodes: Of one session, in order, whole; `start` tells how far each was read before, and one that was read
            whole (`start` = `total`) only serves as what came before.
    """
    before: list[Piece] = []
    gathered: list[Piece] = []
    tokens = 0
    for episode in episodes:
        if episode.start and not gathered:
            # It was read before, in part or whole.
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
    """What of an episode is yet to be read, in parts that fit a window, cut between words where there are any."""
    at = episode.start
    last = min(episode.total, MOST_CHARS)
    while at < last:
        end = _fitting_end(episode.text, at, last)
        # What lies beyond the limit counts as read with the last part.
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
    """The end of what was read, about so much."""
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
    """The window as the models get it: a line of JSON for each piece, which nothing in it can break out of."""
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
