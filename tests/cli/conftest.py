"""The command line inside the test's own process, for what needs no process of its own."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from satchel.cli import main
from tests.cli.programs import Ran, environ_for

Run = Callable[..., Ran]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command in an empty home, without a terminal."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)

    def run_here(*arguments: str, stdin: str = "", **environ: str) -> Ran:
        for name in list(os.environ):
            monkeypatch.delenv(name)
        for name, value in environ_for(tmp_path, **environ).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        code = main(arguments)
        captured = capsys.readouterr()
        return Ran(code=code, out=captured.out, err=captured.err)

    return run_here
