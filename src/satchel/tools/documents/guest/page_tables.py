"""Finds tables on a page of a PDF, which has no cells, by where its words stand. It runs in the sandbox, as `main`.

Words are taken in the order of the file. So the columns of a newspaper stay columns, and a cell of several lines stays
whole where the file has it in one piece.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

_DOTS = r"\.(?: ?\.){4,}"
_WORD = re.compile(rf"{_DOTS}|(?:(?!{_DOTS})[^\s\ufffe])+\ufffe?")
"""A leader is one word. `\\ufffe` is PDFium's hyphen at the end of a line."""
_GAP = 0.75
"""Between two cells, in heights of the line (1.2 times the size of the letters); a blank is about 0.25."""
_LEADING = 0.7
"""At most between two lines of a cell."""
_MOST_APART = 2.5
"""Between two rows of a table, in heights of a line."""
_MOST_CELL_CHARS = 400
_MOST_HEADING_CHARS = 60
"""Of a line of a single cell that may stand in a table, such as "Section 3"."""
_MOST_HEAD_CHARS = 300
_LEAST_ROWS = 3
_LEAST_COLUMNS = 3
"""A list whose numbers stand apart has two, and so has a page of two columns."""


@dataclass(slots=True)
class _Cell:
    """Words that stand together. Lengths are points; upwards is more.

    Attributes:
        low: The lower edge of its last line, and of all.
        line_top: The upper edge of its last line.
        start, end: Its place in the text of the page.
    """

    text: str
    left: float
    right: float
    low: float
    top: float
    line_top: float
    start: int
    end: int
    word_right: float = field(init=False)

    def __post_init__(self) -> None:
        self.word_right = self.right

    @property
    def middle(self) -> float:
        return (self.left + self.right) / 2

    def takes(self, word: _Cell) -> bool:
        """Whether a word that comes next goes on with this cell; it is then added."""
        height = max(word.top - word.low, self.line_top - self.low)
        beside = _are_level(word, self) and (
            self.word_right - 0.3 * height < word.left < max(self.word_right + _GAP * height, self.right)
        )
        below = (
            word.left < self.right
            and word.right > self.left
            and -height / 2 < self.low - word.top < _LEADING * height
        )
        if not beside and not below:
            return False
        self.text += ("" if self.text.endswith("\ufffe") else " ") + word.text
        self.left, self.right = min(self.left, word.left), max(self.right, word.right)
        self.line_top = word.top if below else max(self.line_top, word.top)
        self.low = word.low if below else min(self.low, word.low)
        self.top, self.word_right, self.end = max(self.top, word.top), word.right, word.end
        return True


def _are_level(word: _Cell, cell: _Cell) -> bool:
    """Whether a word stands on the last line of a cell."""
    shared = min(word.top, cell.line_top) - max(word.low, cell.low)
    return shared > 0.5 * min(word.top - word.low, cell.line_top - cell.low)


_Row = list[_Cell]


class Tables:
    """Reads the pages of one document, one after another."""

    def __init__(self) -> None:
        self._columns = 0
        self._head = ""

    def read(self, text: str, textpage: Any) -> str:
        """The text of a page, in which a table has a line for each row, with bars between the cells.

        A head of several rows is one line, and stands again where a table goes on upon the next page.

        Args:
            text: As PDFium gives it for the page.
            textpage: The page (`pypdfium2.PdfTextPage`).
        """
        pieces: list[str] = []
        at = 0
        above, self._columns = self._columns, 0
        for run in _runs(_rows(_words(text, textpage))):
            rows, lines, columns = _table(run)
            if not rows:
                continue
            if (
                not pieces
                and columns == above
                and re.search(r"\d", lines[0])
                and not re.search(r"\d", self._head)
            ):
                lines.insert(0, self._head)
            pieces += [text[at : rows[0][0].start], "\n".join(lines)]
            at = rows[-1][-1].end
            self._columns, self._head = columns, lines[0]
        return "".join([*pieces, text[at:]])


def _words(text: str, textpage: Any) -> Iterator[_Cell]:
    from pypdfium2 import raw

    box = raw.FS_RECTF()
    # PDFium counts UTF-16 units.
    beyond = [at for at, letter in enumerate(text) if letter > "\uffff"]
    for word in _WORD.finditer(text):
        edges = []
        for at in (word.start(), word.end() - 1):
            index = raw.FPDFText_GetCharIndexFromTextIndex(textpage, at + bisect_left(beyond, at))
            if raw.FPDFText_GetLooseCharBox(textpage, index, box):
                edges.append((box.left, box.right, box.bottom, box.top))
        if len(edges) == 2:
            lefts, rights, lows, tops = zip(*edges, strict=True)
            top = max(tops)
            yield _Cell(word[0], min(lefts), max(rights), min(lows), top, top, word.start(), word.end())


def _rows(words: Iterator[_Cell]) -> Iterator[_Row]:
    """Rows, of which most are a paragraph: one cell."""
    row: _Row = []
    above: _Row = []
    for word in words:
        if row and row[-1].takes(word):
            continue
        if row and _is_beside(word, row, above):
            row.append(word)
            continue
        if row:
            yield row
        row, above = [word], row
    if row:
        yield row


def _is_beside(word: _Cell, row: _Row, above: _Row) -> bool:
    """Whether a word begins the next cell of a row: it is right of it, not below it, and below the row above."""
    height = word.top - word.low
    return (
        word.left > row[-1].right - 0.1 * height
        and word.top > min(cell.low for cell in row) + 0.3 * height
        and all(
            word.top < cell.low + 0.5 * height
            for cell in above
            if cell.left < word.right and cell.right > word.left
        )
    )


def _runs(rows: Iterator[_Row]) -> Iterator[list[_Row]]:
    """Rows that may be a table: several cells each, and headings of single cells in between."""
    run: list[_Row] = []
    ends = 0
    for row in rows:
        if run and _is_apart(run[-1], row):
            yield run[:ends]
            run = []
        several = len(row) > 1 and all(len(cell.text) <= _MOST_CELL_CHARS for cell in row)
        if several or (run and len(row) == 1 and len(row[0].text) <= _MOST_HEADING_CHARS):
            run.append(row)
            ends = len(run) if several else ends
        elif run:
            yield run[:ends]
            run = []
    if run:
        yield run[:ends]


def _is_apart(above: _Row, row: _Row) -> bool:
    """Whether a row is far from the one before it, as the foot of a page and the next column are."""
    top, most = max(cell.top for cell in row), _MOST_APART * (row[0].line_top - row[0].low)
    return min(cell.low for cell in above) - top > most or top - max(cell.top for cell in above) > most


def _table(rows: Sequence[_Row]) -> tuple[Sequence[_Row], list[str], int]:
    """The rows of a table from its head on, a line for each, and how many columns it has; empty if it is none."""
    bounds = _bounds(rows)
    cells = []
    for row in rows:
        texts = [""] * (len(bounds) + 1)
        for cell in row:
            at = bisect_left(bounds, cell.middle)
            texts[at] = f"{texts[at]} {cell.text}".strip()
        cells.append(texts)
    filled = [1 + sum(map(bool, texts[1:])) for texts in cells]  # the corner of a table is often empty
    if sum(count >= _LEAST_COLUMNS for count in filled) < _LEAST_ROWS:
        return [], [], 0
    first = filled.index(max(filled))
    while first and len(rows[first - 1]) > 1:
        under, over = rows[first], rows[first - 1]
        placed = list(_over(over, bounds, rows))
        head = [f"{one} {text}".strip() for one, text in zip(placed, cells[first], strict=True)]
        gap = min(cell.low for cell in over) - max(cell.top for cell in under)
        is_lost = any(cell.text not in placed for cell in over)
        if is_lost or gap > under[0].top - under[0].low or sum(map(len, head)) > _MOST_HEAD_CHARS:
            break
        first -= 1
        rows, cells = (
            [*rows[:first], over + under, *rows[first + 2 :]],
            [*cells[:first], head, *cells[first + 2 :]],
        )
    return rows[first:], [" | ".join(texts).strip().rstrip("| ") for texts in cells[first:]], len(bounds) + 1


def _bounds(rows: Sequence[_Row]) -> list[float]:
    """Where one column ends and the next begins: where most rows have a gap, and few a cell over both."""
    cells = [cell for row in rows if len(row) > 1 for cell in row]
    gaps = [(cell.right, following.left) for row in rows for cell, following in pairwise(row)]
    filled = [event for cell in cells for event in ((cell.left, -1), (cell.right, 1))]
    bounds = []
    while gaps:
        events = sorted([event for left, right in gaps for event in ((left, 1), (right, -1))] + filled)
        counts = accumulate(change for _, change in events)
        most, left, right = max(
            (count, at, after)
            for count, ((at, _), (after, _)) in zip(counts, pairwise(events), strict=False)
            if at < after
        )
        if most < 2:
            break
        bound = (left + right) / 2
        bounds.append(bound)
        gaps = [gap for gap in gaps if not gap[0] < bound < gap[1]]
    return sorted(bounds)


def _over(row: _Row, bounds: Sequence[float], rows: Sequence[_Row]) -> Iterator[str]:
    """For each column, the cell of a row that stands over it or over the middle of several; "" for none."""
    edges = [min(one[0].left for one in rows), *bounds, max(one[-1].right for one in rows)]
    for left, right in pairwise(edges):
        distance, at = min((abs(cell.middle - (left + right) / 2), at) for at, cell in enumerate(row))
        beside = [abs(row[at].middle - cell.middle) for cell in row[max(0, at - 1) : at + 2]]
        yield row[at].text if distance <= max(beside) / 2 else ""
