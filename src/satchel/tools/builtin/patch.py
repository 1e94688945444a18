"""Applies a unified diff to a text: exactly where its lines are, or not at all."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from satchel.errors import UsageError

_LINE: Final = re.compile(r"[^\n]*\n|[^\n]+")
_HEAD: Final = re.compile(r"@@(?: -(\d+)(?:,\d+)? \+\d+(?:,\d+)? @@)?")


@dataclass(slots=True)
class _Hunk:
    """One place of a patch.

    Attributes:
        start: The line number that its head names, or None.
        rows: Each line's sign and its text without its ending.
        unended: The rows that are said to have no line ending, by index.
    """

    start: int | None
    rows: list[tuple[str, str]] = field(default_factory=list)
    unended: set[int] = field(default_factory=set)

    @property
    def old(self) -> list[str]:
        return [text for sign, text in self.rows if sign != "+"]


def apply_patch(text: str, patch: str) -> tuple[str, str, int]:
    """Apply a patch of one file. Lines that stay keep their endings; new ones get the file's most common one.

    A hunk goes where its head says if its lines are there, otherwise to the only place that has them. The counts in
    its head are not used: models miscount.

    Args:
        text: The file's content.
        patch: Hunks, each begun by a line `@@`. What stands before the first is ignored.

    Returns:
        The new content, the added lines alone, and the number of hunks.

    Raises:
        UsageError: It is no patch of one file, or does not fit.
    """
    lines = _LINE.findall(text)
    ending = "\r\n" if text.count("\r\n") * 2 > text.count("\n") else "\n"
    ended = not text or text.endswith("\n")
    hunks = _hunks(patch)
    added: list[str] = []
    cursor = drift = 0
    for number, hunk in enumerate(hunks, 1):
        at = _place(lines, hunk, cursor, drift, f"Hunk {number} of {len(hunks)}")
        fresh: list[str] = []
        taken = at
        for index, (sign, row) in enumerate(hunk.rows):
            if sign == "+":
                added.append(row)
                fresh.append(row if index in hunk.unended else row + ending)
                continue
            if sign == " ":
                fresh.append(lines[taken])
            taken += 1
        at_end = taken == len(lines)
        lines[at:taken] = fresh
        # A line that is no longer the last needs an ending.
        for index in range(max(at - 1, 0), min(at + len(fresh), len(lines) - 1)):
            if not lines[index].endswith("\n"):
                lines[index] += ending
        if at_end and lines and not ended and not hunk.unended:
            lines[-1] = _bare(lines[-1])
        cursor = at + len(fresh)
        if hunk.start is not None:
            drift = cursor - (_stated(hunk, hunk.start) + len(hunk.old))
    return "".join(lines), "\n".join(added), len(hunks)


def _hunks(patch: str) -> list[_Hunk]:
    rows = patch.removesuffix("\n").split("\n")
    hunks: list[_Hunk] = []
    for at, row in enumerate(rows):
        if head := _HEAD.match(row):
            hunks.append(_Hunk(int(head[1]) if head[1] else None))
        elif not hunks:
            continue
        elif row.startswith("diff --git ") or [line[:3] for line in rows[at : at + 3]] == [
            "---",
            "+++",
            "@@ ",
        ]:
            raise UsageError("The patch changes several files. Give the part of one file with each call.")
        elif row.startswith("\\"):
            hunks[-1].unended.add(len(hunks[-1].rows) - 1)
        elif row[:1] in ("", "\r", " ", "+", "-"):
            # Blank lines often lose the space that marks them.
            sign, text = (row[0], row[1:]) if row[:1] in (" ", "+", "-") else (" ", "")
            hunks[-1].rows.append((sign, text.removesuffix("\r")))
        else:
            raise UsageError(f"Line {at + 1} of the patch begins with {row[0]!r} instead of a space, + or -.")
    if not any(sign != " " for hunk in hunks for sign, _ in hunk.rows):
        raise UsageError(
            "The patch has no changes: they begin with + or -, below a line that begins with @@."
        )
    return hunks


def _place(lines: Sequence[str], hunk: _Hunk, cursor: int, drift: int, name: str) -> int:
    """The index of the hunk's first line, not before `cursor`."""
    old = hunk.old
    stated = None if hunk.start is None else _stated(hunk, hunk.start) + drift
    if not old:
        if stated is None or not cursor <= stated <= len(lines):
            raise UsageError(f"{name} only adds lines: give a line before or after them, too.")
        return stated
    there = [_bare(line) for line in lines]
    found = [
        at
        for at in range(cursor, len(lines) - len(old) + 1)
        if there[at] == old[0] and there[at : at + len(old)] == old
    ]
    if stated in found:
        return stated
    if len(found) == 1:
        return found[0]
    if not found:
        raise UsageError(
            f"{name} does not fit: its lines, such as {old[0][:200]!r}, are not in the file in this order."
        )
    numbers = ", ".join(str(at + 1) for at in found[:10])
    raise UsageError(f"{name} fits at lines {numbers}: give more of the lines around it, or its line number.")


def _stated(hunk: _Hunk, start: int) -> int:
    """The index that a head's line number means: of nothing, it names the line before."""
    return start - 1 if hunk.old else start


def _bare(line: str) -> str:
    return line.removesuffix("\n").removesuffix("\r")
