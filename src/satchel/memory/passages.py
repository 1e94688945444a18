"""Cuts a long text into passages that an embedder can read whole."""

from __future__ import annotations

import re

__all__ = ["PASSAGE_WORDS", "passages"]

PASSAGE_WORDS = 80
"""One thing that was said, not five: with 150 words a question in other words than the text's found its page
among the first five in 8 cases of 100, with 80 in 36 to 39 (docs/concepts/retrieval.md)."""

MAX_PASSAGES = 128
"""Of one memory: 10,000 words, 60 KB. The lexical arm reads every word of longer ones."""

_MAX_CHARS = 1_000
"""Of a passage: twice what 80 words need, so that it cuts only where there are no words to cut by."""

_READ_CHARS = 2 * MAX_PASSAGES * _MAX_CHARS
"""What is further down in a text is in no passage."""

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")


def passages(text: str, *, words: int = PASSAGE_WORDS) -> list[str]:
    """Cut at the ends of sentences into passages of about `words` words; a short text stays whole.

    Returns:
        At least one passage and at most `MAX_PASSAGES`, in order.
    """
    # A cut is worth it only where the rest is more than a tail; 1.3 and 1.6 leave no passage under a third.
    if len(text) <= _MAX_CHARS and text.count(" ") + text.count("\n") <= words * 1.3:
        return [text]
    parts: list[str] = []
    current: list[str] = []
    length = 0
    for sentence in _SENTENCE_END.split(text[:_READ_CHARS]):
        size = len(sentence.split())
        if current and length + size > words:
            parts.append(" ".join(current))
            current, length = [], 0
            if len(parts) >= MAX_PASSAGES:
                break
        if size:
            current.append(sentence)
            length += size
    if current:
        if parts and length < words * 0.3:
            parts[-1] += " " + " ".join(current)
        else:
            parts.append(" ".join(current))
    whole: list[str] = []
    for part in parts:
        whole.extend(_split_long(part, words))
        if len(whole) >= MAX_PASSAGES:
            break
    return whole[:MAX_PASSAGES] or [text[:_MAX_CHARS]]


def _split_long(part: str, words: int) -> list[str]:
    """Cut one sentence that is itself too long, by words and then by characters."""
    split = part.split()
    pieces = [part]
    if len(split) > words * 1.6:
        pieces = [" ".join(split[at : at + words]) for at in range(0, len(split), words)]
    return [piece[at : at + _MAX_CHARS] for piece in pieces for at in range(0, len(piece), _MAX_CHARS)]
