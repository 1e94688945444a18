"""Splits a long text into passages that an embedder can embed without truncation."""

from __future__ import annotations

import re

PASSAGE_WORDS = 80
"""Short enough for one statement: with 150 words, questions that paraphrase a page found it among the first five in 8 %
of the cases, with 80 words in 36 to 39 % (docs/concepts/retrieval.md)."""

MAX_PASSAGES = 128
"""For one memory: 10,000 words, 60 KB. The lexical arm indexes every word of a longer text."""

_MAX_CHARS = 1_000
"""The length limit of a passage. It is twice what 80 words need, and so affects only text without spaces."""

_READ_CHARS = 2 * MAX_PASSAGES * _MAX_CHARS
"""Text after this position is in no passage."""

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")


def passages(text: str, *, words: int = PASSAGE_WORDS, counts_bars: bool = False) -> list[str]:
    """Split at the ends of sentences into at most `MAX_PASSAGES` passages of about `words` words; a short text stays
    whole. The bars between a table's cells count as words where a passage is to be short, and not where it is embedded.
    """

    def bars(part: str) -> int:
        return 0 if counts_bars else part.count(" | ")

    # Don't split off a short tail: the factors 1.3 here and 1.6 below leave no passage shorter than a third.
    if len(text) <= _MAX_CHARS and text.count(" ") + text.count("\n") - bars(text) <= words * 1.3:
        return [text]
    parts: list[str] = []
    current: list[str] = []
    length = 0
    for sentence in _SENTENCE_END.split(text[:_READ_CHARS]):
        size = len(sentence.split()) - bars(sentence)
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
    """Split a passage that is a single long sentence: by words, then by characters."""
    split = part.split()
    pieces = [part]
    if len(split) > words * 1.6:
        pieces = [" ".join(split[at : at + words]) for at in range(0, len(split), words)]
    return [piece[at : at + _MAX_CHARS] for piece in pieces for at in range(0, len(piece), _MAX_CHARS)]
