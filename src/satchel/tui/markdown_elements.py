"""Replaces rich's layout of some Markdown blocks, because it loses information.

rich drops the dot of "3.", shows "[x]" literally, wraps code between words, and squeezes wide tables until their words
break. Imported when the first text is laid out: rich takes a tenth of a second.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, ClassVar

from rich import markdown
from rich.cells import cell_len, chop_cells
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderResult
from rich.markdown import Markdown, MarkdownContext, MarkdownElement
from rich.segment import Segment
from rich.syntax import Syntax
from rich.text import Text

if TYPE_CHECKING:
    from markdown_it.token import Token

_TASK = re.compile(r"\[([ xX])\]\s")
_MOST_WORD = 12
"""A table's column is at least as wide as its longest word, up to this many characters. Longer words may be
broken."""
_CELL_GAP = 2


class _Heading(markdown.Heading):
    """A heading aligned with the text."""

    LEVEL_ALIGN: ClassVar[dict[str, JustifyMethod]] = {}


class _Code(markdown.CodeBlock):
    """Code whose lines begin in the first column and are broken at the edge of the screen, as a terminal does."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip().expandtabs(4)
        text = Syntax(code, self.lexer_name, theme=self.theme).highlight(code)
        text.rstrip()  # highlighting adds a line break
        for line in text.split("\n", allow_blank=True):
            pieces = chop_cells(line.plain, options.max_width) or [""]
            for piece in line.divide(list(accumulate(map(len, pieces[:-1])))):
                piece.no_wrap, piece.overflow, piece.end = True, "ignore", ""
                yield piece
                yield Segment.line()


class _Item(markdown.ListItem):
    """A list item; "[x]" at its beginning becomes its bullet."""

    bullet = "•"
    has_content = False

    def on_child_close(self, context: MarkdownContext, child: MarkdownElement) -> bool:
        task = _TASK.match(child.text.plain) if isinstance(child, markdown.Paragraph) else None
        if task and isinstance(child, markdown.Paragraph) and not self.has_content:
            self.bullet = "☐" if task[1] == " " else "☑"
            child.text = child.text[task.end() :]
        self.has_content = True
        return super().on_child_close(context, child)

    def render_with(
        self, mark: str, style: str, console: Console, options: ConsoleOptions
    ) -> Iterator[Segment]:
        """The item after its mark, with the following lines aligned below the first."""
        width = cell_len(mark)
        look = console.get_style(style, default="none")
        inner = options.update(width=max(1, options.max_width - width))
        for number, line in enumerate(console.render_lines(self.elements, inner, style=self.style)):
            yield Segment(mark if number == 0 else " " * width, look)
            yield from line
            yield Segment.line()


class _List(markdown.ListElement):
    """A list; a numbered one keeps its numbers and its delimiter."""

    delimiter = "."

    @classmethod
    def create(cls, markdown: Markdown, token: Token) -> _List:  # noqa: ARG003 - rich calls it so
        made = cls(token.type, int(token.attrs.get("start", 1)))
        made.delimiter = token.markup or "."
        return made

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        items = [item for item in self.items if isinstance(item, _Item)]
        if self.list_type == "bullet_list_open":
            for item in items:
                yield from item.render_with(f" {item.bullet} ", "markdown.item.bullet", console, options)
            return
        start = 1 if self.list_start is None else self.list_start
        width = len(f"{start + len(items) - 1}{self.delimiter}") + 1
        for number, item in enumerate(items, start):
            task = "" if item.bullet == "•" else f"{item.bullet} "
            mark = f"{number}{self.delimiter}".rjust(width) + f" {task}"
            yield from item.render_with(mark, "markdown.item.number", console, options)


class _Table(markdown.TableElement):
    """A table, or a block of `heading: value` for each row if the screen is too narrow for its words."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        headings = [cell.content for cell in self.header.row.cells] if self.header and self.header.row else []
        rows = [[cell.content for cell in row.cells] for row in self.body.rows] if self.body else []
        columns = list(zip(headings, *rows, strict=False))
        needed = sum(max(map(_longest_word, column)) + _CELL_GAP for column in columns)
        if not columns or needed <= options.max_width:
            yield from super().__rich_console__(console, options)
            return
        for number, row in enumerate(rows):
            if number:
                yield Text("")
            for heading, cell in zip(headings, row, strict=False):
                yield Text.assemble((f"{heading.plain}: ", "markdown.table.header"), cell)


def _longest_word(text: Text) -> int:
    return min(_MOST_WORD, max((cell_len(word) for word in text.plain.split()), default=1))


class TerminalMarkdown(Markdown):
    """Markdown that uses the classes above."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _Heading,
        "fence": _Code,
        "code_block": _Code,
        "bullet_list_open": _List,
        "ordered_list_open": _List,
        "list_item_open": _Item,
        "table_open": _Table,
    }
