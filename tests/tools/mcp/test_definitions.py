"""What a server says of its tools: cleaned, hashed, and remembered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from satchel.config import McpServerSettings
from satchel.tools.mcp.definitions import MAX_NAME, full_names, read_listing
from satchel.tools.mcp.pins import Pins, PinStore
from tests.requirements import requirement


def tool(name: str = "t", **more: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}, **more}


@requirement("mcp:pinned")
def test_what_nobody_can_see_is_taken_out_of_descriptions() -> None:
    hidden = "Adds.\U000e0053\u202e\x1b[2J"
    schema = {"properties": {"x": {"description": hidden, "enum": [hidden]}}, "$schema": "http://h/draft-07"}
    (definition,) = read_listing("s", [tool(description=hidden, inputSchema=schema)]).tools
    assert definition.description == "Adds.   [2J"
    assert definition.input_schema == {
        "type": "object",
        "properties": {"x": {"description": "Adds.   [2J", "enum": [hidden]}},
    }


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


@requirement("mcp:pinned")
def test_a_broken_file_is_a_server_that_was_never_met_and_another_program_is_another_server(
    tmp_path: Path,
) -> None:
    store = PinStore(tmp_path / "mcp")
    entry = McpServerSettings(name="s", command="one")
    listed = read_listing("s", [tool("b"), tool("a")]).tools
    assert store.load(entry) is None
    pins = store.learn(entry, listed)
    assert [definition.name for definition in pins.offered] == ["a", "b"]
    assert store.load(entry) == pins
    assert store.load(McpServerSettings(name="s", command="two")) is None
    assert store.load(McpServerSettings(name="s", command="one", env={"TOKEN": "x"})) == pins
    (path,) = (tmp_path / "mcp").iterdir()
    for text in ("", "[]", '{"accepted": 3}', "[" * 100_000):
        path.write_text(text)
        assert store.load(entry) is None


def test_a_tool_that_comes_back_as_it_was_needs_no_new_approval() -> None:
    first, changed = (read_listing("s", [tool(description=d)]).tools for d in ("one", "two"))
    pins = Pins().merged(first, accept_changes=True)
    gone = pins.merged((), accept_changes=False)
    assert (gone.offered, gone.waiting) == ((), {})
    assert gone.merged(first, accept_changes=False).offered == first
    assert gone.merged(changed, accept_changes=False).waiting == {"t": changed[0]}
