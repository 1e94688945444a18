"""`satchel service` with a systemctl that notes what it is asked, and `satchel completion`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.cli.conftest import Run
from tests.requirements import requirement

SYSTEMCTL = """#!/bin/sh
echo "$@" >> "$HOME/asked"
test ! -e "$HOME/refuse" || { echo "Failed to connect to bus: No such file or directory" >&2; exit 1; }
case "$*" in *is-active*) echo active;; *is-enabled*) echo enabled;; esac
"""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "systemctl").write_text(SYSTEMCTL)
    (programs / "systemctl").chmod(0o755)
    (tmp_path / "systemd").mkdir()
    return {
        "PATH": f"{programs}:/usr/bin:/bin",
        "XDG_RUNTIME_DIR": str(tmp_path),
        "SATCHEL_HOME": str(tmp_path / "my home 100%"),
    }


@requirement("service:unit")
def test_the_unit_serves_this_home_and_has_no_keys(run: Run, tmp_path: Path, environ: dict[str, str]) -> None:
    with_key = {**environ, "ANTHROPIC_API_KEY": "sk-ant-api03-secret"}
    ran = run("service", "install", environ=with_key)
    assert (ran.code, ran.out) == (0, ""), ran.err
    unit = tmp_path / ".config" / "systemd" / "user" / "satchel.service"
    text = unit.read_text()
    assert text.splitlines()[0].startswith("# Made by")
    assert f'Environment="SATCHEL_HOME={tmp_path}/my home 100%%"' in text
    assert text.count(" serve\n") == 1
    secrets = tmp_path / "my home 100%" / "service.env"
    assert secrets.stat().st_mode & 0o777 == 0o600
    assert "sk-ant" not in text + secrets.read_text()
    asked = (tmp_path / "asked").read_text().splitlines()
    assert [line.removeprefix("--user --no-pager ") for line in asked] == [
        "daemon-reload", "enable satchel.service", "restart satchel.service", "is-active satchel.service",
    ]  # fmt: skip
    if shutil.which("systemd-analyze") is not None:
        checked = subprocess.run(
            ["systemd-analyze", "--user", "verify", str(unit)], capture_output=True, text=True, check=False
        )
        assert "satchel.service" not in checked.stderr
    # Installed again, the file with keys stays as the user left it.
    secrets.write_text("ANTHROPIC_API_KEY=x\n")
    assert run("service", "install", environ=environ).code == 0
    assert secrets.read_text() == "ANTHROPIC_API_KEY=x\n"
    found = json.loads(run("service", "status", "--json", environ=environ).out)
    assert (found["installed"], found["active"], found["enabled"], found["url"]) == (
        True,
        "active",
        "enabled",
        None,
    )
    assert run("service", "remove", environ=environ).code == 0
    assert not unit.exists()
    assert run("service", "remove", environ=environ).code == 3


@requirement("service:refuses")
def test_without_systemd_or_with_somebody_elses_unit_nothing_is_written(
    run: Run, tmp_path: Path, environ: dict[str, str]
) -> None:
    nowhere = run("service", "install", environ={**environ, "PATH": str(tmp_path)})
    assert nowhere.code == 2
    assert "There is no systemd on this machine" in nowhere.err
    for runtime in ("", str(tmp_path / "empty")):
        no_session = run("service", "install", environ={**environ, "XDG_RUNTIME_DIR": runtime})
        assert (no_session.code, "No systemd runs for this user" in no_session.err) == (2, True)
    assert not (tmp_path / ".config").exists()
    unit = tmp_path / ".config" / "systemd" / "user" / "satchel.service"
    unit.parent.mkdir(parents=True)
    unit.write_text("[Unit]\n")
    assert "was not made by Satchel" in run("service", "install", environ=environ).err
    assert run("service", "remove", environ=environ).code == 3
    assert unit.read_text() == "[Unit]\n"
    unit.unlink()
    (tmp_path / "refuse").write_text("")
    refused = run("service", "install", environ=environ)
    assert (refused.code, "failed" in refused.err) == (1, True)
    assert run("service", "status", environ=environ).out.startswith(f"service: installed  ({unit})\n")


@requirement("agents:connect:claude-code")
def test_other_agents_call_the_program_by_a_name_that_every_shell_finds(run: Run, tmp_path: Path) -> None:
    here = Path(sys.executable).with_name("satchel")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "satchel").symlink_to(here)

    def hook_with(path: Path) -> str:
        ran = run("connect", "claude-code", "--dry-run", "--json", environ={"PATH": f"{path}:/usr/bin:/bin"})
        change: str = json.loads(ran.out)["changes"][0]["diff"]
        (command,) = {line.partition(": ")[2] for line in change.splitlines() if " hook" in line}
        return command.strip('",')

    assert hook_with(programs).endswith(" satchel hook")
    # An environment is on the PATH only of the shell that uses it.
    assert hook_with(here.parent).endswith(f" {here} hook")


@requirement("cli:completion")
def test_tab_completes_commands_settings_and_conversations(run: Run, tmp_path: Path) -> None:
    run("ask", "My bike is green.", environ={"SATCHEL_MODEL": "none"})
    [session] = json.loads(run("session", "list", "--json").out)

    def tab(*words: str) -> list[str]:
        asked = {"COMP_WORDS": " ".join(["satchel", *words]), "COMP_CWORD": str(len(words))}
        ran = run(environ={**asked, "_SATCHEL_COMPLETE": "bash_complete"})
        return [line.partition(",")[2] for line in ran.out.splitlines()]

    assert {"memory", "model", "mcp-server"} <= set(tab("m"))
    assert tab("config", "set", "memory.profile") == ["memory.profile_tokens"]
    assert tab("session", "show", session["id"][:3]) == [session["id"]]
    assert "--model" in tab("ask", "--mo")
    for shell, word in (("bash", "complete -o"), ("zsh", "compdef"), ("fish", "complete ")):
        assert word in run("completion", shell).out


@requirement("cli:install")
def test_the_wheel_has_every_file_of_the_package_and_the_program(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(build, cwd=root, check=True, capture_output=True, timeout=200)
    with ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        has = set(wheel.namelist())
        entry = next(name for name in has if name.endswith("entry_points.txt"))
        assert "satchel = satchel." in wheel.read(entry).decode()
    files = {path for path in (root / "src" / "satchel").rglob("*") if path.is_file()}
    wanted = {str(path.relative_to(root / "src")) for path in files if "__pycache__" not in path.parts}
    assert wanted - has == set()
