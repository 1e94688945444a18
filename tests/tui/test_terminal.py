"""The screen of the real program on a real terminal."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.programs import PROGRAM
from tests.cli.terminals import CTRL_D, ENTER, terminal
from tests.requirements import requirement


@requirement("tui:screen")
@pytest.mark.parametrize(
    ("columns", "lines", "environ"),
    [(80, 24, {}), (60, 24, {"NO_COLOR": "1"})],
    ids=["80x24", "60x24-no-colour"],
)
def test_a_conversation_on_a_real_terminal(
    tmp_path: Path, columns: int, lines: int, environ: dict[str, Any]
) -> None:
    (tmp_path / "home").mkdir(mode=0o700)
    (tmp_path / "home" / "config.toml").write_text('model = "none"\n')
    more: dict[str, Any] = {"SATCHEL_TERMINAL_SCREEN": "auto", **environ}
    with terminal(tmp_path, "chat", columns=columns, lines=lines, program=PROGRAM, **more) as screen:
        # Before the program reads, which asks the terminal its colour.
        screen.type("The kite hangs on the roof")
        screen.see("No language model is set up")
        screen.type(ENTER)
        screen.see("Noted.")
        screen.type(CTRL_D)
        screen.see("To go on: satchel chat --session")
        assert screen.leave() == 0
    assert "\x1b[?1049h" in screen.raw  # a screen of its own, which leaves the terminal as it was
    assert screen.raw.rindex("\x1b[?1049l") > screen.raw.rindex("\x1b[?1049h")
    assert (re.search(r"\x1b\[[\d;]*38;[25];", screen.raw) is not None) is (not environ)


@requirement("tui:fallback")
def test_plain_prints_line_by_line(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir(mode=0o700)
    (tmp_path / "home" / "config.toml").write_text('model = "none"\n')
    with terminal(tmp_path, "chat", "--plain", SATCHEL_TERMINAL_SCREEN="auto") as screen:
        screen.see("/help")
        screen.type(CTRL_D)
        assert screen.leave() == 0
    assert "\x1b[?1049h" not in screen.raw
