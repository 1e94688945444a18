"""Shows streamed text: Markdown that is laid out while it arrives, or plain text.

A finished block is printed once and never changed. Only changed lines of the unfinished block are repainted, so that
nothing flickers and scrolling back works.
"""

from __future__ import annotations

import io
import re
import shutil
from collections.abc import Callable
from typing import Protocol, TextIO

from satchel.cli.output import plain

__all__ = ["MarkdownStream", "PlainStream", "TextStream"]

_PAINT_S = 0.05
"""Seconds between two repaints. Twenty a second look smooth; a block that takes long to lay out is painted less
often."""
_MOST_TAIL = 20_000
"""When an unfinished block, such as a very long list, has this many characters, its lines count as finished."""

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_ITEM = re.compile(r"(?:[-*+]|\d{1,9}[.)])(?:\s|$)")


class TextStream(Protocol):
    """Shows an answer's text piece by piece."""

    def feed(self, text: str) -> None:
        """Show the next piece."""
        ...

    def finish(self) -> None:
        """End the text, so that what follows begins on a new line. Does nothing if there was no text."""
        ...


class PlainStream:
    """Shows the text unchanged."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._is_at_start = True

    def feed(self, text: str) -> None:
        """See `TextStream`."""
        if text:
            self._out.write(plain(text))
            self._out.flush()
            self._is_at_start = text.endswith("\n")

    def finish(self) -> None:
        """See `TextStream`."""
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
        """See `TextStream`."""
        self._tail += plain(text)
        if self._monotonic_s() >= self._next_paint_s:
            self._paint()

    def finish(self) -> None:
        """See `TextStream`."""
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
        while cut := _first_settled(self._tail, is_complete=is_complete):
            head, self._tail = self._tail[:cut], self._tail[cut:]
            self._settle(head)

    def _settle(self, text: str) -> None:
        """Print a part that won't change any more."""
        self._repaint(self._layout(text))
        self._has_settled = self._has_settled or bool(self._shown)
        self._shown = []

    def _layout(self, text: str) -> list[str]:
        # Imported on demand: it takes a tenth of a second, and only terminals need it.
        from markdown_it import MarkdownIt  # noqa: PLC0415
        from rich.console import Console  # noqa: PLC0415

        from satchel.cli.markdown_elements import TerminalMarkdown  # noqa: PLC0415

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
        # No hyperlinks: the address is shown next to the link's text, so that a model can't hide it.
        markdown = TerminalMarkdown("", code_theme="ansi_dark", hyperlinks=False)
        # rich drops HTML including its content (`List<int>` would become `List`), and the addresses of pictures.
        reader = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"]).disable("image")
        markdown.parsed = reader.parse(text)
        console.print(markdown)
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


def _first_settled(text: str, *, is_complete: bool) -> int:
    """The length of the first block if another one follows, so that it can't change any more; otherwise 0.

    Args:
        text: Begins with a block.
        is_complete: No more text will be added.
    """
    position = 0
    fence = ""
    is_after_blank = has_words = False
    for line in text.splitlines(keepends=True):
        mark = _FENCE.match(line)
        if (
            has_words
            and not fence
            and is_after_blank
            and line[0] not in " \t\r\n"
            # A list may continue after an empty line. Whether a line begins a list item shows only with its first word.
            and (is_complete or re.match(r"\S+\s", line))
            and not _ITEM.match(line)
        ):
            return position
        if mark and not fence:
            fence = mark[1]
        elif mark and mark[1].startswith(fence) and not line[mark.end() :].strip():
            fence = ""
        is_after_blank = not line.strip()
        has_words = has_words or not is_after_blank
        position += len(line)
    if not fence and len(text) > _MOST_TAIL:
        return text.rfind("\n", 0, _MOST_TAIL) + 1
    return 0
