"""Parses server-sent events, and lines of JSON, from the pieces that the network delivers."""

from __future__ import annotations

import re
from collections.abc import Iterator

_LINE_END = re.compile(rb"\r\n|\n|\r")


class EventReader:
    """Takes bytes and yields the `data` of each event. Ids and comments are ignored.

    Attributes:
        name: Of the event that was yielded last; "" without one.
    """

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._data: list[bytes] = []
        self.name = ""

    def feed(self, piece: bytes) -> Iterator[str]:
        """The events that this piece completes."""
        if b"\n" not in piece and b"\r" not in piece:
            # A line in many pieces is joined only once, at its end.
            self._rest.append(piece)
            return
        piece = b"".join((*self._rest, piece))
        # A CR at the end may be the first half of CRLF, so it is held until the next piece.
        held = piece.endswith(b"\r")
        lines = _LINE_END.split(piece[:-1] if held else piece)
        last = lines.pop()
        self._rest = [last + b"\r" if held else last]
        for line in lines:
            yield from self._line(line)
            if not line:
                self.name = ""

    def finish(self) -> Iterator[str]:
        """The event that the end of the stream completes, because some servers omit the final empty line."""
        rest = b"".join(self._rest).rstrip(b"\r")
        self._rest = []
        if rest:
            yield from self._line(rest)
        yield from self._line(b"")

    def _line(self, line: bytes) -> Iterator[str]:
        if line.startswith(b"data:"):
            self._data.append(line[6:] if line.startswith(b"data: ") else line[5:])
        elif line.startswith(b"event:"):
            self.name = line[6:].strip().decode("utf-8", "replace")
        elif not line and self._data:
            data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
            self._data = []
            yield data.decode("utf-8", "replace")


class LineReader:
    """Takes bytes and yields each line that isn't empty, like `EventReader`."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> Iterator[str]:
        """The lines that this piece completes."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        yield from (line.decode("utf-8", "replace") for line in lines if line.strip())

    def finish(self) -> Iterator[str]:
        """The line that the end of the stream completes."""
        yield from self.feed(b"\n")
