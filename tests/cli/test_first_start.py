"""The first start: without a configuration the program asks, writes a file, and goes by it from then on."""

from __future__ import annotations

from pathlib import Path

from satchel.config import load
from tests.cli.programs import PROGRAM
from tests.cli.terminals import CTRL_D, terminal
from tests.requirements import requirement


@requirement("config:initial")
def test_the_answers_become_a_file_that_loads_and_that_the_next_start_goes_by(tmp_path: Path) -> None:
    with terminal(tmp_path, program=PROGRAM) as screen:
        screen.answer("Model [", "none")
        screen.answer("[Y/n]: ", "n")
        screen.see(str(tmp_path / "home" / "config.toml"))
        screen.see("›")
        screen.type(CTRL_D)
        assert screen.leave() == 0
    settings = load({}, cwd=tmp_path, home=tmp_path / "home")
    assert (settings.model, settings.memory.capture) == ("none", False)
    with terminal(tmp_path) as screen:
        assert "Model [" not in screen.see("›")
