"""The command line inside the test's own process, for what needs no process of its own."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal

from satchel.cli import main
from tests.cli.programs import Ran, environ_for
from tests.models.loopback import Answer, Asked, Loopback, loopback

Run = Callable[..., Ran]


@contextmanager
def serving(answers: Sequence[Answer] | Callable[[Asked], Answer]) -> Iterator[Loopback]:
    """The endpoint on loopback, in a thread beside the test."""
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(loopback(answers)) as server:
        yield server


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command in an empty home, without a terminal."""
    work = tmp_path / "work"
    work.mkdir()

    def run_here(
        *arguments: str,
        stdin: str | bytes = b"",
        server: Loopback | None = None,
        cwd: Path = work,
        environ: Mapping[str, str] | None = None,
    ) -> Ran:
        cwd.mkdir(exist_ok=True)
        monkeypatch.chdir(cwd)
        for name in list(os.environ):
            monkeypatch.delenv(name)
        for name, value in environ_for(tmp_path, server, **(environ or {})).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(
            sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode() if isinstance(stdin, str) else stdin))
        )
        code = main(arguments)
        captured = capsys.readouterr()
        return Ran(code=code, out=captured.out, err=captured.err)

    return run_here
