"""Data to stdout, the rest to stderr, and nothing that steers a terminal."""

from __future__ import annotations

import io
import json

import pytest

from satchel.cli.output import json_text, say, say_rows, tell, wrapped
from satchel.messages import Usage
from satchel.runtime.lines import counted, usage_line, usage_table
from satchel.sessions import UsageRow
from satchel.tui.plain_text import plain
from satchel.tui.terminal_text import notice_text, one_line
from tests.cli.screens import Screen
from tests.requirements import requirement


def test_control_characters_become_marks_and_lines_and_tabs_stay() -> None:
    assert plain("a\x1b[31mb\r\nc\td\x00\x9b\u202e\u2066") == "a\ufffd[31mb\nc\td\ufffd\ufffd\ufffd\ufffd"


@pytest.mark.parametrize("text", ["plain", "ß日本🎒", "\x1b[31m \x9b \u202e", "\ud800", "line\nbreak"])
def test_json_says_the_same_and_is_harmless(text: str) -> None:
    written = json_text({"text": text})
    assert json.loads(written) == {"text": text}
    assert not any(c in written for c in "\x1b\x9b\u202e\ud800\n")


def test_json_keeps_letters_readable() -> None:
    assert json_text(["Zürich"]) == '["Zürich"]'


def test_a_terminal_gets_lines_broken_between_words_and_a_pipe_gets_them_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    text = "✗ model: it can't be reached at\n  http://127.0.0.1:12345/a/long/path/that/is/copied and more"
    assert wrapped(text, Screen()).splitlines() == [  # type: ignore[arg-type]
        "✗ model: it can't be reached",
        "  at",
        "  http://127.0.0.1:12345/a/long/path/that/is/copied",
        "    and more",
    ]
    assert wrapped(text, io.StringIO()) == text


@requirement("cli:streams")
def test_data_and_messages_take_their_own_streams(capsys: pytest.CaptureFixture[str]) -> None:
    say("data \x1b[0m")
    tell("message \x1b[0m")
    captured = capsys.readouterr()
    # A pipe gets its data unchanged.
    assert (captured.out, captured.err) == ("data \x1b[0m\n", "message \ufffd[0m\n")


def test_columns_are_as_wide_as_their_cells_and_no_wider_than_half_a_screen(
    capsys: pytest.CaptureFixture[str],
) -> None:
    say_rows(
        [("mcp__files__list_directory", "mcp", "Lists."), ("bash", "builtin", ""), ("x" * 60, "mcp", "Far.")]
    )
    say_rows([])
    assert capsys.readouterr().out.splitlines() == [
        f"{'mcp__files__list_directory':48}  mcp      Lists.",
        f"{'bash':48}  builtin",
        f"{'x' * 60}  mcp      Far.",
    ]


def test_a_cost_that_nobody_knows_is_not_part_of_a_total_without_a_word() -> None:
    def row(model: str, cost_usd: float | None) -> UsageRow:
        used = Usage(input_tokens=1, output_tokens=1, cost_usd=cost_usd)
        return UsageRow(
            session_id="s", day="2026-11-22", purpose="gate", provider="p", model=model, calls=1, usage=used
        )

    total, note = usage_table([row("priced", 0.5), row("free", None)]).splitlines()[-2:]
    assert total.endswith("$0.5000")
    assert note == "The cost of p:free is unknown and not part of the total."
    assert "unknown" not in usage_table([row("priced", 0.5), row("cheap", 0.1)])


def test_long_and_broken_text_fits_one_line() -> None:
    assert one_line("a\n\n b\tc") == "a b c"
    assert one_line("x" * 300, 10) == "x" * 9 + "…"
    assert "\x1b" not in one_line("a\x1b[2Jb")


@pytest.mark.parametrize(("number", "words"), [(0, "0 turns"), (1, "1 turn"), (2_000, "2,000 turns")])
def test_one_of_a_thing_has_no_plural(number: int, words: str) -> None:
    assert counted(number, "turn") == words
    assert counted(number, "memory", "memories") == words.replace("turns", "memories").replace(
        "turn", "memory"
    )


@pytest.mark.parametrize(
    ("usage", "line"),
    [
        (Usage(), ""),
        (Usage(input_tokens=1234, output_tokens=5), "1,234 tokens in, 5 out"),
        (
            Usage(input_tokens=10, output_tokens=5, cache_read_tokens=7, cost_usd=0.01234, estimated=True),
            "about 10 tokens in (7 cached), 5 out · $0.0123",
        ),
    ],
)
def test_what_was_spent_fits_one_line(usage: Usage, line: str) -> None:
    assert usage_line(usage) == line


@requirement("capabilities:earned:skill")
def test_a_notice_is_one_line_but_for_a_skill_that_is_proposed() -> None:
    steps = "\n".join(f"- Step {number} is taken with great care." for number in range(50))
    assert notice_text("capabilities", f"Keep\nit?\n\n{steps}") == f"Keep it?\n\n{steps}"
    assert notice_text("mcp", f"Down.\n\n{steps}")[:23] == "Down. - Step 0 is taken"
