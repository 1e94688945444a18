"""Shows streamed text: Markdown that is laid out while it arrives, or plain text.

A finished block is printed once and never changed. Only changed lines of the unfinished block are repainted, so that
nothing flickers and scrolling back works.
"""

from __future__ import annotations

import io
import re
import shutil
from collections.abc import Callable
from typing import TextIO

from satchel.tui.markdown import first_settled, laid_out
from satchel.tui.plain_text import plain

_PAINT_S = 0.05
"""Seconds between two repaints. Twenty a second look smooth; a block that takes long to lay out is painted less
often."""
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class PlainStream:
    """Shows the text unchanged."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._is_at_start = True

    def feed(self, text: str) -> None:
        """Show the next piece."""
        if text:
            self._out.write(plain(text))
            self._out.flush()
            self._is_at_start = text.endswith("\n")

    def finish(self) -> None:
        """End the text, so that what follows begins on a new line. Does nothing if there was no text."""
        if not self._is_at_start:
            self._out.write("\n")
            self._out.flush()
        self._is_at_start = True


def _size() -> tuple[int, int]:
    size = shutil.get_terminal_size()
    return size.columns, size.lines


class MarkdownStream:
    """Shows Markdown on a terminal, laid out with rich."""

    def __init__(
        self,
        out: TextIO,
        *,
        monotonic_s: Callable[[], float],
        size: Callable[[], tuple[int, int]] = _size,
    ) -> None:
        """Create an empty stream.

        Args:
            out: The terminal.
            monotonic_s: A clock, to limit repaints.
            size: Returns the terminal's current columns and lines.
        """
        self._out = out
        self._monotonic_s = monotonic_s
        self._size = size
        self._tail = ""
        self._shown: list[str] = []
        self._next_paint_s = 0.0
        self._has_settled = False

    def feed(self, text: str) -> None:
        """See `PlainStream`."""
        self._tail += plain(text)
        if self._monotonic_s() >= self._next_paint_s:
            self._paint()

    def finish(self) -> None:
        """See `PlainStream`."""
        self._settle_blocks(is_complete=True)
        if self._tail.strip() or self._shown:
            self._settle(self._tail)
        self._tail = ""
        self._has_settled = False

    def _paint(self) -> None:
        began_s = self._monotonic_s()
        self._settle_blocks(is_complete=False)
        self._repaint(self._layout(self._tail))
        took_s = self._monotonic_s() - began_s
        self._next_paint_s = began_s + took_s + max(_PAINT_S, 4 * took_s)

    def _settle_blocks(self, *, is_complete: bool) -> None:
        # One block at a time, so that the result doesn't depend on how the text was split into pieces.
        while cut := first_settled(self._tail, is_complete=is_complete):
            head, self._tail = self._tail[:cut], self._tail[cut:]
            self._settle(head)

    def _settle(self, text: str) -> None:
        """Print a part that won't change any more."""
        self._repaint(self._layout(text))
        self._has_settled = self._has_settled or bool(self._shown)
        self._shown = []

    def _layout(self, text: str) -> list[str]:
        # Imported on demand: it takes a tenth of a second, and only terminals need it.
        from rich.console import Console  # noqa: PLC0415

        if not text.strip():
            return []
        columns, _ = self._size()
        paper = io.StringIO()
        console = Console(
            file=paper,
            force_terminal=True,
            color_system="standard",
            width=max(20, columns),
            # Without a height, TERM=dumb makes rich forget the width as well.
            height=25,
            legacy_windows=False,
        )
        console.print(laid_out(text))
        lines = [line.rstrip(" ") for line in paper.getvalue().split("\n")]
        while lines and _is_blank(lines[0]):
            del lines[0]
        while lines and _is_blank(lines[-1]):
            del lines[-1]
        return ["", *lines] if self._has_settled and lines else lines

    def _repaint(self, lines: list[str]) -> None:
        """Repaint the unfinished block from the first line that changed and is still on the screen."""
        _, height = self._size()
        same = 0
        for old, new in zip(self._shown, lines, strict=False):
            if old != new:
                break
            same += 1
        # The cursor can't reach lines that have scrolled off the screen.
        same = max(same, len(self._shown) - max(1, height - 1))
        up = len(self._shown) - same
        if up or lines[same:]:
            back = f"\x1b[{up}A\r\x1b[J" if up else ""
            self._out.write(back + "".join(f"{line}\n" for line in lines[same:]))
            self._out.flush()
        self._shown = [*self._shown[:same], *lines[same:]]


def _is_blank(line: str) -> bool:
    return not _COLOUR.sub("", line).strip()
