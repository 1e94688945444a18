"""Markdown on a terminal: where a block of a streamed text ends, and how a block is laid out."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it.rules_inline import StateInline

    from satchel.tui.markdown_elements import TerminalMarkdown

_MOST_TAIL = 20_000
"""When an unfinished block, such as a very long list, has this many characters, its lines count as finished."""

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_FORMULA = re.compile(r"\\\(.+?\\\)|\\\[.+?\\\]|\$\$.+?\$\$", re.DOTALL)
_ITEM = re.compile(r"(?:[-*+]|\d{1,9}[.)])(?:\s|$)")


def laid_out(text: str, *, is_dark: bool = True) -> TerminalMarkdown:
    """A text for rich to print. `is_dark` says which of the terminal's colours code has."""
    # Imported on demand: it takes a tenth of a second, and only terminals need it.
    from markdown_it import MarkdownIt  # noqa: PLC0415

    from satchel.tui.markdown_elements import TerminalMarkdown  # noqa: PLC0415

    # No hyperlinks: the address is shown next to the link's text, so that a model can't hide it.
    markdown = TerminalMarkdown("", code_theme="ansi_dark" if is_dark else "ansi_light", hyperlinks=False)
    # rich drops HTML including its content (`List<int>` would become `List`), and the addresses of pictures.
    reader = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"]).disable("image")
    reader.inline.ruler.before("escape", "formula", _formula)
    markdown.parsed = reader.parse(text)
    return markdown


def _formula(state: StateInline, silent: bool) -> bool:  # the parser's
    """A formula stays as it was written: its backslashes are no Markdown."""
    found = _FORMULA.match(state.src, state.pos)
    if found is None:
        return False
    if not silent:
        state.push("text", "", 0).content = found[0]
    state.pos = found.end()
    return True


def first_settled(text: str, *, is_complete: bool) -> int:
    """The length of the first block if another one follows, so that it is final; otherwise 0.

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
