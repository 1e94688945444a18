"""`satchel connect`: what is written into the files of other agents, and that it goes out again without a trace."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from satchel.clock import ManualClock
from satchel.errors import ConfigError
from satchel.runtime.other_agents import jsonc
from satchel.runtime.other_agents.connecting import Agent, Program, apply, diff_of, is_connected, plan
from tests.requirements import requirement

PROGRAM = Program(command="satchel", environ={})
CLAUDE_EVENTS = ["SessionStart", "UserPromptSubmit", "Stop", "SessionEnd", "PreCompact"]


class Place:
    """A user's folder with the files of other agents."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environ = {"HOME": str(folder)}

    def write(self, name: str, text: str, mode: int = 0o644) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
        path.chmod(mode)
        return path

    def read(self, name: str) -> str:
        return (self.folder / name).read_bytes().decode()

    def json(self, name: str) -> Any:
        return json.loads(self.read(name))

    def connect(self, agent: Agent, program: Program = PROGRAM, **more: Any) -> list[Path]:
        changes = plan(agent, program, environ=self.environ, **more)
        return list(apply(changes, home=self.folder / "home", clock=ManualClock()))

    def files(self) -> dict[str, bytes]:
        return {
            str(path.relative_to(self.folder)): path.read_bytes()
            for path in sorted(self.folder.rglob("*"))
            if path.is_file() and "home" not in path.relative_to(self.folder).parts[:1]
        }


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@requirement("agents:connect:claude-code")
def test_claude_code_gets_its_hooks_and_the_mcp_entry(place: Place) -> None:
    place.connect("claude-code")
    hooks = place.json(".claude/settings.json")["hooks"]
    assert list(hooks) == CLAUDE_EVENTS
    assert hooks["SessionEnd"] == [{"hooks": [{"type": "command", "command": "satchel hook", "timeout": 20}]}]
    assert place.json(".claude.json")["mcpServers"] == {
        "satchel": {"type": "stdio", "command": "satchel", "args": ["mcp"]}
    }
    assert is_connected("claude-code", environ=place.environ)
    assert plan("claude-code", PROGRAM, environ=place.environ) == ()
    # Another home and another place of the program are part of the entries, and replace those that are there.
    moved = Program(command="/opt/my tools/satchel", environ={"SATCHEL_HOME": "/srv/it's"})
    place.connect("claude-code", moved)
    [group] = place.json(".claude/settings.json")["hooks"]["Stop"]
    assert group["hooks"][0]["command"] == "SATCHEL_HOME='/srv/it'\"'\"'s' '/opt/my tools/satchel' hook"
    assert place.json(".claude.json")["mcpServers"]["satchel"]["env"] == {"SATCHEL_HOME": "/srv/it's"}
    place.connect("claude-code", remove=True)
    assert place.files() == {}


@requirement("agents:connect:others")
def test_codex_goose_and_any_list_of_mcp_servers_get_theirs(place: Place) -> None:
    place.connect("codex")
    assert list(place.json(".codex/hooks.json")["hooks"]) == [
        "SessionStart",
        "UserPromptSubmit",
        "Stop",
        "PreCompact",
    ]
    assert tomllib.loads(place.read(".codex/config.toml")) == {
        "mcp_servers": {"satchel": {"command": "satchel", "args": ["mcp"]}}
    }
    place.connect("goose")
    plugin = ".agents/plugins/satchel"
    assert place.json(f"{plugin}/plugin.json")["name"] == "satchel"
    assert list(place.json(f"{plugin}/hooks/hooks.json")["hooks"]) == [
        "UserPromptSubmit",
        "Stop",
        "SessionEnd",
    ]
    extension = yaml.safe_load(place.read(".config/goose/config.yaml"))["extensions"]["satchel"]
    assert (extension["type"], extension["cmd"], extension["args"]) == ("stdio", "satchel", ["mcp"])
    place.connect("generic", file=place.folder / "mcp.json")
    place.connect("generic", project=place.folder)
    assert place.json("mcp.json") == place.json(".mcp.json")
    for agent in ("codex", "goose"):
        place.connect(agent, remove=True)
    place.connect("generic", file=place.folder / "mcp.json", remove=True)
    place.connect("generic", project=place.folder, remove=True)
    assert place.files() == {}


SETTINGS = """\
{
    // mine
    "model": "opus", /* the large one */
    "hooks": {
        "Stop": [
            {
                "hooks": [{"type": "command", "command": "notify-send done"}], // loud
            },
        ],
        "PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "guard satchel hook.log"}]}]
    },
    "permissions": {"allow": ["Bash(git *)"]}, "n": 1.50e3
}
"""
SERVERS = (
    '{"numStartups": 7, "mcpServers": {"git": {"command": "mcp-git", "env": {"K": "ü"}}}, "projects": {}}'
)
CODEX = """\
# mine
model = "o5"   # the large one

[mcp_servers.git]
command = "mcp-git"

[features]
x = true
"""
GOOSE = """\
# mine
GOOSE_PROVIDER: anthropic
extensions:
  # the built-in one
  developer:
    enabled: true
    type: builtin   # as it came
    args: []
GOOSE_MODEL: opus
"""
OTHERS: list[tuple[Agent, dict[str, str]]] = [
    ("claude-code", {".claude/settings.json": SETTINGS, ".claude.json": SERVERS}),
    (
        "claude-code",
        {".claude/settings.json": SETTINGS.replace("\n", "\r\n"), ".claude.json": SERVERS + "\n\n"},
    ),
    ("claude-code", {".claude/settings.json": "{}\n", ".claude.json": '{"mcpServers": {"a": {"url": "u"}}}'}),
    (
        "claude-code",
        {".claude/settings.json": '{"hooks": {"Stop": [{"hooks": []}]}}', ".claude.json": SERVERS},
    ),
    (
        "claude-code",
        {".claude/settings.json": '{\n\t"a": [1,\n\t\t2 // two\n\t] // end\n}', ".claude.json": SERVERS},
    ),
    ("codex", {".codex/config.toml": CODEX, ".codex/hooks.json": '{"x": [1]}'}),
    ("codex", {".codex/config.toml": CODEX.rstrip(), ".codex/hooks.json": SETTINGS}),
    ("goose", {".config/goose/config.yaml": GOOSE}),
    ("goose", {".config/goose/config.yaml": "GOOSE_MODEL: opus"}),
    ("goose", {".config/goose/config.yaml": "extensions: {}\nGOOSE_MODEL: opus\n"}),
]


def plain(name: str, text: str) -> Any:
    if name.endswith(".toml"):
        return tomllib.loads(text)
    return yaml.safe_load(text) if name.endswith(".yaml") else jsonc.parse(text, name).plain()


@requirement("agents:connect:untouched")
@pytest.mark.parametrize(("agent", "files"), OTHERS)
def test_entries_of_others_stay_and_removing_leaves_no_trace(
    place: Place, agent: Agent, files: dict[str, str]
) -> None:
    for name, text in files.items():
        place.write(name, text)
    before = place.files()
    backups = place.connect(agent)
    assert len(backups) == len(files)
    assert {path.read_bytes() for path in backups} == set(before.values())
    for name, text in files.items():
        after = place.read(name)
        assert after != text
        # Comments and everything else are still there, in their order.
        kept = iter(after.split())
        assert all(
            any(word == other or word + "," == other for other in kept)
            for word in text.split()
            if "//" in word or "#" in word
        )
        was, now = plain(name, text), plain(name, after)
        for key, value in was.items():
            if key not in ("hooks", "mcpServers", "mcp_servers", "extensions"):
                assert now[key] == value
            elif key != "hooks":
                assert {k: v for k, v in now[key].items() if k != "satchel"} == value
    assert plan(agent, PROGRAM, environ=place.environ) == ()
    place.connect(agent, remove=True)
    for name, text in files.items():
        assert (
            plain(name, place.read(name)).items()
            >= {key: value for key, value in plain(name, text).items() if value}.items()
        )
    assert not any("satchel" in name for name in place.files())
    if agent == "claude-code" and SETTINGS in files.values():
        assert place.read(".claude/settings.json").replace("\r\n", "\n") == SETTINGS
    if CODEX in files.values():
        assert place.read(".codex/config.toml") == CODEX
    if GOOSE in files.values():
        assert place.read(".config/goose/config.yaml") == GOOSE


BROKEN: list[tuple[Agent, str, str, str]] = [
    ("claude-code", ".claude/settings.json", '{"hooks": ', "line 1"),
    ("claude-code", ".claude/settings.json", '{\n"a": 1\n"b": 2}', "line 3"),
    ("claude-code", ".claude/settings.json", "[]", "not an object"),
    ("claude-code", ".claude/settings.json", '{"hooks": []}', "not an object"),
    ("claude-code", ".claude/settings.json", '{"hooks": {"Stop": {}}}', "not a list"),
    (
        "claude-code",
        ".claude.json",
        '{"mcpServers": {"satchel": {"url": "http://elsewhere"}}}',
        "did not make",
    ),
    ("claude-code", ".claude.json", "{" * 200, "not JSON"),
    ("codex", ".codex/config.toml", "[mcp_servers\n", "not TOML"),
    ("codex", ".codex/config.toml", 'mcp_servers = {git = {command = "g"}}\n', "can't be changed here"),
    ("codex", ".codex/config.toml", '[mcp_servers.satchel]\ncommand = "other"\n', "did not make"),
    (
        "codex",
        ".codex/config.toml",
        '[mcp_servers.satchel]\ncommand = "satchel"\nargs = ["mcp"]\n[mcp_servers.satchel.tools]\nx = 1\n',
        "can't be changed here",
    ),
    ("goose", ".config/goose/config.yaml", "a: [1\n", "not YAML"),
    (
        "goose",
        ".config/goose/config.yaml",
        "extensions: {developer: {enabled: true}}\n",
        "can't be changed here",
    ),
    ("goose", ".config/goose/config.yaml", "- a\n", "not a mapping"),
]


@requirement("agents:connect:refuses")
@pytest.mark.parametrize(("agent", "name", "text", "reason"), BROKEN)
def test_a_file_that_can_not_be_changed_safely_is_refused_and_no_other_is_written(
    place: Place, agent: Agent, name: str, text: str, reason: str
) -> None:
    place.write(name, text)
    before = place.files()
    with pytest.raises(ConfigError, match=reason):
        place.connect(agent)
    assert place.files() == before


@requirement("agents:connect:refuses")
def test_links_modes_and_changes_of_others_are_respected(place: Place) -> None:
    target = place.write("dotfiles/settings.json", "{}\n", mode=0o640)
    (place.folder / ".claude").mkdir()
    link = place.folder / ".claude" / "settings.json"
    link.symlink_to(target)
    changes = plan("claude-code", PROGRAM, environ=place.environ)
    place.write("dotfiles/settings.json", '{"model": "opus"}\n', mode=0o640)
    with pytest.raises(ConfigError, match="just been changed"):
        apply(changes, home=place.folder / "home", clock=ManualClock())
    place.connect("claude-code")
    assert link.is_symlink()
    assert "hooks" in json.loads(target.read_text())
    assert target.stat().st_mode & 0o777 == 0o640
    assert (place.folder / ".claude.json").stat().st_mode & 0o777 == 0o600
    assert all(
        path.stat().st_mode & 0o077 == 0 for path in (place.folder / "home").rglob("*") if path.is_file()
    )


@requirement("agents:connect:untouched")
def test_the_diff_shows_no_keys_of_other_programs(place: Place) -> None:
    key = "sk-ant-api03-" + "a1B2" * 10
    place.write(".claude.json", json.dumps({"mcpServers": {"x": {"env": {"API_KEY": key}}}}, indent=2))
    shown = "\n".join(diff_of(change) for change in plan("claude-code", PROGRAM, environ=place.environ))
    assert '+    "satchel": {' in shown
    assert key not in shown


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)


@requirement("agents:connect:untouched")
@settings(max_examples=30, deadline=None)
@given(st.dictionaries(st.text(max_size=6), _VALUES, max_size=4), st.sampled_from([None, 2, "\t"]), _VALUES)
def test_a_member_that_is_added_and_removed_changes_nothing_else(
    content: dict[str, Any], indent: int | str | None, value: Any
) -> None:
    content.pop("ours", None)
    text = json.dumps(content, indent=indent, ensure_ascii=False)
    added = jsonc.with_member(text, jsonc.parse(text, "t"), "ours", value)
    assert jsonc.parse(added, "t").plain() == json.loads(added) == {**content, "ours": value}
    removed = jsonc.without_member(added, jsonc.parse(added, "t"), "ours")
    assert json.loads(removed) == content
    if content:
        assert removed == text
    place = next((name for name, node in content.items() if isinstance(node, list)), None)
    if place is not None:
        node = jsonc.parse(text, "t").get(place)
        assert node is not None
        longer = jsonc.with_item(text, node, value)
        assert json.loads(longer)[place] == [*content[place], value]


def test_the_modules_of_connecting_write_nowhere_else(place: Place) -> None:
    place.connect("claude-code")
    place.connect("claude-code", remove=True)
    assert sorted(path.name for path in place.folder.iterdir()) == [".claude", "home"]
