"""The list of attempts on the workspace box holds, on every backend, as root and as a user."""

from __future__ import annotations

import os
import subprocess
import sys

import anyio
import pytest

from satchel.sandbox.bwrap import find
from tests.attacks import box_attempts, box_attempts_4a, box_attempts_4b
from tests.attacks.box_attempts import Try
from tests.requirements import requirement
from tests.sandbox.doors import Scene, user
from tests.sandbox.ordinary import ROOT, folder_of_a_user, python_of_a_user

LISTS = {
    "earlier": box_attempts.ATTEMPTS,
    "fourth": box_attempts_4a.ATTEMPTS,
    "fourth, left behind": box_attempts_4b.ATTEMPTS,
}
"""By the red team."""


async def won(backend: str, which: str, chosen: str = "") -> list[str]:
    """The attempts that win, each with what got out: `python -m tests.attacks.test_box_attempts BACKEND LIST WORDS`."""
    found = []
    async with user(backend) as scene:
        for number, (name, attempt) in enumerate(LISTS[which].items()):
            if chosen in name and backend != attempt.but:
                found += [f"{name}: {each}" for each in await _try(scene, str(number), attempt)]
    return found


async def _try(scene: Scene, number: str, attempt: Try) -> list[str]:
    work = scene.work(number)
    _as_user(scene, attempt.before)
    trying = scene.begin(work, attempt.write)
    trying.box = trying.rules()
    said = [await trying.run(command) for command in attempt.commands]
    _as_user(scene, attempt.outside)
    ran = ["its program ran"] if scene.ran.exists() else []
    scene.ran.unlink(missing_ok=True)
    return [*ran, *(["PRIVATE was printed"] if "PRIVATE" in "".join(said) else []), *await trying.end()]


def _as_user(scene: Scene, command: str) -> None:
    environ = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(scene.home), "H": str(scene.home)}
    environ |= {"O": str(scene.top / "other"), "RAN": str(scene.ran)}
    (work,) = scene.top.glob("trees*/work")
    subprocess.run(["/bin/sh", "-c", command], cwd=work, env=environ, capture_output=True, timeout=60)


@requirement("bash:boxed:hostile")
@pytest.mark.anyio
@pytest.mark.parametrize("which", LISTS)
async def test_no_attempt_gets_out_of_the_box(which: str) -> None:
    if find("bwrap") is None:
        pytest.skip("needs bubblewrap")
    assert await won("bubblewrap", which) == []


@requirement("bash:boxed:hostile")
@pytest.mark.parametrize("which", LISTS)
@pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
def test_no_attempt_gets_out_of_the_box_of_an_ordinary_user(backend: str, which: str) -> None:
    if backend == "bubblewrap" and (os.geteuid() != 0 or find("bwrap") is None):
        pytest.skip("needs bubblewrap; for an ordinary user, the test above has tried it")
    python, environ = python_of_a_user()
    with folder_of_a_user() as folder:
        ended = subprocess.run(
            [*python, "-m", "tests.attacks.test_box_attempts", backend, which],
            cwd=ROOT, env={**environ, "HOME": str(folder), "TMPDIR": str(folder)}, capture_output=True,
        )  # fmt: skip
    assert ended.returncode == 0, ended.stderr.decode()[-2000:]
    assert ended.stdout.decode() == f"{len(LISTS[which])} attempts on {backend}\n"


if __name__ == "__main__":
    for each in anyio.run(won, sys.argv[1], sys.argv[2], " ".join(sys.argv[3:])):
        print(each)
    print(f"{len(LISTS[sys.argv[2]])} attempts on {sys.argv[1]}")
