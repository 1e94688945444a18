"""A terminal small enough to read: what the few sequences that the program writes leave on the screen."""

from __future__ import annotations

import re

_SEQUENCE = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|\x1b[=>]|\x1b\][^\x07]*\x07")


class Screen:
    """Lines of text without colours; they scroll, and what scrolled out can't be reached."""

    def __init__(self, *, columns: int = 60, height: int = 10) -> None:
        self.columns = columns
        self.height = height
        self.lines: list[str] = [""]
        self.row = 0
        self.column = 0
        self.rewritten = 0
        """Lines that were cleared after they had been written."""

    def write(self, text: str) -> int:
        position = 0
        while position < len(text):
            found = _SEQUENCE.match(text, position)
            if found is not None:
                self._obey(found[1] or "", found[2] or "")
                position = found.end()
                continue
            self._put(text[position])
            position += 1
        return len(text)

    def flush(self) -> None:
        """A screen shows at once."""

    def isatty(self) -> bool:
        return True

    def _put(self, character: str) -> None:
        if character == "\n":
            self.row += 1
            self.column = 0
            if self.row == len(self.lines):
                self.lines.append("")
        elif character == "\r":
            self.column = 0
        else:
            assert character >= " ", f"{character!r} reached the terminal"
            line = self.lines[self.row].ljust(self.column)
            self.lines[self.row] = line[: self.column] + character + line[self.column + 1 :]
            self.column += 1
            assert self.column <= self.columns, "a line is wider than the terminal"

    def _obey(self, numbers: str, command: str) -> None:
        if command == "A":
            up = int(numbers or 1)
            assert up < self.height, "the cursor can't leave the screen"
            self.row -= up
            assert self.row >= 0
        elif command == "J":
            self.rewritten += len(self.lines) - 1 - self.row
            del self.lines[self.row + 1 :]
            self.lines[self.row] = self.lines[self.row][: self.column]
        elif command != "m":
            raise AssertionError(f"the terminal was sent {numbers}{command}")

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.lines).rstrip("\n")
