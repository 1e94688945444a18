"""`satchel user`: what needs no server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.requirements import requirement


@requirement("people:names")
@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../x",
        "a/b",
        "Ann",
        "a b",
        "a\nb",
        "ä",
        "-a",
        "_a",
        "1a",
        "a" * 33,
        "a\0b",
        "a;b",
        "$HOME",
    ],
)
def test_a_hostile_name_is_refused_before_anything_is_written(run: Run, tmp_path: Path, name: str) -> None:
    done = run("user", "add", "--", name, stdin="a long password")
    assert done.code == 2
    assert not (tmp_path / "home").exists()
