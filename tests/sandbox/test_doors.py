"""The box holds for trees that nobody thought of. `make doors SEEDS=0:20000` tries more of them."""

from __future__ import annotations

import os
import subprocess

import pytest

from satchel.sandbox.bwrap import find
from satchel.sandbox.selfrun import ASIDE
from tests.requirements import requirement
from tests.sandbox.doors import find_doors, user
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
            cwd=ROOT, env={**environ, "HOME": str(folder), "TMPDIR": str(folder)}, capture_output=True,
        )  # fmt: skip
    said = ended.stdout.decode()
    assert ended.returncode == 0, said + ended.stderr.decode()[-2000:]
    assert f"{backend}: {SHORT} trees" in said


ORDINARY = {
    "git": (
        "git init -q src && cd src && echo a > .gitignore && mkdir .github && echo x > .github/ci.yml && git add . && "
        "git -c user.name=A -c user.email=a@b commit -qm one && cd .. && git clone -q src there && cd there && "
        "git checkout -qb new && git remote add up ../src && git worktree add -q ../tree && git -C ../tree status",
        "cd there && git fetch -q up && git -c user.name=A -c user.email=a@b commit -q --allow-empty -m two",
    ),
    "python": (
        "python3 -m venv --without-pip .venv && .venv/bin/python -c 'print(1)'",
        "mkdir -p .pytest_cache/v .mypy_cache/3 .tox/py .hypothesis && echo 1 > .coverage && echo 3.11 > .python-version",
    ),
    "builds": (
        "mkdir -p node_modules/x/.github target/debug/.fingerprint build/.cmake .next/server .gradle/8 .terraform/x src && "
        "for f in node_modules/x/.npmrc node_modules/.package-lock.json target/.rustc_info.json target/debug/.cargo-lock "
        "build/.ninja_log src/.main.o.cmd .terraform.lock.hcl .env; do echo 1 > $f; done",
        "rm -rf target node_modules && mv src lib",
    ),
}


@requirement("bash:boxed:works")
@pytest.mark.anyio
@pytest.mark.parametrize("commands", ORDINARY.values(), ids=ORDINARY)
async def test_ordinary_work_leaves_nothing_that_is_set_aside(commands: tuple[str, ...]) -> None:
    if find("bwrap") is None:
        pytest.skip("needs bubblewrap")
    async with user("bubblewrap") as scene:
        work = scene.work("0")
        trying = scene.begin(work)
        for command in commands:
            assert (await trying.run(f"({command}) 2>&1 && echo works")).endswith("works\n")
        assert [str(path) for path in work.rglob(f"*{ASIDE}*")] == []
        assert await trying.end() == []


@requirement("bash:boxed:explained")
@pytest.mark.anyio
async def test_what_is_set_aside_keeps_its_content_and_what_was_there_or_agreed_to_stays() -> None:
    if find("bwrap") is None:
        pytest.skip("needs bubblewrap")
    async with user("bubblewrap") as scene:
        work = scene.work("0")
        for name in ("sub/.vscode/tasks.json", "sub/.npmrc", ".envrc", "sub/AGENTS.md"):
            (work / name).parent.mkdir(parents=True, exist_ok=True)
            (work / name).write_text("mine")
        trying = scene.begin(work, ("free/.claude",))
        said = await trying.run("echo planted > .envrc")
        assert "Read-only file system" in said
        await trying.run(
            "echo planted > sub/.vscode/launch.json; echo planted >> sub/.npmrc; mkdir -p free/.claude free/.zed; "
            "echo planted > free/.claude/x; echo planted > free/.zed/x; mv sub moved; git init -q new; "
            "git -C new config core.fsmonitor /bin/planted",
            trying.rules(),
        )
        assert {str(path.relative_to(work)) for path in work.rglob(f"*{ASIDE}*")} == {
            "moved/.vscode/launch.json.from-sandbox", "moved/.npmrc.from-sandbox", "free/.zed.from-sandbox",
            "new/.git/config.from-sandbox",
        }  # fmt: skip
        for name, text in {
            "moved/.vscode/tasks.json": "mine", "moved/.npmrc.from-sandbox": "mineplanted\n", "moved/AGENTS.md": "mine",
            "free/.claude/x": "planted\n", ".envrc": "mine",
        }.items():  # fmt: skip
            assert (work / name).read_text() == text
        assert "planted" in (work / "new/.git/config.from-sandbox").read_text()
        kept = (work / "new/.git/config").read_text()
        assert "filemode" in kept
        assert "fsmonitor" not in kept
        # What the user changes between two commands is the user's.
        (work / "moved/.npmrc").write_text("new")
        await trying.run("true")
        assert (work / "moved/.npmrc").read_text() == "new"
        assert await trying.end() == []
