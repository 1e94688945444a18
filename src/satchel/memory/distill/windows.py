"""Divides the conversations of a day into windows of about 1,500 tokens, each with the end of the previous text of its
conversations as context.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby
from operator import attrgetter

from satchel.memory.records import Trust
from satchel.memory.text.framing import CHARS_A_TOKEN, estimate_tokens, longest
from satchel.wording import cut_text

WINDOW_TOKENS = 1_500
"""The approximate amount of new text in a window, as it is shown: most days are one, and read with one request (issue
20; seed-2, 4.2, has 500)."""
OVERLAP_TOKENS = 100
"""The approximate amount of text before it that is repeated (seed-2, 4.2)."""
MAX_CHARS = 32_000
"""The part of an episode that is read, about twenty windows. Someone who pastes a book wants to ask about it, not to
have it remembered."""
TAIL_CHARS = 4_000
"""Of these, the ones at its end, where people write what they want to know about what they pasted."""
_AGENT_TOKENS = 30
"""What is shown of an assistant's long turn at its beginning, and as much at its end."""
MOST_OF_AGENT = 2 * _AGENT_TOKENS
"""What an assistant's turn counts for at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodePart:
    """An episode or a part of one.

    Attributes:
        text: Characters `start` to `end` of the episode, which has `total` characters.
        is_new: Whether it is read for the first time; otherwise it is context.
        is_worth: Whether the gate has found it worth reading.
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
    is_worth: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Consecutive pieces of each of some conversations, one after the other; context comes first."""

    pieces: tuple[EpisodePart, ...]

    @property
    def new(self) -> tuple[EpisodePart, ...]:
        """The pieces that are read for the first time."""
        return tuple(piece for piece in self.pieces if piece.is_new)

    @property
    def sessions(self) -> tuple[str, ...]:
        """The conversations with new words, in order."""
        return tuple(dict.fromkeys(piece.session for piece in self.new if piece.text.strip()))

    @property
    def apart(self) -> tuple[Window, ...]:
        """Its conversations, each in a window of its own."""
        return tuple(Window(pieces=tuple(some)) for _, some in groupby(self.pieces, attrgetter("session")))

    @property
    def is_worth(self) -> bool:
        """Whether the gate has found it worth reading."""
        return all(piece.is_worth for piece in self.new)


def windows_of(episodes: Sequence[EpisodePart]) -> list[Window]:
    """Divide conversations into windows. What was said on different days is in different ones, and so is what the gate
    has judged and what it hasn't.

    The episodes of a session are whole, in order, and stand together. `start` says how far each was read before; one
    that was read completely only provides context.
    """
    windows: list[Window] = []
    gathered: list[EpisodePart] = []
    tokens = 0
    for session, talk in groupby(episodes, attrgetter("session")):
        before: list[EpisodePart] = []
        is_begun = False
        for episode in talk:
            if episode.start and not is_begun:
                before.append(
                    replace(episode, text=episode.text[: episode.start], start=0, end=episode.start)
                )
            room = WINDOW_TOKENS - tokens
            for part in _parts(episode, room if 2 * room >= WINDOW_TOKENS else WINDOW_TOKENS):
                cost = _cost(part)
                if gathered and (tokens + cost > WINDOW_TOKENS or not _is_together(gathered[-1], part)):
                    windows.append(Window(pieces=tuple(gathered)))
                    gathered, tokens = [], 0
                if not gathered or gathered[-1].session != session:
                    gathered += _overlap(before)
                gathered.append(part)
                before.append(part)
                tokens += cost
                is_begun = True
    if gathered:
        windows.append(Window(pieces=tuple(gathered)))
    return windows


def _cost(part: EpisodePart) -> int:
    tokens = estimate_tokens(part.text)
    return min(tokens, MOST_OF_AGENT) if part.trust == "agent" else tokens


def _is_together(last: EpisodePart, part: EpisodePart) -> bool:
    is_same = last.session == part.session or last.said_at.date() == part.said_at.date()
    return is_same and last.is_worth == part.is_worth


def _parts(episode: EpisodePart, room: int) -> Iterator[EpisodePart]:
    """The unread text of an episode in parts that fit into a window, the first one into `room` tokens, split between
    words if possible. Of an episode that is longer than `MAX_CHARS`, the middle is left out.
    """
    gap_from, gap_to = episode.total, episode.total
    if episode.total > MAX_CHARS:
        gap_from, gap_to = MAX_CHARS - TAIL_CHARS, episode.total - TAIL_CHARS
    at = episode.start
    while at < episode.total:
        if gap_from <= at < gap_to:
            at = gap_to
        last = gap_from if at < gap_from else episode.total
        # What fits into a window of its own is not split.
        is_long = estimate_tokens(episode.text[at:last]) > WINDOW_TOKENS
        end = _fitting_end(episode.text, at, last, room if is_long and at == episode.start else WINDOW_TOKENS)
        # What is left out is marked as read with the part before it.
        yield replace(
            episode,
            text=episode.text[at:end],
            start=at,
            end=gap_to if end == gap_from else end,
            is_new=True,
            # The verdict was on the window that the unread text begins in.
            is_worth=episode.is_worth and at == episode.start,
        )
        at = end


def _fitting_end(text: str, start: int, last: int, tokens: int) -> int:
    if estimate_tokens(text[start:last]) <= tokens:
        return last
    most = min(last, start + int(tokens * CHARS_A_TOKEN))
    low = longest(most, tokens, lambda at: estimate_tokens(text[start:at]), start + 1)
    for mark in ("\n\n", ". ", "\n", " "):
        cut = text.rfind(mark, start + (low - start) // 2, low)
        if cut > start:
            return cut + len(mark)
    return low


def _overlap(before: Sequence[EpisodePart]) -> tuple[EpisodePart, ...]:
    """The last pieces before a window, about `OVERLAP_TOKENS`."""
    found: list[EpisodePart] = []
    left = OVERLAP_TOKENS
    for piece in reversed(before):
        if left <= 0:
            break
        cost = estimate_tokens(piece.text)
        text = piece.text
        if cost > left:
            cut = text.find(" ", max(0, len(text) - int(left * CHARS_A_TOKEN)))
            text = text[cut + 1 :] if cut >= 0 else ""
        if text.strip():
            found.append(replace(piece, text=text, is_new=False))
        left -= cost
    return tuple(reversed(found))


def shown(window: Window) -> str:
    """The window as models see it: its conversations under a line each, and one line of JSON for each piece, so that no
    text can pose as another piece. Of an assistant's, which counts only where it records what was agreed, both ends.
    """
    lines = []
    # What the user asked not to keep is blank.
    words = [piece for piece in window.pieces if piece.text.strip() and piece.session in window.sessions]
    for number, (_, talk) in enumerate(groupby(words, attrgetter("session")), 1):
        day = ""
        for piece in talk:
            line: dict[str, object] = {
                "said": f"{piece.said_at:%H:%M}",
                "speaker": piece.speaker or ("user" if piece.trust == "user" else piece.trust),
            }
            if day != f"{piece.said_at:%A %Y-%m-%d}":
                lines.append(f"{'then' if day else f'conversation {number}'}, {piece.said_at:%A %Y-%m-%d}:")
                day = f"{piece.said_at:%A %Y-%m-%d}"
            if piece.trust == "outside":
                line["from_outside"] = True
            if not piece.is_new:
                line["read_before"] = True
            text = _ends_of(piece.text, _AGENT_TOKENS) if piece.trust == "agent" else piece.text
            text = text.lstrip() if text.startswith("  ") else text
            lines.append(json.dumps({**line, "text": text}, ensure_ascii=False))
    return "\n".join(lines)


def _ends_of(text: str, tokens: int) -> str:
    if estimate_tokens(text) <= 2 * tokens:
        return text
    first = _fitting_end(text, 0, len(text), tokens)
    last = len(text) - _fitting_end(text[::-1], 0, len(text), tokens)
    return cut_text(text, first, len(text) - last, what="characters")
