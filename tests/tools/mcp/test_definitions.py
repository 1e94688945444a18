"""What a server says of its tools: cleaned, hashed, and remembered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.clock import ManualClock
from satchel.config import McpServerSettings
from satchel.errors import UsageError
from satchel.tools.mcp.definitions import MAX_NAME, full_names, read_listing
from satchel.tools.mcp.pins import PinStore
from tests.requirements import requirement
from tests.tools.mcp.conftest import Open, stranger


def tool(name: str = "t", **more: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}, **more}


@requirement("mcp:pinned", "tools:invisible-characters")
def test_descriptions_show_their_invisible_characters_and_names_with_some_are_refused() -> None:
    hidden, shown = "Adds.\u202e\x1b[2J", "Adds.<U+202E><U+001B>[2J"
    schema = {"properties": {"x": {"description": hidden, "enum": ["a"]}}, "$schema": "http://h/draft-07"}
    (definition,) = read_listing("s", [tool(description=hidden, inputSchema=schema)]).tools
    assert definition.description == shown
    assert definition.input_schema == {
        "type": "object",
        "properties": {"x": {"description": shown, "enum": ["a"]}},
    }
    refused = [
        tool("ad\u200bd"),
        tool("(server)"),
        tool(inputSchema={"properties": {"x\U000e0041": {}}}),
        tool(inputSchema={"properties": {"x": {"enum": ["a\u200b"]}}}),
    ]
    assert read_listing("s", refused).problems == (
        "MCP server s: the tool 'ad<U+200B>d' was left out: its name contains the invisible character U+200B.",
        "MCP server s: the tool '(server)' was left out: its name is reserved.",
        "MCP server s: the tool 't' was left out: a name or a value in its input schema contains the invisible "
        "character U+E0041.",
        "MCP server s: the tool 't' was left out: a name or a value in its input schema contains the invisible "
        "character U+200B.",
    )


@requirement("mcp:pinned")
def test_the_hash_changes_with_all_that_a_model_or_a_permission_depends_on() -> None:
    said = [
        tool(),
        tool(description="d"),
        tool(annotations={"readOnlyHint": True}),
        tool(inputSchema={"properties": {"a": {}}}),
        tool("u"),
    ]
    hashes = {read_listing("s", [each]).tools[0].sha256 for each in said}
    assert len(hashes) == len(said)
    # A title, an icon and what follows are of no consequence.
    assert read_listing("s", [tool(title="T", icons=[])]).tools[0].sha256 in hashes


@given(
    st.lists(st.text(min_size=1, max_size=80), unique=True, max_size=20),
    st.from_regex(r"[A-Za-z0-9_-]{1,64}"),
)
def test_names_are_allowed_everywhere_and_unique_in_whatever_order(names: list[str], server: str) -> None:
    server = server.strip()
    found = full_names(server, names)
    assert found == full_names(server, names[::-1])
    assert len(set(found.values())) == len(names)
    assert all(
        0 < len(name) <= MAX_NAME and name.replace("_", "a").replace("-", "a").isalnum()
        for name in found.values()
    )


@requirement("mcp:pinned", "tools:pins")
def test_another_program_is_another_server_and_each_approval_has_its_time(tmp_path: Path) -> None:
    clock = ManualClock()
    store = PinStore(tmp_path, clock)
    entry = McpServerSettings(name="s", command="one")
    listed = read_listing("s", [tool("b"), tool("a")]).tools
    assert store.load(entry) is None
    pins = store.learn(entry, listed)
    assert [definition.name for definition in pins.offered] == ["a", "b"]
    assert store.load(entry) == pins
    assert store.load(McpServerSettings(name="s", command="two")) is None
    assert store.load(McpServerSettings(name="s", command="one", env={"TOKEN": "x"})) == pins
    (path,) = (tmp_path / "pins").iterdir()
    first = clock.now().isoformat()
    clock.advance(60)
    store.learn(entry, read_listing("s", [tool("a"), tool("b", description="Another.")]).tools)
    assert store.approve(entry, ["b"]).waiting == {}
    times = {name: pin["approved_at"] for name, pin in json.loads(path.read_text())["approved"].items()}
    assert times == {"a": first, "b": clock.now().isoformat()}


@requirement("mcp:pinned", "tools:pins")
@pytest.mark.anyio
@pytest.mark.parametrize("text", ["", "[]", '{"form": 1, "approved": 3}', "[" * 100_000])
async def test_a_damaged_file_approves_nothing_and_is_not_written_over(
    open_servers: Open, tmp_path: Path, text: str
) -> None:
    entry = stranger("good")
    async with open_servers(entry) as servers:
        assert await servers.names() == ["mcp__x__work"]
    (path,) = (tmp_path / "home" / "pins").iterdir()
    path.write_text(text)
    async with open_servers(entry) as servers:
        await servers.toolset.refresh()
        assert await servers.names() == []
        assert "is damaged" in servers.take_notices()[0]
        assert [tool.name for tool in servers.toolset.withheld("*")] == ["mcp__x__work"]
        with pytest.raises(UsageError, match="is damaged"):
            await servers.toolset.approve("*")
    assert path.read_text() == text


def test_a_tool_that_returns_unchanged_needs_no_new_approval(tmp_path: Path) -> None:
    store, entry = PinStore(tmp_path, ManualClock()), McpServerSettings(name="s", command="one")
    first, changed = (read_listing("s", [tool(description=d)]).tools for d in ("one", "two"))
    store.learn(entry, first)
    gone = store.learn(entry, ())
    assert (gone.offered, gone.waiting) == ((), {})
    assert [pin.shown for pin in store.learn(entry, changed).waiting.values()] == list(changed)
    assert store.learn(entry, first).offered == first
