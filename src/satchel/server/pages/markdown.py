"""Markdown as HTML without scripts or remote resources, for text from models, tools and pages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import nh3
from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import OptionsDict
from markupsafe import Markup, escape

__all__ = ["MarkdownBlocks", "markdown"]

_MOST_CHARS: Final = 400_000
"""Longer texts are shown as plain text. This many take about a second, and no answer of a model is longer."""
_TAGS: Final = {
    "a", "blockquote", "br", "code", "del", "div", "em", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre", "s",
    "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
}  # fmt: skip
"""No `img`, which would tell its server who reads, and what an injected prompt put into its address; no `style`,
`form`, `input`, `iframe`, `svg`."""
_CLASSES: Final = {"scroll", "num"}
_LINK: Final = re.compile(r"(https?|mailto):", re.IGNORECASE)
_LANGUAGE: Final = re.compile(r"[\w+#.-]{1,30}")
_HEADINGS: Final = {"h1": "h3", "h2": "h4", "h3": "h5", "h4": "h6", "h5": "h6", "h6": "h6"}
"""The page itself uses the first two levels."""


def markdown(text: str) -> Markup:
    """The HTML of a text in Markdown (CommonMark with tables and strikethrough)."""
    text = _clean(text)
    if len(text) > _MOST_CHARS:
        return Markup('<pre tabindex="0"><code>{}</code></pre>').format(text)
    return _html(text)


class MarkdownBlocks:
    """Markdown that is still being written: gives, after each piece, only the blocks that may have changed.

    A block is settled once no unfinished line can change it. References to links that are defined later
    are the exception, so the whole text is shown once it is complete.
    """

    def __init__(self) -> None:
        """Nothing is written yet."""
        self._tail = ""
        self._first = 0
        self._is_after_return = False

    @property
    def open_chars(self) -> int:
        """How much text is not settled: what the next piece costs."""
        return len(self._tail)

    def feed(self, text: str) -> tuple[Sequence[tuple[int, Markup]], int]:
        """Take a piece of text.

        Returns:
            The blocks that may have changed, each with its place from 0, and how many blocks there are now. A reader
            drops what it has beyond that.
        """
        self._tail += self._without_returns(text)
        # Token.map counts lines as markdown-it does: it ends them at "\n" alone.
        lines = re.findall(r"[^\n]*\n|[^\n]+", self._tail)
        starts = [
            token.map[0]
            for token in _parser().parse(self._tail)
            if token.level == 0 and token.map and token.nesting >= 0
        ]
        if not starts:
            return [], self._first
        ends = [*starts[1:], len(lines)]
        changed = [
            (self._first + place, _html("".join(lines[start:end])))
            for place, (start, end) in enumerate(zip(starts, ends, strict=True))
        ]
        count = self._first + len(starts)
        is_half_line = starts[-1] == len(lines) - 1 and not self._tail.endswith("\n")
        settled = len(starts) - (2 if is_half_line else 1)
        if settled > 0:
            self._first += settled
            self._tail = "".join(lines[starts[settled] :])
        return changed, count

    def _without_returns(self, text: str) -> str:
        """The text with one kind of line end; a carriage return and its line feed may come in two pieces."""
        rest = text.removeprefix("\n") if self._is_after_return else text
        if text:
            self._is_after_return = text.endswith("\r")
        return _clean(rest)


def _clean(text: str) -> str:
    """Text that can be written in UTF-8, with one kind of line end."""
    text = text.encode("utf-8", "replace").decode()
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _html(text: str) -> Markup:
    return Markup(_cleaner().clean(_parser().render(text)))


@cache
def _cleaner() -> nh3.Cleaner:
    return nh3.Cleaner(
        tags=_TAGS,
        attributes={
            "a": {"href", "title"},
            "div": {"class"},
            "ol": {"start"},
            "pre": {"data-lang"},
            "td": {"class"},
            "th": {"class"},
        },
        attribute_filter=_kept,
        url_schemes={"http", "https", "mailto"},
        link_rel="noopener noreferrer nofollow",
        set_tag_attribute_values={
            "a": {"target": "_blank"},
            "pre": {"tabindex": "0"},
            "div": {"tabindex": "0"},
        },
    )


def _kept(_: str, name: str, value: str) -> str | None:
    """An attribute's value, or None to leave it out."""
    if name == "href":
        # No links to this server: a model's text must not look like part of the program.
        return value if _LINK.match(value) else None
    if name == "class":
        return value if value in _CLASSES else None
    return value


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    parser.core.ruler.push("ranks", _lower_ranks)
    parser.core.ruler.push("alignment", _align)
    parser.add_render_rule("fence", _fence)
    parser.add_render_rule("image", _image)
    parser.add_render_rule("table_open", _table_open)
    parser.add_render_rule("table_close", _table_close)
    return parser


def _lower_ranks(state: Any) -> None:
    for token in state.tokens:
        token.tag = _HEADINGS.get(token.tag, token.tag)


def _align(state: Any) -> None:
    """Columns of numbers by a class, because the pages allow no style attribute."""
    for token in state.tokens:
        if token.type in ("th_open", "td_open"):
            is_right = token.attrs.pop("style", "") == "text-align:right"
            if is_right:
                token.attrSet("class", "num")


def _fence(_: RendererHTML, tokens: Sequence[Token], at: int, __: OptionsDict, ___: Any) -> str:
    token = tokens[at]
    language = token.info.strip().partition(" ")[0]
    name = f' data-lang="{escape(language)}"' if _LANGUAGE.fullmatch(language) else ""
    return f"<pre{name}><code>{escapeHtml(token.content)}</code></pre>\n"


def _image(renderer: RendererHTML, tokens: Sequence[Token], at: int, options: OptionsDict, env: Any) -> str:
    """A picture as a link to it."""
    token = tokens[at]
    words = renderer.renderInlineAsText(token.children, options, env) or "picture"
    return f'<a href="{escape(token.attrGet("src") or "")}">{escape(words)}</a>'


def _table_open(*_: Any) -> str:
    return '<div class="scroll"><table>\n'


def _table_close(*_: Any) -> str:
    return "</table></div>\n"
