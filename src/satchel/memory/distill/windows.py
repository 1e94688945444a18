"""Divides a conversation into windows of about 1,500 tokens, each with the end of the previous text as context."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from satchel.memory.records import Trust
from satchel.memory.text.framing import CHARS_A_TOKEN, estimate_tokens, longest
from satchel.wording import cut_text

WINDOW_TOKENS = 1_500
"""The approximate amount of new text in a window: most conversations are one, and read with one request (issue 20;
seed-2, 4.2, has 500)."""
OVERLAP_TOKENS = 100
"""The approximate amount of text before it that is repeated (seed-2, 4.2)."""
MAX_CHARS = 32_000
"""The part of an episode that is read, about twenty windows. Someone who pastes a book wants to ask about it, not to
have it remembered."""
TAIL_CHARS = 4_000
"""Of these, the ones at its end, where people write what they want to know about what they pasted."""
_AGENT_TOKENS = 30
"""What is shown of an assistant's long turn at its beginning, and as much at its end."""


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
    """Consecutive pieces of one conversation; context comes first."""

    pieces: tuple[EpisodePart, ...]

    @property
    def new(self) -> tuple[EpisodePart, ...]:
        """The pieces that are read for the first time."""
        return tuple(piece for piece in self.pieces if piece.is_new)

    @property
    def session(self) -> str:
        """The conversation."""
        return self.pieces[0].session

    @property
    def is_worth(self) -> bool:
        """Whether the gate has found it worth reading."""
        return all(piece.is_worth for piece in self.new)


def windows_of(episodes: Sequence[EpisodePart]) -> list[Window]:
    """Divide a conversation into windows. What the gate has judged and what it hasn't are in different ones.

    The episodes of one session are whole and in order. `start` says how far each was read before; one that was read
    completely only provides context.
    """
    windows: list[Window] = []
    before: list[EpisodePart] = []
    gathered: list[EpisodePart] = []
    tokens = 0

    def end_window() -> None:
        nonlocal gathered, tokens
        windows.append(Window(pieces=(*_overlap(before), *gathered)))
        before.extend(gathered)
        gathered, tokens = [], 0

    for episode in episodes:
        if episode.start and not gathered and not windows:
            before.append(replace(episode, text=episode.text[: episode.start], start=0, end=episode.start))
        room = WINDOW_TOKENS - tokens
        for part in _parts(episode, room if 2 * room >= WINDOW_TOKENS else WINDOW_TOKENS):
            cost = estimate_tokens(part.text)
            is_full = tokens + cost > WINDOW_TOKENS
            if gathered and (is_full or gathered[-1].is_worth != part.is_worth):
                end_window()
            gathered.append(part)
            tokens += cost
    if gathered:
        end_window()
    return windows


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
    """The window as models see it: one line of JSON for each piece, so that no text can pose as another piece. Of an
    assistant's, which counts only where it records what was agreed, both ends.
    """
    lines = []
    # What the user asked not to keep is blank.
    for number, piece in enumerate((piece for piece in window.pieces if piece.text.strip()), 1):
        line: dict[str, object] = {
            "line": number,
            "said": f"{piece.said_at:%A %Y-%m-%d %H:%M}",
            "speaker": piece.speaker or ("user" if piece.trust == "user" else piece.trust),
        }
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
