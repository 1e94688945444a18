"""The box holds for trees that nobody thought of. `make doors SEEDS=0:20000` tries more of them."""

from __future__ import annotations

import os
import subprocess

import pytest

from satchel.sandbox.bwrap import find
from tests.requirements import requirement
from tests.sandbox.doors import find_doors
from tests.sandbox.ordinary import ROOT, folder_of_a_user, python_of_a_user

SHORT = 24
"""Trees of each backend in the ordinary tests."""


@requirement("bash:boxed:hostile")
@pytest.mark.anyio
async def test_nothing_gets_out_of_the_box_by_a_tree_that_another_box_wrote() -> None:
    if find("bwrap") is None:
        pytest.skip("needs bubblewrap")
    assert await find_doors(range(SHORT), "bubblewrap") == []


@requirement("bash:boxed:hostile")
@pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
def test_nothing_gets_out_of_the_box_of_an_ordinary_user(backend: str) -> None:
    if backend == "bubblewrap" and (os.geteuid() != 0 or find("bwrap") is None):
        pytest.skip("needs bubblewrap; for an ordinary user, the test above has tried it")
    python, environ = python_of_a_user()
    with folder_of_a_user() as folder:
        ended = subprocess.run(
            [*python, "-m", "tests.sandbox.doors", f"{SHORT}:{2 * SHORT}", backend],
            cwd=ROOT, env={**environ, "HOME": str(folder), "TMPDIR": str(folder)}, capture_output=True, timeout=280,
        )  # fmt: skip
    said = ended.stdout.decode()
    assert ended.returncode == 0, said + ended.stderr.decode()[-2000:]
    assert f"{backend}: {SHORT} trees" in said
