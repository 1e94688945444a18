"""Trust in a project covers what was there when the user looked at it, and nothing that came later."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from satchel.config import (
    grants_of,
    load,
    mask_address,
    mask_arguments,
    masked_command,
    read_project,
    trust,
    trust_record,
)
from satchel.config.trusted import ProjectContent
from tests.requirements import requirement

CONFIG = '[agent]\nmode = "auto"\n\n[mcp_servers.x]\ncommand = "npx"\nargs = ["-y", "server"]\n'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    (folder / ".satchel" / "tools").mkdir(parents=True)
    (folder / ".satchel" / "config.toml").write_text(CONFIG)
    (folder / ".satchel" / "tools" / "build").write_text("#!/bin/sh\n")
    (folder / "AGENTS.md").write_text("Be brief.")
    trust(tmp_path / "home", folder)
    return folder


def config(folder: Path, text: str) -> None:
    (folder / ".satchel" / "config.toml").write_text(text)


def swapped(name: str) -> Callable[[Path], None]:
    """Puts a link in the place of a file; what it leads to says something else."""

    def change(folder: Path) -> None:
        other = folder / "other"
        other.write_text('[agent]\nmode = "bypass"\n')
        (folder / name).unlink()
        (folder / name).symlink_to(other)

    return change


@requirement("config:project:content")
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda folder: config(folder, CONFIG.replace("auto", "bypass")), ".satchel/config.toml has changed"),
        (
            lambda folder: config(folder, CONFIG.replace('"server"', '"evil"')),
            ".satchel/config.toml has changed",
        ),
        (lambda folder: config(folder, CONFIG.replace("npx", "./npx")), ".satchel/config.toml has changed"),
        (lambda folder: config(folder, CONFIG + "env = { A = 'b' }\n"), ".satchel/config.toml has changed"),
        (
            lambda folder: config(folder, CONFIG + '[[permissions]]\naction = "allow"\ntool = "bash"\n'),
            ".satchel/config.toml has changed",
        ),
        (lambda folder: config(folder, "model = 'none'\n" + CONFIG), ".satchel/config.toml has changed"),
        (swapped(".satchel/config.toml"), ".satchel/config.toml has changed"),
        (swapped("AGENTS.md"), "AGENTS.md has changed"),
        (lambda folder: (folder / "AGENTS.md").write_text("Be  brief."), "AGENTS.md has changed"),
        (lambda folder: (folder / "AGENTS.md").write_text("Be brief.\0"), "AGENTS.md has changed"),
        (lambda folder: config(folder, f"# A comment.\n{CONFIG}"), ""),
        (lambda folder: config(folder, CONFIG.replace(" = ", "=")), ""),
        (lambda folder: (folder / "AGENTS.md").unlink(), ""),
        (lambda folder: os.utime(folder / "AGENTS.md", (1, 1)), ""),
        (lambda folder: (folder / ".satchel" / "tools" / "new").write_text("#!/bin/sh\n"), ""),
    ],
)
def test_a_project_that_changed_since_it_was_trusted_is_ignored_until_it_is_trusted_again(
    project: Path, tmp_path: Path, change: Callable[[Path], object], reason: str
) -> None:
    change(project)
    settings = load({}, cwd=project, home=tmp_path / "home")
    assert settings.project_changes == ((reason,) if reason else ())
    assert settings.project_trusted is not bool(reason)
    if reason:
        assert (settings.agent.mode, settings.mcp_servers, settings.permissions) == ("ask", {}, ())
        assert (settings.project_instructions, settings.project_tools) == ("", {})
        trust(tmp_path / "home", project)
        assert load({}, cwd=project, home=tmp_path / "home").project_trusted


@requirement("config:project:content")
def test_what_came_after_the_user_looked_is_not_trusted_with_it(project: Path, tmp_path: Path) -> None:
    seen = read_project(project)
    config(project, CONFIG.replace("auto", "bypass"))
    trust(tmp_path / "home", project, seen)
    settings = load({}, cwd=project, home=tmp_path / "home")
    assert (settings.project_trusted, settings.agent.mode) == (False, "ask")


@requirement("config:project:content")
def test_folders_that_were_trusted_before_contents_were_kept_are_looked_at_again(
    project: Path, tmp_path: Path
) -> None:
    (tmp_path / "home" / "trusted.json").write_text(json.dumps({"folders": [str(project)]}))
    settings = load({}, cwd=project, home=tmp_path / "home")
    assert settings.project_changes == (".satchel/config.toml is new", "AGENTS.md is new")


@requirement("config:project:content")
def test_instructions_that_lead_out_of_the_project_are_not_read(tmp_path: Path) -> None:
    project = tmp_path / "work"
    project.mkdir()
    (tmp_path / "credentials").write_text("secret")
    (project / "AGENTS.md").symlink_to(tmp_path / "credentials")
    trust(tmp_path / "home", project)
    settings = load({}, cwd=project, home=tmp_path / "home")
    assert (settings.project_trusted, settings.project_instructions) == (True, "")


@requirement("config:project:grants")
def test_what_trust_grants_is_named_in_full_and_what_is_new_is_marked(project: Path, tmp_path: Path) -> None:
    more = '[web]\nenabled = false\n[[permissions]]\naction = "allow"\ntool = "bash(git *)"\n'
    config(project, CONFIG.replace('"server"', '"a server\\u202e"') + more)
    (project / ".satchel" / "tools" / "new\nbuild").write_text("#!/bin/sh\n")
    found = grants_of(read_project(project), trust_record(tmp_path / "home", project))
    assert [(grant.kind, grant.text, grant.is_new) for grant in found] == [
        ("setting", 'agent.mode = "auto"', True),
        ("setting", "web.enabled = false", True),
        ("server", 'x: runs npx -y "a server\\u202e"', True),
        ("rule", "allow bash(git *)", True),
        ("tool", ".satchel/tools/build", False),
        ("tool", ".satchel/tools/new\\nbuild", True),
        ("instructions", "AGENTS.md, 1 line, becomes part of every prompt", False),
    ]
    assert isinstance(read_project(project), ProjectContent)


@requirement("config:secrets:arguments")
@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["-y", "@scope/server", "--root", "."], ["-y", "@scope/server", "--root", "."]),
        (["--api-key", "hunter2"], ["--api-key", "***"]),
        (["--api-key=hunter2"], ["--api-key=***"]),
        (["--token", "hunter2", "--root", "x"], ["--token", "***", "--root", "x"]),
        (["-e", "TOKEN=hunter2"], ["-e", "TOKEN=***"]),
        (["-e", "PLAIN=hunter2"], ["-e", "PLAIN=***"]),
        (["--header", "Authorization: Bearer hunter2"], ["--header", "Authorization: Bearer ***"]),
        (["-c", "export API_KEY=hunter2; run"], ["-c", "export API_KEY=***; run"]),
        (["sk-ant-abcdef123456"], ["***"]),
        (["0123456789abcdef0123"], ["***"]),
        (["postgresql://ann:hunter2@h/db"], ["postgresql://ann:***@h/db"]),
        (["https://h/mcp?key=hunter2#x"], ["https://h/mcp?***"]),
        (["--url=https://hunter2@h/"], ["--url=https://***@h/"]),
        (["https://h/0123456789abcdef0123/mcp"], ["https://h/***/mcp"]),
        (["--password", "--verbose"], ["--password", "--verbose"]),
        (['{"password": "hunter2"}'], ['{"password": "***"}']),
    ],
)
def test_arguments_of_programs_are_shown_without_secrets(arguments: list[str], shown: list[str]) -> None:
    assert mask_arguments(arguments) == shown


def test_a_command_is_shown_as_it_would_be_typed() -> None:
    shown = masked_command("sh", ["-c", "echo a; exit 3", "--token", "hunter2", "-e", "KEY=x", "", "a b"])
    assert shown == "sh -c 'echo a; exit 3' --token *** -e KEY=*** '' 'a b'"


def test_an_address_keeps_its_host_alone() -> None:
    assert mask_address("https://a:b@h:8/x?y#z") == "https://a:***@h:8/x?***"
