"""Finds words in a text whatever white space stands between them."""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cached_property

__all__ = ["BLANKS", "Spaced", "single_spaced"]

BLANKS = re.compile(r"\s+")


def single_spaced(text: str, gap: re.Pattern[str] = BLANKS) -> str:
    """The text with one space in the place of each gap."""
    return " ".join(gap.split(text))


class Spaced:
    """A text that is searched for long words. Each search takes time in proportion to the text, where an expression of
    400 KB takes seconds to compile.
    """

    def __init__(self, text: str, gap: re.Pattern[str] = BLANKS) -> None:
        """Take the text, and what counts as a gap between words: any gap fits any other."""
        self._text = text
        self._gap = gap

    def spans(self, words: str) -> list[tuple[int, int]]:
        """Where the words stand, in order and without overlaps.

        Args:
            words: As `single_spaced` gives them.
        """
        found: list[tuple[int, int]] = []
        at = self._plain.find(words) if words and len(words) <= len(self._text) else -1
        while at >= 0:
            end = at + len(words)
            found.append((self._place(at), self._place(end - 1) + 1))
            at = self._plain.find(words, end)
        return found

    @cached_property
    def _plain(self) -> str:
        return single_spaced(self._text, self._gap)

    @cached_property
    def _starts(self) -> tuple[list[int], list[int]]:
        """Where each word begins in the plain text, and where in the text."""
        plain, places = [0], [0]
        for gap in self._gap.finditer(self._text):
            plain.append(plain[-1] + gap.start() - places[-1] + 1)
            places.append(gap.end())
        return plain, places

    def _place(self, at: int) -> int:
        """The place in the text of a place in the plain text."""
        plain, places = self._starts
        word = bisect_right(plain, at) - 1
        return places[word] + at - plain[word]
