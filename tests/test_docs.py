"""The documents say what the program does: generated pages are up to date, links lead somewhere, programs run."""

from __future__ import annotations

import ast
import asyncio
import importlib.util
import inspect
import os
import re
import types
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import anyio
import pytest

from satchel import Satchel, events
from satchel.config import SETTINGS
from satchel.models import Reply, ScriptedModel
from tests.requirements import requirement

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").rglob("*.md")])


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def reference(page: str) -> str:
    return (ROOT / "docs" / "reference" / page).read_text(encoding="utf-8")


@requirement("docs:settings", "docs:events", "docs:cli")
@pytest.mark.parametrize("page", ["settings.md", "events.md", "errors.md", "cli.md"])
def test_the_generated_page_is_up_to_date(page: str) -> None:
    assert reference(page) == generator().generate(page), "run `make docs`"


@requirement("docs:settings")
def test_every_setting_is_documented() -> None:
    text = reference("settings.md")
    assert [setting.key for setting in SETTINGS if setting.doc.replace("|", "\\|") not in text] == []


@requirement("docs:events")
def test_every_event_is_documented_and_marked_where_it_is_not_logged() -> None:
    headings = re.findall(r"^## `(\w+)`(.*)$", reference("events.md"), re.MULTILINE)
    assert [name for name, _ in headings] == [cls.type for cls in get_args(events.Event)]
    shown_only = {cls.type for cls in get_args(events.Event) if events.is_transient(cls.__new__(cls))}
    assert {name for name, mark in headings if mark} == shown_only


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as the usual viewers make them."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@requirement("docs:links")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    lost = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"\w+:", target):
            continue
        place, _, anchor = target.partition("#")
        path = (page.parent / place).resolve() if place else page
        if not path.exists() or (anchor and anchor not in anchors(path.read_text(encoding="utf-8"))):
            lost.append(target)
    assert lost == []


def programs(page: str) -> list[Any]:
    """The Python programs of a page, each named by the heading that it stands below."""
    found = []
    for section in re.split(r"^##? ", (ROOT / page).read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        heading = section.partition("\n")[0]
        found += [
            pytest.param(block, id=f"{Path(page).stem}-{heading}")
            for block in re.findall(r"```python\n(.*?)```", section, re.DOTALL)
        ]
    return found


async def leave_a_turn_unfinished() -> None:
    """A home in the working directory's environment whose newest log ends as a kill leaves it: before an answer."""
    reached = anyio.Event()

    async def before() -> None:
        reached.set()
        await anyio.sleep_forever()

    async with Satchel.open(model=ScriptedModel([Reply(before=before)])) as satchel:
        session = await satchel.session()
        await session.start("Hello")
        await reached.wait()
        log = session.path
        assert log is not None
        left = log.read_bytes()
    log.write_bytes(left)


@requirement("docs:readme-runs", "embed:examples")
@pytest.mark.parametrize("program", [*programs("README.md"), *programs("docs/guides/python.md")])
def test_the_python_programs_of_the_documents_run_and_print_what_their_comments_say(
    program: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name != "PATH"]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    # Words alone: the embedding model would be fetched, and a test uses no network.
    monkeypatch.setenv("SATCHEL_MEMORY_EMBEDDER", "none")
    program = program.replace('Memory.open("memory.db")', 'Memory.open("memory.db", embedder="none")')
    if request.node.callspec.id.endswith("After a crash"):
        asyncio.run(leave_a_turn_unfinished())
    # As in `python -m asyncio`: the examples of the guide use `await` outside of a function.
    code = compile(program, "<document>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    running = types.FunctionType(code, {"__name__": "__main__"})()
    if inspect.iscoroutine(running):
        asyncio.run(asyncio.wait_for(running, 60))
    expected = re.findall(r"^ *print\(.*\)  # (.+)$", program, re.MULTILINE)
    printed = capsys.readouterr().out.splitlines()
    assert [line for line in expected if line not in printed] == []


def test_the_commands_that_the_readme_names_exist() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"^## `(.+)`$", reference("cli.md"), re.MULTILINE))
    groups = {name for name in documented if any(other.startswith(f"{name} ") for other in documented)}
    named = set()
    for words in re.findall(r"(?:^|`|\$ )satchel ([a-z][a-z -]*[a-z])", text, re.MULTILINE):
        first, *rest = words.split()
        inner = f"satchel {first} {rest[0]}" if rest and f"satchel {first}" in groups - {"satchel"} else ""
        named.add(inner or f"satchel {first}")
    assert sorted(named - documented) == []


def test_every_make_target_that_a_page_names_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {
        word for page in PAGES for word in re.findall(r"`make ([a-z]+)", page.read_text(encoding="utf-8"))
    }
    assert named - targets == set()


@requirement("house:architecture-page")
def test_every_place_that_the_architecture_page_names_exists() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    places = re.findall(r"`([a-z_]+(?:/[a-z_.]*)+|[a-z_]+\.py)`", page)
    assert len(places) > 20
    roots = (ROOT / "src" / "satchel", ROOT)
    assert [place for place in places if not any((root / place).exists() for root in roots)] == []


@requirement("docs:demo-picture")
def test_the_picture_of_the_demo_shows_the_steps_that_it_has() -> None:
    from satchel.cli import demo  # noqa: PLC0415

    steps = set(
        re.findall(r'"(?:\\n)?(\d\. [A-Z][a-z ]+)\.', Path(demo.__file__).read_text(encoding="utf-8"))
    )
    picture = (ROOT / "docs" / "images" / "demo.svg").read_text(encoding="utf-8").replace("&#160;", " ")
    assert len(steps) == 6
    assert [step for step in sorted(steps) if step not in picture] == []
    assert re.findall(r'(?:src|href|url\()="?(?!#)[^"\s]*//', picture) == []


def test_every_fault_of_the_table_is_shown_by_a_test() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "docs/concepts/faults.md").read_text())
    assert len(named) > 20
    assert [
        f"{path}::{name}" for path, name in named if f"def {name}(" not in (ROOT / path).read_text()
    ] == []
