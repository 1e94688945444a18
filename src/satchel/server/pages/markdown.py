"""Markdown as HTML without scripts or remote resources, for text from models, tools and pages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from itertools import pairwise
from typing import Any, Final

import nh3
from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import OptionsDict
from markupsafe import Markup, escape
from mdit_py_plugins.dollarmath import dollarmath_plugin
from mdit_py_plugins.footnote import footnote_plugin
from mdit_py_plugins.texmath import texmath_plugin

_MOST_CHARS: Final = 400_000
"""Longer texts are shown as plain text. This many take about a second, and no answer of a model is longer."""
_TAGS: Final = {
    "a", "blockquote", "br", "code", "del", "div", "em", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre", "s",
    "section", "span", "strong", "sup", "table", "tbody", "td", "th", "thead", "tr", "ul",
    "math", "mfrac", "mi", "mn", "mo", "mover", "mphantom", "mroot", "mrow", "mspace", "msqrt", "mstyle", "msub",
    "msubsup", "msup", "mtable", "mtd", "mtext", "mtr", "munder", "munderover",
}  # fmt: skip
"""No `img`, which would tell its server who reads, and what an injected prompt put into its address; no `style`,
`form`, `input`, `iframe`, `svg`."""
_CLASSES: Final = {"scroll", "num", "footnotes"}
_COLOUR: Final = re.compile(r"c-[a-z][a-z0-9]?")
"""The class of a piece of code."""
_MOST_COLOURED: Final = 40_000
"""Characters of a block of code that gets colours, which take 1 ms for 1,000."""
_MOST_MATHS: Final = 2_000
"""Characters of a formula. No formula is longer, and converting takes longer than in proportion."""
_MATHS_ATTRIBUTES: Final = {
    "columnalign", "display", "displaystyle", "fence", "form", "linethickness", "lspace", "mathvariant", "maxsize",
    "minsize", "movablelimits", "rspace", "scriptlevel", "separator", "stretchy", "width",
}  # fmt: skip
_TASK: Final = re.compile(r"\[([ xX])\]\s+")
_LINK: Final = re.compile(r"(https?|mailto):", re.IGNORECASE)
_ADDRESS: Final = re.compile(r"\bhttps?://[^\s<>]*[^\s<>.,:;!?'\"*_)\]}]\)?")
"""An address among words, without what ends a sentence. linkify-it takes seconds for a long list of addresses."""
_LANGUAGE: Final = re.compile(r"[\w+#.-]{1,30}")
_HEADINGS: Final = {"h1": "h3", "h2": "h4", "h3": "h5", "h4": "h6", "h5": "h6", "h6": "h6"}
"""The page itself uses the first two levels."""


def markdown(text: str) -> Markup:
    """The HTML of a text in Markdown: CommonMark with tables, strikethrough, task lists, footnotes, formulas in LaTeX
    (`$…$`, `$$…$$`, `\\(…\\)`, `\\[…\\]`), and colours in code.
    """
    text = _clean(text)
    if len(text) > _MOST_CHARS:
        return Markup('<pre tabindex="0"><code>{}</code></pre>').format(text)
    return _html(text)


def code_blocks(text: str) -> list[tuple[str, str]]:
    """The blocks of code of a text, in order: language, or "", and code."""
    return [
        (token.info.strip().partition(" ")[0].lower(), token.content)
        for token in _parser().parse(_clean(text))
        if token.type in ("fence", "code_block")
    ]


class MarkdownBlocks:
    """Markdown that is still being written: gives, after each piece, only the blocks that may have changed.

    A block is settled once no unfinished line can change it. References to links that are defined later
    are the exception, so the whole text is shown once it is complete.
    """

    def __init__(self) -> None:
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
            "section": {"class"},
            "span": {"class"},
            **{tag: _MATHS_ATTRIBUTES for tag in _TAGS if tag.startswith("m")},
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
        return value if value in _CLASSES or _COLOUR.fullmatch(value) else None
    return value


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    texmath_plugin(parser, delimiters="brackets")
    dollarmath_plugin(parser, allow_space=False, allow_digits=False, double_inline=True)
    footnote_plugin(parser)
    parser.core.ruler.push("tasks", _tick)
    for kind in ("math_inline", "math_inline_double", "math_block", "math_block_label"):
        parser.add_render_rule(kind, _formula)
    for kind in ("footnote_ref", "footnote_open", "footnote_close", "footnote_anchor"):
        parser.add_render_rule(kind, _FOOTNOTES[kind])
    parser.core.ruler.push("ranks", _lower_ranks)
    parser.core.ruler.push("addresses", _link_addresses)
    parser.core.ruler.push("alignment", _align)
    parser.add_render_rule("fence", _fence)
    parser.add_render_rule("image", _image)
    parser.add_render_rule("table_open", _table_open)
    parser.add_render_rule("table_close", _table_close)
    return parser


def _lower_ranks(state: Any) -> None:
    """Headings below the page's own, none more than one below the heading before it, as readers by ear expect."""
    rank = 2
    for token in state.tokens:
        if token.type == "heading_open":
            rank = min(int(_HEADINGS[token.tag][1]), rank + 1)
        if token.tag in _HEADINGS:
            token.tag = f"h{rank}"


def _link_addresses(state: Any) -> None:
    for token in state.tokens:
        if token.type == "inline" and "://" in token.content:
            linked: list[Token] = []
            depth = 0
            for child in token.children:
                depth += child.nesting if child.type.startswith("link_") else 0
                linked += _with_links(child) if child.type == "text" and not depth else [child]
            token.children = linked


def _with_links(text: Token) -> Iterator[Token]:
    """A piece of text with its addresses as links."""
    end = 0
    for found in _ADDRESS.finditer(text.content):
        # "(see https://example.org/a)" ends before its parenthesis, ".../a_(b)" after.
        address = found[0] if "(" in found[0] else found[0].removesuffix(")")
        yield Token("text", "", 0, content=text.content[end : found.start()])
        yield Token("link_open", "a", 1, attrs={"href": address})
        yield Token("text", "", 0, content=address)
        yield Token("link_close", "a", -1)
        end = found.start() + len(address)
    yield Token("text", "", 0, content=text.content[end:])


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
    return f"<pre{name}><code>{_coloured(token.content, language)}</code></pre>\n"


def _coloured(code: str, language: str) -> str:
    """The code as HTML, its words in classes where the language is known."""
    if not language or len(code) > _MOST_COLOURED:
        return escapeHtml(code)
    # Imported on demand: a page without code needs none of it.
    from pygments import highlight  # noqa: PLC0415
    from pygments.formatters import HtmlFormatter  # noqa: PLC0415
    from pygments.lexers import get_lexer_by_name  # noqa: PLC0415
    from pygments.util import ClassNotFound  # noqa: PLC0415

    try:
        lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return escapeHtml(code)
    return str(highlight(code, lexer, HtmlFormatter(nowrap=True, classprefix="c-")))


def _formula(_: RendererHTML, tokens: Sequence[Token], at: int, __: OptionsDict, ___: Any) -> str:
    """A formula as MathML; as it was written if it can't be read."""
    token = tokens[at]
    is_block = token.type != "math_inline"
    source = token.content.strip()
    if len(source) <= _MOST_MATHS:
        from latex2mathml.converter import convert  # noqa: PLC0415  as Pygments

        # The library raises errors of its own, and others for what it didn't foresee.
        with suppress(Exception):
            # It copies the text of \text as it is, tags included.
            source = source.replace("<", r"\lt ").replace(">", r"\gt ")
            shown = convert(source, display="block" if is_block else "inline")
            return f'<div class="scroll">{shown}</div>\n' if token.block else str(shown)
    mark = "$$" if is_block else "$"
    written = f"<code>{escapeHtml(f'{mark}{token.content.strip()}{mark}')}</code>"
    return f"<p>{written}</p>\n" if token.block else written


def _tick(state: Any) -> None:
    """Items of task lists, without form fields, which nobody could tick."""
    for before, token in pairwise(state.tokens):
        if token.type == "inline" and before.type == "paragraph_open" and token.children:
            first = token.children[0]
            if (
                first.type == "text"
                and (task := _TASK.match(first.content))
                and _is_first_of_item(state, token)
            ):
                first.content = ("☐ " if task[1] == " " else "☑ ") + first.content[task.end() :]


def _is_first_of_item(state: Any, token: Token) -> bool:
    at = state.tokens.index(token)
    return at >= 2 and bool(state.tokens[at - 2].type == "list_item_open")


def _footnote_ref(_: RendererHTML, tokens: Sequence[Token], at: int, __: OptionsDict, ___: Any) -> str:
    return f"<sup>{int(tokens[at].meta['id']) + 1}</sup>"


_FOOTNOTES: Final[dict[str, Any]] = {
    "footnote_ref": _footnote_ref,
    # No links: several answers of a page would have the same ids.
    "footnote_open": lambda *_: "<li>",
    "footnote_close": lambda *_: "</li>\n",
    "footnote_anchor": lambda *_: "",
}


def _image(renderer: RendererHTML, tokens: Sequence[Token], at: int, options: OptionsDict, env: Any) -> str:
    """A picture as a link to it, or its name where there is none to follow."""
    token = tokens[at]
    words = escape(renderer.renderInlineAsText(token.children, options, env) or "picture")
    address = str(token.attrGet("src") or "")
    return f'<a href="{escape(address)}">{words}</a>' if _LINK.match(address) else str(words)


def _table_open(*_: Any) -> str:
    return '<div class="scroll"><table>\n'


def _table_close(*_: Any) -> str:
    return "</table></div>\n"
