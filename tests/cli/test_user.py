"""`satchel user`: what needs no server."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from satchel.runtime.people import People
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
        "server",
    ],
)
def test_a_hostile_name_is_refused_before_anything_is_written(run: Run, tmp_path: Path, name: str) -> None:
    done = run("user", "add", "--", name, stdin="a long password")
    assert done.code == 2
    assert not (tmp_path / "home").exists()


@requirement("people:login")
def test_tokens_that_are_made_at_once_all_work(tmp_path: Path) -> None:
    People(tmp_path).add("ann", "a long password")
    ready = Barrier(8)

    def made(_: int) -> str:
        ready.wait(60)
        return People(tmp_path).make_token("ann")

    with ThreadPoolExecutor(8) as pool:
        tokens = list(pool.map(made, range(8)))
    assert all(People(tmp_path).with_token(token) for token in tokens)
