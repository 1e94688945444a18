"""Entries of MCP servers: what they take, where they count, and that nothing secret in them is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from satchel.config import McpServerSettings, Settings, load, show_settings, trust
from satchel.errors import ConfigError
from tests.requirements import requirement

TEXT = """
[mcp_servers.files]
command = "mcp-files"
args = ["--root", "."]
env = { TOKEN = "hunter2" }

[mcp_servers.web]
url = "https://user:hunter2@mcp.example.com/mcp?key=hunter2"
headers = { Authorization = "Bearer hunter2" }
timeout_s = 5
"""


def read(tmp_path: Path, text: str = "", project_text: str = "", *, trusted: bool = True) -> Settings:
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir(exist_ok=True)
    (project / ".satchel").mkdir(parents=True, exist_ok=True)
    (home / "config.toml").write_text(text)
    (project / ".satchel" / "config.toml").write_text(project_text)
    if trusted:
        trust(home, project)
    return load({}, cwd=project, home=home)


def test_a_server_is_a_program_or_an_address(tmp_path: Path) -> None:
    settings = read(tmp_path, TEXT)
    assert settings.mcp_servers == {
        "files": McpServerSettings(
            name="files", command="mcp-files", args=("--root", "."), env={"TOKEN": "hunter2"}
        ),
        "web": McpServerSettings(
            name="web",
            url="https://user:hunter2@mcp.example.com/mcp?key=hunter2",
            headers={"Authorization": "Bearer hunter2"},
            timeout_s=5.0,
        ),
    }


@requirement("mcp:environment")
def test_values_of_variables_headers_and_addresses_are_never_shown(tmp_path: Path) -> None:
    settings = read(tmp_path, TEXT)
    shown = {entry.key: entry.value for entry in show_settings(settings) if entry.key.startswith("mcp_")}
    assert shown == {
        "mcp_servers.files.command": "mcp-files",
        "mcp_servers.files.args": ["--root", "."],
        "mcp_servers.files.env": {"TOKEN": "***"},
        "mcp_servers.web.url": "https://user:***@mcp.example.com/mcp?***",
        "mcp_servers.web.headers": {"Authorization": "***"},
        "mcp_servers.web.timeout_s": 5.0,
    }
    assert "hunter2" not in repr(settings)


def test_a_projects_servers_count_only_where_it_is_trusted_and_take_the_place_of_the_users_whole(
    tmp_path: Path,
) -> None:
    theirs = '[mcp_servers.files]\ncommand = "other"\n'
    assert read(tmp_path, TEXT, theirs, trusted=False).mcp_servers["files"].command == "mcp-files"
    found = read(tmp_path, TEXT, theirs).mcp_servers["files"]
    # The user's token does not go to the project's program.
    assert found == McpServerSettings(name="files", command="other", base=tmp_path / "project")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[mcp_servers.x]\n",
            "HOME/config.toml, line 1: [mcp_servers.x] needs a command (a program to start) or a url, "
            "but has neither.",
        ),
        (
            '[mcp_servers.x]\ncommand = "a"\nurl = "http://h/mcp"\n',
            "HOME/config.toml, line 1: [mcp_servers.x] needs a command (a program to start) or a url, but has both.",
        ),
        (
            '[mcp_servers.x]\ncommand = "a"\nenv = { KEY = 5 }\n',
            "HOME/config.toml, line 3: mcp_servers.x.env: this value is not allowed; "
            'use a table of texts by name, such as { NAME = "text" }.',
        ),
        (
            '[mcp_servers.x]\nurl = "hunter2"\n',
            "HOME/config.toml, line 2: mcp_servers.x.url: this is not an address; "
            'use one such as "https://mcp.example.com/mcp".',
        ),
        (
            '[mcp_servers."a b"]\ncommand = "a"\n',
            'HOME/config.toml, line 1: an MCP server can\'t be called "a b": '
            "a name consists of letters, digits, - and _.",
        ),
        *(
            (
                f'[mcp_servers.{name}]\ncommand = "a"\n',
                f"HOME/config.toml, line 1: an MCP server can't be called '{name}': "
                "a name can't begin or end with an underscore, or contain two in a row.",
            )
            for name in ("files__x", "files_", "_files")
        ),
    ],
)
def test_an_invalid_entry_is_reported_with_its_line_and_without_its_secrets(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    assert str(caught.value).replace(str(tmp_path / "home"), "HOME") == message
