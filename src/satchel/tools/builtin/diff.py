"""The changes between two texts, and how people are shown them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from satchel.tools.display import Line, ShownResult, Style
from satchel.tools.visible import visible
from satchel.wording import LINE_CHARS, counted, one_line

CONTEXT_LINES = 3
MAX_LINES = 200
"""The most lines of a diff that are returned. The model made the change, so it needs no more."""
MAX_CHARS = 4_000
"""The most characters of a line of a change that waits for permission."""
MOST_EMPTY = 16
"""The most empty lines in a row of such a change."""
MOST_BLANKS = 40
"""The most blanks in a row of one of its lines. Code is often indented by more than 16."""
COMPARED_LINES = 3000
"""The comparison takes time quadratic in the number of lines; above this, changes are only counted."""
SHOWN_LINES = 16
CHANGE_FIELDS: Final = frozenset({"old", "new", "edits", "patch", "content"})
"""The input fields of the file tools that `proposed_change` shows."""
STYLES: Mapping[str, Style] = {"+": "added", "-": "removed"}


def unified_diff(before: str, after: str, name: str) -> str:
    """The change as a unified diff with line numbers, cut after `MAX_LINES`."""
    old, new = before.splitlines(), after.splitlines()
    # The equal lines at both ends are most of a file, and need not be compared.
    start = 0
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    end = 0
    while end < min(len(old), len(new)) - start and old[-1 - end] == new[-1 - end]:
        end += 1
    start, end = max(0, start - CONTEXT_LINES), max(0, end - CONTEXT_LINES)
    old_part, new_part = old[start : len(old) - end], new[start : len(new) - end]
    if max(len(old_part), len(new_part)) > COMPARED_LINES:
        return f"The file had {len(old):,} lines and now has {len(new):,}."
    compared = difflib.unified_diff(old_part, new_part, name, name, n=CONTEXT_LINES, lineterm="")
    rows = [_moved(row, start) if row.startswith("@@ ") else row for row in compared]
    if not rows:
        return "Only line endings changed."
    if len(rows) > MAX_LINES:
        rows = [*rows[:MAX_LINES], f"[… {len(rows) - MAX_LINES:,} more lines of the diff]"]
    return "\n".join(rows)


def _moved(head: str, lines: int) -> str:
    return re.sub(r"(?<=[-+])\d+", lambda number: str(int(number[0]) + lines), head)


def show_change(_input: Mapping[str, Any], text: str) -> ShownResult:
    """The result of a tool that changes a file: a sentence, and below it the diff."""
    summary, *rows = text.splitlines() or [""]
    rows = [row for row in rows if not row.startswith(("--- ", "+++ "))]
    lines = [_line(row[:LINE_CHARS]) for row in rows[:SHOWN_LINES]]
    if len(rows) > SHOWN_LINES:
        lines.append(Line(text=f"… {counted(len(rows) - SHOWN_LINES, 'more line')}"))
    return ShownResult(summary=one_line(summary), lines=tuple(lines))


def proposed_change(input: Mapping[str, Any]) -> tuple[Line, ...]:
    """What a call of a file tool would change, for the user who decides about it: invisible characters are written
    out, and what is left out is marked. Empty if the input is of a form that the tool refuses.
    """
    match {name: value for name, value in input.items() if name in CHANGE_FIELDS}:
        case {"old": str(old), "new": str(new), **more} if not more:
            rows = _change_rows(old, new)
        case {"content": str(content), **more} if not more:
            rows = [f"+{line}" for line in visible(content).splitlines()]
        case {"patch": str(patch), **more} if not more:
            rows = visible(patch).splitlines()
        case {"edits": [*edits], **more} if not more:
            rows = []
            for edit in edits:
                match edit:
                    case {"old": str(old), "new": str(new)}:
                        rows += ["…"] if rows else []
                        rows += ["everywhere:"] if edit.get("replace_all") else []
                        rows += _change_rows(old, new)
                    case _:
                        return ()
        case _:
            return ()
    rows = list(_without_blanks(rows))
    lines = [_line(_whole(row, MAX_CHARS)) for row in rows[:MAX_LINES]]
    if len(rows) > MAX_LINES:
        lines.append(Line(text=f"[not shown: {counted(len(rows) - MAX_LINES, 'more line')}]"))
    return tuple(lines)


def _without_blanks(rows: Sequence[str]) -> Iterator[str]:
    """Rows in which long runs of blanks and of empty lines are counted: they could push the rest off the screen."""
    for sign, run in groupby(rows, str.rstrip):
        same = list(run)
        if sign in ("", "+", "-") and len(same) > MOST_EMPTY:
            same = [f"{sign or ' '}[{len(same):,} empty lines]"]
        for row in same:
            yield re.sub(rf"\s{{{MOST_BLANKS + 1},}}", lambda found: f" [{len(found[0]):,} blanks] ", row)


def _change_rows(old: str, new: str) -> Sequence[str]:
    """A diff without heads and numbers: the place in the file is not known yet."""
    before, after = visible(old), visible(new)
    if max(before.count("\n"), after.count("\n")) > MAX_LINES:
        return [*(f"-{line}" for line in before.splitlines()), *(f"+{line}" for line in after.splitlines())]
    rows = unified_diff(before, after, "").splitlines()
    return [row for row in rows[2:] if not row.startswith("@@ ")] or rows


def _line(row: str) -> Line:
    return Line(text=row, style=STYLES.get(row[:1], "plain"))


def _whole(row: str, most: int) -> str:
    more = len(row) - most
    return f"{row[:most]} [not shown: {counted(more, 'more character')}]" if more > 0 else row
