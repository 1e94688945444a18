"""Finds the row of a table that says what its columns are, in text whose cells stand between bars: "Month | Paid"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby, takewhile
from typing import Final

_MOST_HEAD_CHARS: Final = 300
_MOST_HEADING_CHARS: Final = 60


def is_row(line: str) -> bool:
    """Whether a line has several cells."""
    return " | " in line


def may_stand_in_table(line: str) -> bool:
    """Whether a line is a row, or may be one of a single cell: "Section 3"."""
    return is_row(line) or 0 < len(line) <= _MOST_HEADING_CHARS


def table_head(lines: Sequence[str], head: str = "") -> str:
    """The row that likely says what the columns are of the table that the last of these lines is in; "" for none.

    It is the first of those with the most cells: notes above a table fill fewer. Below a row of a single cell, a table
    goes on if the next row has digits; else that one is the head of another.

    Args:
        lines: The lines up to one of the table's.
        head: That of the table that the first line is in, or "".
    """
    table = list(takewhile(may_stand_in_table, reversed(lines)))[::-1]
    found = head if len(table) == len(lines) else ""
    for at, (are_rows, run) in enumerate(groupby(table, is_row)):
        rows = list(run)
        if not are_rows:
            found = found if len(rows) == 1 else ""
        elif not found or (at and not re.search(r"\d", rows[0])):
            found = max(rows, key=_cells)
    return found if len(found) <= _MOST_HEAD_CHARS else ""


def head_of_part(part: str, text: str) -> str:
    """The head of the table that has several rows in a part of a text; "" for none, or if the part has it."""
    lines = text.split("\n")
    rows = [at for at, line in enumerate(lines) if is_row(line) and line in part]
    head = table_head(lines[: rows[0] + 1]) if len(rows) > 1 else ""
    return "" if head in part else head


def _cells(row: str) -> int:
    """How many cells of a row have words. The first counts without: the corner of a table is often empty."""
    return 1 + sum(bool(cell.strip()) for cell in row.split("|")[1:])
