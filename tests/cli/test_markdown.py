"""An answer on its way to the screen: the same at the end however it came, and steady in between."""

from __future__ import annotations

import io
from itertools import pairwise

import hypothesis.strategies as st
import pytest
from hypothesis import given

from satchel.cli.markdown import MarkdownStream, PlainStream
from tests.cli.screens import Screen
from tests.requirements import requirement

ANSWER = """# A plan

First some **bold** words, then `code`, in a paragraph that is long enough to be wrapped on this narrow screen.

1. one
2. two

   with a second paragraph
3. three

```python
def greet(name: str) -> str:

    return f"Hello {name}"
```

| dish | cook |
|------|------|
| soup | Ann  |

- last
- words

> quoted

The end.
"""


def shown(pieces: list[str], *, height: int = 40, tick_s: float = 1.0) -> Screen:
    screen = Screen(columns=50, height=height)
    now = 0.0

    def monotonic_s() -> float:
        nonlocal now
        now += tick_s
        return now

    stream = MarkdownStream(screen, monotonic_s=monotonic_s, size=lambda: (50, height))  # type: ignore[arg-type]
    for piece in pieces:
        stream.feed(piece)
    stream.finish()
    return screen


WHOLE = shown([ANSWER]).text


def test_markdown_is_laid_out_for_reading() -> None:
    assert "First some bold words, then code" in WHOLE
    assert "**" not in WHOLE
    assert "```" not in WHOLE
    assert WHOLE.count("Hello {name}") == 1
    assert " 3. three" in WHOLE


@requirement("cli:markdown:lists")
@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("3. three\n4. four\n", [" 3. three", " 4. four"]),
        ("1) one\n2) two\n", [" 1) one", " 2) two"]),
        (
            "9. nine\n10. ten\n    1. in\n    2. too\n",
            ["  9. nine", " 10. ten", "      1. in", "      2. too"],
        ),
        ("1. one\n\n```\ncode\n```\n\n2. two\n", [" 1. one", "", "code", "", " 2. two"]),
        ("- [x] done\n- [ ] open\n- plain [x]\n", [" ☑ done", " ☐ open", " • plain [x]"]),
        ("1. [ ] open\n", [" 1. ☐ open"]),
        ("# Title\n", ["Title"]),
        (
            "```python\nif True:\n\n    x = '" + "ab " * 16 + "'\n```",
            ["if True:", "", "    x = '" + "ab " * 13 + "ab", " ab ab '"],
        ),
        ("```\n" + "日本" * 15 + "\n```", ["日本" * 12 + "日", "本日本日本"]),
        ("|a|b|\n|-|-|\n|one|two|\n", [" a    b", " ────────", " one  two"]),
    ],
)
def test_blocks_keep_what_they_say(text: str, lines: list[str]) -> None:
    assert shown([text]).text.splitlines() == lines


@requirement("cli:markdown:lists")
def test_a_table_that_is_too_wide_becomes_a_block_for_each_row() -> None:
    head = [f"heading{number}" for number in range(6)]
    rows = [[f"value-{row}-{column}" for column in range(6)] for row in range(2)]
    text = "\n".join("|" + "|".join(cells) + "|" for cells in (head, ["-"] * 6, *rows))
    blocks = shown([text]).text.split("\n\n")
    assert [block.splitlines() for block in blocks] == [
        [f"{name}: {value}" for name, value in zip(head, row, strict=True)] for row in rows
    ]


@given(cuts=st.lists(st.integers(0, len(ANSWER)), max_size=40))
def test_however_the_pieces_come_the_same_is_on_the_screen_at_the_end(cuts: list[int]) -> None:
    marks = [0, *sorted(cuts), len(ANSWER)]
    assert shown([ANSWER[a:b] for a, b in pairwise(marks)]).text == WHOLE


def test_every_word_appears_as_it_comes_and_settled_lines_are_not_touched_again() -> None:
    pieces = [ANSWER[i : i + 3] for i in range(0, len(ANSWER), 3)]
    screen = shown(pieces)
    assert screen.text == WHOLE
    # Each piece rewrites its own last line, a wrapped one or a table a few; never the whole answer.
    assert screen.rewritten < 2 * len(pieces)


def test_a_block_taller_than_the_screen_scrolls_and_is_never_reached_back_for() -> None:
    text = "\n".join(f"- point number {number}" for number in range(60))
    pieces = [text[i : i + 7] for i in range(0, len(text), 7)]
    lines = shown(pieces, height=8).text.splitlines()
    assert [line.strip() for line in lines] == [f"• point number {number}" for number in range(60)]


def test_painting_waits_for_the_clock_and_the_end_does_not() -> None:
    screen = shown(["One ", "two ", "three."], tick_s=0.0)
    assert screen.text == "One two three."


def test_what_would_steer_a_terminal_is_shown_as_a_mark() -> None:
    screen = shown(["Look: \x1b[2J\x1b]0;owned\x07 gone\u202e"])
    assert "\x1b" not in screen.text
    assert "Look:" in screen.text


def test_nothing_said_leaves_nothing() -> None:
    assert shown([]).text == ""
    assert shown(["\n \n"]).text == ""


@pytest.mark.parametrize("pieces", [["a", "b\n"], ["ab"], ["a\n", "b"]])
def test_plain_text_goes_out_as_it_comes_and_ends_its_line(pieces: list[str]) -> None:
    out = io.StringIO()
    stream = PlainStream(out)
    for piece in pieces:
        stream.feed(piece)
    stream.finish()
    stream.finish()
    assert out.getvalue() == "".join(pieces).rstrip("\n") + "\n"


def test_html_is_shown_unchanged_and_an_image_with_its_address() -> None:
    answer = "A List<int> in <div>.\n\n<details>\n<summary>More</summary>\nInside\n</details>\n\n![fig](http://x/y.png)\n"
    assert shown([answer]).text.split("\n\n") == [
        "A List<int> in <div>.",
        "<details> <summary>More</summary> Inside\n</details>",
        "!fig (http://x/y.png)",
    ]


def test_formulas_keep_their_backslashes() -> None:
    formulas = ("\\(a \\neq 0\\)", "\\[x \\\\ y\\]", "$$\\frac{1}{2}$$")
    assert "\n".join(shown([f"So {' and '.join(formulas)}, or \\*this\\*.\n"]).lines).split() == (
        f"So {' and '.join(formulas)}, or *this*.".split()
    )
