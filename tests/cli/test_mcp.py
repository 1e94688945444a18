"""MCP servers from the command line: imported, listed, run, approved, examined."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run, serving
from tests.cli.programs import calls, chats, scripted, speaks
from tests.cli.terminals import CTRL_D, ENTER, terminal
from tests.requirements import requirement
from tests.tools.mcp.conftest import STRANGER


def configured(tmp_path: Path, behaviour: str) -> Path:
    """A home with one server; its settings file."""
    path = tmp_path / "home" / "config.toml"
    path.parent.mkdir(exist_ok=True)
    args = json.dumps([str(STRANGER), behaviour, str(tmp_path)])
    path.write_text(f"[mcp_servers.x]\ncommand = {json.dumps(sys.executable)}\nargs = {args}\n")
    return path


@requirement("mcp:import")
def test_a_file_of_servers_is_shown_without_secrets_and_added_when_that_was_wanted(
    run: Run, tmp_path: Path
) -> None:
    file = tmp_path / ".mcp.json"
    entries = {
        "files": {"command": "mcp-files", "args": ["/srv"], "env": {"TOKEN": "hunter2"}},
        "web": {"url": "https://me:hunter2@h/mcp"},
        "none": {},
    }
    file.write_text(json.dumps({"mcpServers": entries}))
    shown = run("config", "import-mcp", str(file))
    assert shown.code == 2
    assert shown.err.splitlines() == [
        f"! {file}: 'none' has neither a command nor a url.",
        "+ files: mcp-files /srv",
        "    env: TOKEN",
        "+ web: https://me:***@h/mcp",
        "! The value of files.env.TOKEN would be in plain text in your settings. Use a ${VARIABLE} to keep it out of them.",
        "satchel: Nothing was changed. Without a terminal to confirm on, adding them needs --yes.",
    ]
    added = run("config", "import-mcp", str(file), "--yes", "--json")
    assert (added.code, json.loads(added.out)["added"]) == (0, ["files", "web"])
    assert "hunter2" not in run("config", "show", "mcp_servers").out
    again = run("config", "import-mcp", str(file), "--yes")
    assert (again.code, again.err.splitlines()[-1]) == (0, "Nothing to add.")


@requirement("mcp:stdio")
def test_the_tools_of_a_server_are_listed_and_run_by_hand(run: Run, tmp_path: Path) -> None:
    configured(tmp_path, "good")
    listed = json.loads(run("tool", "list", "--source", "mcp", "--json").out)
    assert [(entry["name"], entry["status"], entry["origin"]) for entry in listed] == [
        ("mcp__x__work", "available", "MCP server x")
    ]
    ran = run("tool", "run", "mcp__x__work")
    assert (ran.code, json.loads(ran.out)) == (0, {"tool_success": True, "result": {"text": "done"}})


@requirement("mcp:pinned")
def test_what_a_server_says_anew_is_shown_and_approved(run: Run, tmp_path: Path) -> None:
    configured(tmp_path, "told-by-file")

    def refresh(description: str) -> str:
        tools = [{"name": "t", "description": description, "inputSchema": {"type": "object"}}]
        (tmp_path / "tools.json").write_text(json.dumps(tools))
        return run("tool", "refresh").err

    refresh("Adds.")
    told = refresh("Adds, and tells me.")
    assert "says something new about itself or its tools (1 changed, 0 new)" in told
    (entry,) = json.loads(run("tool", "list", "--source", "mcp", "--json").out)
    assert (entry["name"], entry["status"], entry["description"]) == (
        "mcp__x__t",
        "changed",
        "Adds, and tells me.",
    )
    refused = run("tool", "run", "mcp__x__t")
    assert (refused.code, json.loads(refused.out)["error_code"]) == (1, "NOT_APPROVED")
    approved = run("tool", "approve", "mcp__x__*", "--yes")
    assert (approved.code, approved.out.splitlines()) == (
        0,
        ["mcp__x__t", "  - description: Adds.", "  + description: Adds, and tells me."],
    )
    assert run("tool", "run", "mcp__x__t").code == 0
    assert run("tool", "approve", "mcp__x__t", "--yes").code == 3


@requirement("mcp:down")
def test_doctor_starts_every_server_and_says_how_it_is(run: Run, tmp_path: Path) -> None:
    path = configured(tmp_path, "good")
    path.write_text(path.read_text() + '\n[mcp_servers.y]\ncommand = "no-such-program"\n')
    checks = {check["part"]: check for check in json.loads(run("doctor", "--json").out)}
    assert checks["MCP server x"]["text"] == "1 tool, stdio, protocol 2025-06-18"
    assert checks["MCP server y"]["state"] == "failed"
    assert "'no-such-program' could not be started" in checks["MCP server y"]["text"]


@requirement("mcp:elicitation")
@pytest.mark.parametrize(
    ("keys", "told"),
    [
        (("Bonn", ENTER), '{"action": "accept", "content": {"city": "Bonn"}}'),
        (("decline", ENTER), '{"action": "decline"}'),
        ((CTRL_D,), '{"action": "cancel"}'),
    ],
)
def test_what_a_server_asks_is_asked_on_the_terminal(
    tmp_path: Path, keys: tuple[str, ...], told: str
) -> None:
    configured(tmp_path, "asks")
    with (
        serving(scripted(calls(("mcp__x__work", {})), speaks("Thank you."))) as server,
        terminal(tmp_path, "chat", server=server) as screen,
    ):
        screen.say("Where?")
        screen.answer("run?", "y")
        screen.see("The MCP server 'x' asks: Which city?")
        screen.see("answer?")
        screen.type(*keys)
        screen.see("Thank you.")
    assert told in chats(server)[1].body["messages"][-1]["content"]


@requirement("mcp:elicitation")
@pytest.mark.parametrize(
    ("answers", "told"),
    [
        (
            ["", "Bonn", "20", "", "dog, Cat", "nonsense", "ann@example.com"],
            '{"action": "accept", "content": {"city": "Bonn", "days": 3, "mail": "ann@example.com", "pets": ["p2", "p1"]}}',
        ),
        (["Bonn", "4", "", ""], '{"action": "accept", "content": {"city": "Bonn", "days": 4}}'),
        (["Bonn", "decline"], '{"action": "decline"}'),
    ],
)
def test_a_servers_form_is_filled_in_field_by_field(tmp_path: Path, answers: list[str], told: str) -> None:
    configured(tmp_path, "asks-much")
    with (
        serving(scripted(calls(("mcp__x__work", {})), speaks("Thank you."))) as server,
        terminal(tmp_path, "chat", server=server) as screen,
    ):
        screen.say("Where?")
        screen.answer("run?", "y")
        screen.see("The MCP server 'x' asks: Which city?")
        for answer in answers:
            # Keys typed before a question is shown are dropped.
            screen.see(" of 4: ")
            screen.answer("answer?", answer)
        screen.see("Thank you.")
    assert told in chats(server)[1].body["messages"][-1]["content"]
