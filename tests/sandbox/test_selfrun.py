"""Which names are settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from satchel.sandbox.named import follow, roots_of
from satchel.sandbox.selfrun import has_settings
from satchel.sandbox.tree import look
from satchel.tools.box import Box


@pytest.mark.parametrize(
    "path",
    [
        ".venvx/a", ".x-cache.y/a", ".cache.d/a", ".env.d/a", ".gitignore.d/a", "sub/.vscode", ".github/copilot-instructions.md",
        ".github/hooks/x.json", ".gitlab/duo/mcp.json", "opencode.jsonc", "sub/AGENT.md", "mise/config.toml", "_vimrc", ".git/hooks/x",
    ],
)  # fmt: skip
def test_a_name_that_is_not_exactly_a_known_one_is_a_setting(path: str) -> None:
    assert has_settings(path.split("/"))


@pytest.mark.parametrize(
    "path",
    [".venv/.x", ".pytest_cache/.x", ".env", ".env.local", ".gitignore", ".github/workflows/ci.yml", ".github/CODEOWNERS", "README.md"],
)  # fmt: skip
def test_known_names_are_none(path: str) -> None:
    assert not has_settings(path.split("/"))


def test_who_may_write_a_folder_may_not_write_settings_in_it_and_who_may_write_a_setting_may() -> None:
    assert Box(write=("/n",)).lacks(Box(write=("/n/a", "/n/.envrc", "/n/sub/.vscode"))).write == (
        "/n/.envrc",
        "/n/sub/.vscode",
    )
    assert not Box(write=("/n/.vscode",)).lacks(Box(write=("/n/.vscode/tasks.json",)))


def test_what_git_writes_itself_and_words_that_are_no_files_of_the_workspace_name_nothing(
    tmp_path: Path,
) -> None:
    top = str(tmp_path)
    for name in ("main", "origin", "code", "src", "tools", ".git/objects", ".git/refs"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "tools/clean").write_text("")
    (tmp_path / ".git/config").write_text(
        '[branch "main"]\n\tremote = origin\n\tmerge = main\n[filter "x"]\n\tclean = sh -c "exec $HOME/../tools/clean -v"\n'
        "[alias]\n\tb = !make -C src\n[core]\n\teditor = code\n"
    )
    led = follow(roots_of({top: look(top)}, [("core.pager", "code -x")]), [top])
    assert led.ends == {f"{top}/tools/clean"}
