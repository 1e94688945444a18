"""Plugins: packages beside Satchel, each installed here as an installer leaves it; the samples of the guide among them."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest

from satchel.config import plugins
from satchel.config.plugins import disable, enable, find_plugins
from satchel.errors import ConfigError, NoSandbox, NotFound
from satchel.events import QuestionAsked
from satchel.models.scripted import Call, Reply, ScriptedModel
from satchel.runtime import Satchel
from satchel.sandbox.choice import open_sandbox
from satchel.server.app import create_app
from satchel.tools.web import Found
from tests.cli.programs import PROGRAM, SOURCES, environ_for
from tests.requirements import requirement
from tests.runtime.world import opened, settings_in

pytestmark = pytest.mark.anyio

SAMPLES = Path(__file__).parents[2] / "examples" / "plugins"
Install = Callable[..., Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs a package into a folder on the path: a sample by its name, or one with that source."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(site)
    before = set(sys.modules)

    def installed(name: str, source: str | None = None, *, version: str = "1.0") -> Path:
        module = name.replace("-", "_")
        file = site / f"{module}.py"
        if source is None:
            project = tomllib.loads((SAMPLES / name / "pyproject.toml").read_text())["project"]
            assert (project["name"], project["version"]) == (name, version)
            assert list(project["entry-points"]["satchel"].values()) == [module]
            shutil.copy(SAMPLES / name / file.name, file)
        else:
            file.write_text(source)
        info = site / f"{module}-{version}.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(f"[satchel]\nit = {module}\n")
        (info / "RECORD").write_text(f"{file.name},,\n{info.name}/METADATA,,\n")
        importlib.invalidate_caches()
        return file

    yield installed
    for name in set(sys.modules) - before:
        if name.startswith("satchel_"):
            del sys.modules[name]


async def tool_names(satchel: Satchel) -> list[str]:
    return [entry.name for entry in await satchel.tooling.entries() if entry.source == "plugin"]


@requirement("plugins:enabled")
async def test_nothing_of_a_plugin_runs_before_it_was_enabled_or_after_it_changed(
    tmp_path: Path, install: Install
) -> None:
    home, ran = tmp_path / "home", tmp_path / "ran"
    source = (
        f"import pathlib\nran = pathlib.Path({str(ran)!r})\nran.write_text(ran.read_text() + 'x' if ran.exists() else 'x')\n"
        "def hello() -> str:\n    'Greet.'\n    return 'hi'\ndef tools():\n    return [hello]\n"
    )
    file = install("satchel-hello", source)
    async with opened(tmp_path) as satchel:
        assert await tool_names(satchel) == []
        assert [(one.name, one.state) for one in find_plugins(home)] == [("satchel-hello", "disabled")]
        assert not ran.exists()
        enable(home, "satchel-hello")
        assert await tool_names(satchel) == ["hello"]
        assert ran.read_text() == "x"
        file.write_text(source + "# and more\n")
        assert [one.state for one in find_plugins(home)] == ["changed"]
    del sys.modules["satchel_hello"]
    plugins._loaded.cache_clear()  # As in a new process.
    async with opened(tmp_path) as satchel:
        assert await tool_names(satchel) == []
        (notice,) = [each for each in satchel.notices if each.part == "plugins"]
        assert "has changed since you enabled it" in notice.text
        assert ran.read_text() == "x"
        enable(home, "satchel-hello")
        assert await tool_names(satchel) == ["hello"]
        disable(home, "satchel-hello")
        assert await tool_names(satchel) == []
    with pytest.raises(NotFound):
        enable(home, "satchel-nothing")
    with pytest.raises(NotFound):
        disable(home, "satchel-hello")


@requirement("plugins:enabled")
@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("import nothing_there", "satchel_bad can't be imported"),
        ("def tools():\n    raise OSError('no dice')", "Its function tools failed: OSError: no dice"),
        ("def tools():\n    return [3]", "Its tools can't be used"),
        ("tools = 3", "Its function tools failed"),
    ],
)
async def test_what_fails_in_a_plugin_is_said_and_the_rest_works(
    tmp_path: Path, install: Install, source: str, problem: str
) -> None:
    install("satchel-bad", source)
    install("satchel-dice")
    for name in ("satchel-bad", "satchel-dice"):
        enable(tmp_path / "home", name)
    async with opened(tmp_path) as satchel:
        assert await tool_names(satchel) == ["roll_dice"]
        (notice,) = [each for each in satchel.notices if each.part == "plugins"]
        assert problem in notice.text


@requirement("plugins:tools")
async def test_a_tool_of_a_plugin_is_called_as_any_other(tmp_path: Path, install: Install) -> None:
    """What it says of itself counts: in mode auto, one that only reads is not asked about, and others are."""
    install("satchel-dice")
    install(
        "satchel-write",
        "def scribble() -> str:\n    'Write.'\n    return 'done'\ndef tools():\n    return [scribble]",
    )
    for name in ("satchel-dice", "satchel-write"):
        enable(tmp_path / "home", name)
    calls = [Call(name="roll_dice", input={"sides": 6, "dice": 3}), Call(name="scribble", input={})]
    model = ScriptedModel([Reply(calls=calls), "done"])
    async with opened(tmp_path, model, agent__mode="auto") as satchel:
        session = await satchel.session(interactive=True)
        running = await session.start("roll")
        asked = []
        async for event in running.events():
            if isinstance(event, QuestionAsked):
                asked += [call.tool for call in event.calls]
                await session.answer(event.id, consent="once", by="test")
        steps = (await running.result()).steps
    assert asked == ["scribble"]
    rolled = json.loads(steps[0].result[steps[0].result.index("{") :])
    assert sum(rolled["rolled"]) == rolled["sum"]
    assert "done" in steps[1].result


@requirement("plugins:tools")
async def test_a_search_engine_of_a_plugin_is_asked_first(
    tmp_path: Path, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks = tmp_path / "bookmarks.html"
    marks.write_text(
        '<DL><DT><A HREF="https://example.org/bread">Rye bread, slow</A><DT><A HREF="#">Soup</A></DL>'
    )
    monkeypatch.setenv("BOOKMARKS", str(marks))
    install("satchel-dice")
    enable(tmp_path / "home", "satchel-dice")
    model = ScriptedModel([Reply(calls=[Call(name="web_search", input={"query": "bread"})]), "done"])
    async with opened(tmp_path, model, agent__mode="bypass") as satchel:
        turn = await (await satchel.session()).run_turn("find bread")
    assert "https://example.org/bread" in turn.steps[0].result
    (engine,) = importlib.import_module("satchel_dice").search_engines()
    found = await engine.search("soup", limit=3, blocking=anyio.to_thread.run_sync)
    assert found == [Found(url="#", title="Soup", text="a bookmark")]


@requirement("plugins:models")
async def test_a_model_of_a_plugin_answers_and_without_it_its_name_is_unknown(
    tmp_path: Path, install: Install
) -> None:
    answer = tmp_path / "answer.py"
    answer.write_text(
        "import sys\ntext = sys.stdin.read()\n"
        "if 'result: ' in text: print('It says', text.rsplit('result: ')[-1].split()[0])\n"
        'else: print(\'{"action": {"tool": "hello", "input": {}}}\')\n'
    )
    install("satchel-command")
    name = f"command:{sys.executable} {answer}"
    with pytest.raises(ConfigError, match="no provider 'command'"):
        settings_in(tmp_path, model=name).provider("command")
    install(
        "satchel-hello",
        "def hello() -> str:\n    'Greet.'\n    return 'hi'\ndef tools():\n    return [hello]\n",
    )
    for plugin in ("satchel-command", "satchel-hello"):
        enable(tmp_path / "home", plugin)
    settings = settings_in(tmp_path, model=name, memory__enabled=False, agent__mode="bypass")
    async with Satchel.open(settings) as satchel:
        turn = await (await satchel.session()).run_turn("greet me")
    assert [step.result for step in turn.steps] == ["hi"]
    assert turn.text == "It says hi"


@requirement("plugins:sandboxes")
async def test_a_plugin_brings_a_sandbox_and_routes_and_ours_are_found_in_the_same_way(
    tmp_path: Path, install: Install
) -> None:
    settings = settings_in(tmp_path, sandbox__backend="mine")
    with pytest.raises(NoSandbox, match=r"There are: bubblewrap, landlock, docker, podman, e2b\."):
        await open_sandbox(settings)
    source = (
        "from fastapi import APIRouter\nfrom satchel.sandbox.unsafe import Unsafe\nrouter = APIRouter()\n"
        "@router.get('/api/mine')\ndef mine() -> str: return 'Mine.'\n"
        "def routers(): return [router]\n"
        "def sandboxes(): return {'mine': lambda settings: Unsafe(), 'broken': lambda settings: 1 / 0}\n"
    )
    install("satchel-mine", source)
    enable(tmp_path / "home", "satchel-mine")
    assert (await open_sandbox(settings)).name == "unsafe"
    broken = settings_in(tmp_path, sandbox__backend="broken")
    with pytest.raises(NoSandbox, match="satchel-mine can't open the sandbox 'broken': ZeroDivisionError"):
        await open_sandbox(broken)
    async with opened(tmp_path, ScriptedModel([])) as satchel:
        described = create_app(satchel, token="t").api.openapi()
    assert {"/api/mine", "/api/agui"} <= set(described["paths"])
    assert [plugin.name for plugin in find_plugins(tmp_path / "home")] == ["satchel-mine"]


@requirement("plugins:importers", "plugins:enabled")
def test_on_the_command_line_a_plugin_is_enabled_listed_and_imports(tmp_path: Path, install: Install) -> None:
    file = install("satchel-keep")
    notes = tmp_path / "Keep"
    notes.mkdir()
    for name, note in {
        "a": {"title": "Boat", "textContent": "The mooring is number 14.", "userEditedTimestampUsec": 1_700_000_000_000_000,
              "labels": [{"name": "boat"}]},
        "b": {"title": "Gone", "textContent": "x", "isTrashed": True},
        "c": {"title": "", "listContent": [{"text": "salt", "isChecked": False}, {"text": "oil", "isChecked": True}]},
    }.items():  # fmt: skip
        (notes / f"{name}.json").write_text(json.dumps(note))
    path = os.pathsep.join([str(file.parent), *SOURCES.values()])

    def ran(*args: str, code: int = 0) -> str:
        done = subprocess.run(
            [*PROGRAM, *args],
            cwd=tmp_path,
            env=environ_for(tmp_path, PYTHONPATH=path),
            capture_output=True,
            text=True,
        )
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    assert "There is no format 'keep'" in ran(
        "memory", "import", str(notes), "--from", "keep", "--yes", code=2
    )
    assert "disabled" in ran("plugin", "list")
    assert "Enable satchel-keep?" in ran("plugin", "enable", "satchel-keep", code=130)
    ran("plugin", "enable", "satchel-keep", "--yes")
    install("satchel-command")
    ran("plugin", "enable", "satchel-command", "--yes")
    ran("config", "set", "model", "command:cat")
    assert "user: hello" in ran("ask", "hello")
    assert "2 new" in ran("memory", "import", str(notes), "--from", "keep", "--yes")
    (found,) = json.loads(ran("memory", "search", "mooring", "--json"))
    assert found["memory"]["content"] == "Boat\nThe mooring is number 14."
    assert found["memory"]["tags"] == ["boat"]
    assert "0 new" in ran("memory", "import", str(notes), "--from", "keep", "--yes")
    file.write_text(file.read_text() + "\n# changed\n")
    assert "There is no format 'keep'" in ran(
        "memory", "import", str(notes), "--from", "keep", "--yes", code=2
    )
    assert "! satchel-keep: It has changed" in ran("plugin", "list")
