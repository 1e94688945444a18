"""Other programs' files of MCP servers: what is taken of them, and how it is written down."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from satchel.config import McpServerSettings, add_mcp_servers, load, read_mcp_file, remove_mcp_server
from satchel.errors import ConfigError, NotFound
from tests.requirements import requirement

FILE = {
    "mcpServers": {
        "files": {
            "command": "npx",
            "args": ["-y", "server", "."],
            "env": {"TOKEN": "${TOKEN}", "PLAIN": "hunter2"},
        },
        "my web": {"type": "http", "url": "https://h/mcp", "headers": {"Authorization": "Bearer ${env:KEY}"}},
        "old": {"type": "sse", "url": "https://h/sse", "disabled": True},
        "none": {"description": "nothing"},
        "odd": {"command": "x", "args": "not a list"},
    }
}


@requirement("mcp:import")
@pytest.mark.parametrize("wrap", ["mcpServers", "servers", "mcp"])
def test_the_files_of_three_programs_are_read(tmp_path: Path, wrap: str) -> None:
    path = tmp_path / ".mcp.json"
    inner = FILE["mcpServers"]
    path.write_text(json.dumps({"mcp": {"servers": inner}} if wrap == "mcp" else {wrap: inner}))
    found = read_mcp_file(path)
    assert found.servers == (
        McpServerSettings(
            name="files",
            command="npx",
            args=("-y", "server", "."),
            env={"TOKEN": "${TOKEN}", "PLAIN": "hunter2"},
        ),
        McpServerSettings(name="my-web", url="https://h/mcp", headers={"Authorization": "Bearer ${KEY}"}),
        McpServerSettings(name="old", url="https://h/sse", transport="sse", enabled=False),
    )
    assert found.written_out == ("files.env.PLAIN",)
    assert found.skipped == (
        f"{path}: 'none' has neither a command nor a url.",
        f"{path}: mcp_servers.odd.args: this value is not allowed; use a list of texts.",
    )


@requirement("mcp:import")
@pytest.mark.parametrize("place", [".mcp.json", ".vscode/mcp.json"])
def test_a_relative_program_is_the_one_beside_the_file_that_names_it(tmp_path: Path, place: str) -> None:
    path = tmp_path / place
    path.parent.mkdir(exist_ok=True)
    entries = {
        "a": {"command": "./bin/serve", "cwd": "data"},
        "b": {"command": "npx", "cwd": "~/x"},
        "c": {"command": "${TOOLS}/serve"},
    }
    path.write_text(json.dumps({"servers": entries}))
    assert [(server.command, server.cwd) for server in read_mcp_file(path).servers] == [
        (str(tmp_path / "bin/serve"), str(tmp_path / "data")),
        ("npx", "~/x"),
        ("${TOOLS}/serve", ""),
    ]


@requirement("mcp:import")
def test_an_added_server_is_read_back_unchanged_and_existing_text_stays(tmp_path: Path) -> None:
    path = tmp_path / ".mcp.json"
    path.write_text(json.dumps(FILE))
    servers = read_mcp_file(path).servers
    config = tmp_path / "home" / "config.toml"
    config.parent.mkdir()
    before = '# mine\nmodel = "none"\n\n[mcp_servers.old]\ncommand = "kept" # so\n'
    config.write_text(before)
    assert add_mcp_servers(config, servers) == ("files", "my-web")
    assert add_mcp_servers(config, servers) == ()
    assert config.read_text().startswith(before)
    settings = load({}, cwd=tmp_path, home=config.parent)
    assert settings.mcp_servers == {
        "old": McpServerSettings(name="old", command="kept"),
        "files": servers[0],
        "my-web": servers[1],
    }
    empty = tmp_path / "new" / "config.toml"
    assert add_mcp_servers(empty, servers) == ("files", "my-web", "old")
    assert tuple(load({}, cwd=tmp_path, home=empty.parent).mcp_servers.values()) == servers


@requirement("mcp:import")
def test_a_name_that_no_server_may_have_is_changed_to_one(tmp_path: Path) -> None:
    path = tmp_path / ".mcp.json"
    entries = {name: {"command": "a"} for name in ("my files", "_x__y_", "-- z")}
    path.write_text(json.dumps({"mcpServers": entries}))
    config = tmp_path / "home" / "config.toml"
    assert add_mcp_servers(config, read_mcp_file(path).servers) == ("my-files", "x_y", "z")
    assert load({}, cwd=tmp_path, home=config.parent).mcp_servers.keys() == {"my-files", "x_y", "z"}


@requirement("mcp:import")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "{",
            "PATH is not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1).",
        ),
        (
            "[]",
            'PATH contains no MCP servers: it needs a section "mcpServers" (or "servers") with an entry for each.',
        ),
        (
            '{"mcpServers": 3}',
            'PATH contains no MCP servers: it needs a section "mcpServers" (or "servers") with an entry for each.',
        ),
    ],
)
def test_a_file_of_another_kind_gives_a_clear_error(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_mcp_file(path)
    assert str(caught.value).replace(str(path), "PATH") == message
    with pytest.raises(NotFound):
        read_mcp_file(tmp_path / "not-there.json")


@requirement("mcp:import", "mcp:commands")
@pytest.mark.parametrize(
    "text",
    [
        '# a\n[mcp_servers.a]\ncommand = "x"\n\n[agent]\nmax_rounds = 3\n\n# b\n[mcp_servers.b]\ncommand = "y"\n',
        '[mcp_servers]\na = { command = "x" }\nb = { command = "y" }\n',
        'mcp_servers.a.command = "x"\nmcp_servers.b.command = "y"\n',
        '[mcp_servers.a]\ncommand = "x"\n[mcp_servers.a.env]\nK = "v"\n[mcp_servers.b]\ncommand = "y"\n# end\n',
    ],
)
def test_entries_are_added_and_removed_in_every_form_that_a_section_may_have(
    tmp_path: Path, text: str
) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)
    assert add_mcp_servers(path, (McpServerSettings(name="n", command="z"),)) == ("n",)
    assert path.read_text().startswith(text.rstrip())
    remove_mcp_server(path, "a")
    settings = load({}, cwd=tmp_path, home=tmp_path)
    assert {name: server.command for name, server in settings.mcp_servers.items()} == {"b": "y", "n": "z"}
    assert settings.agent.max_rounds == (3 if "max_rounds" in text else 1000)
    with pytest.raises(NotFound):
        remove_mcp_server(path, "a")


def test_a_form_that_can_not_be_added_to_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('mcp_servers = { a = { command = "x" } }\n')
    with pytest.raises(ConfigError, match="Edit the file yourself"):
        add_mcp_servers(path, (McpServerSettings(name="n", command="z"),))
    assert path.read_text() == 'mcp_servers = { a = { command = "x" } }\n'
    remove_mcp_server(path, "a")
    assert path.read_text() == ""
