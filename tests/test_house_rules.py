"""The rules of the house that no linter knows."""

from __future__ import annotations

import ast
import functools
import importlib
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import grimp
import pytest

import satchel
from satchel import errors
from tests.requirements import requirement

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "satchel"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@dataclass
class Outline:
    """What the rules read of a module.

    Attributes:
        classes: Their names, and those of its functions in `functions`.
        uses: Its attributes and calls: their lines and their source.
    """

    docstring: str | None
    classes: list[str] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)
    uses: list[tuple[int, str]] = field(default_factory=list)


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


@functools.cache
def outline(path: Path) -> Outline:
    """A module is parsed once for all of these tests, and its tree, which is large, not kept."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = Outline(ast.get_docstring(tree))
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef():
                found.classes.append(node.name)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                found.functions.append(node.name)
            case ast.Attribute() | ast.Call():
                found.uses.append((node.lineno, ast.unparse(node).split("\n", 1)[0]))
            case _:
                pass
    return found


def name_of(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def files_of_the_tree() -> list[Path]:
    """What is, or may become, part of the repository; without one, everything but caches."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode == 0 and listed.stdout:
        return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]
    hidden = (".git", ".venv", ".mypy_cache", ".pytest_cache", ".ruff_cache", "__pycache__", ".hypothesis")
    return [path for path in ROOT.rglob("*") if path.is_file() and not set(hidden) & set(path.parts)]


def layers_of_the_contract() -> list[set[str]]:
    contracts = PYPROJECT["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["id"] == "layers")
    return [set(re.findall(r"\w+", layer)) for layer in layers]


@requirement("house:architecture-page")
def test_the_architecture_page_shows_the_layers_that_are_held() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    drawn = page.split("## The rooms")[1].split("```")[1]
    shown = [set(re.findall(r"\w+", line)) for line in drawn.strip().splitlines()]
    assert shown == [layer for layer in layers_of_the_contract() if layer != {"__main__"}]


@requirement("house:layers")
def test_every_room_is_in_the_contract_and_the_contract_is_exhaustive() -> None:
    contracts = PYPROJECT["tool"]["importlinter"]["contracts"]
    assert next(contract["exhaustive"] for contract in contracts if contract["id"] == "layers") is True
    rooms = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py"} - {"__init__"}
    rooms |= {path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()}
    assert rooms <= set().union(*layers_of_the_contract())


@requirement("house:layers", "loop:no-disk")
def test_the_layers_hold() -> None:
    """The contracts themselves, as `make check` runs them."""
    program = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False, timeout=280
    )
    assert ended.returncode == 0, ended.stdout


@requirement("house:module-docstrings")
def test_every_module_says_in_one_sentence_what_it_is_for() -> None:
    silent = []
    for path in modules():
        docstring = outline(path).docstring
        if not docstring or not docstring.split("\n\n")[0].rstrip().endswith((".", ":")):
            silent.append(str(path.relative_to(ROOT)))
    assert silent == []


@requirement("house:no-second-version")
def test_nothing_is_the_second_version_of_another() -> None:
    versioned = re.compile(r".*(_v\d+|_old|_legacy|[a-z]V\d)$")
    found = []
    for path in modules():
        if versioned.match(path.stem):
            found.append(name_of(path))
        found += [
            f"{name_of(path)}.{name}"
            for name in (*outline(path).classes, *outline(path).functions)
            if versioned.match(name)
        ]
    assert found == []


def test_no_module_has_a_name_that_says_nothing() -> None:
    empty = {
        "utils",
        "util",
        "helpers",
        "helper",
        "common",
        "manager",
        "base",
        "misc",
        "data",
        "info",
        "core",
    }
    assert [name_of(path) for path in modules() if path.stem in empty] == []


@requirement("house:public-names")
def test_init_files_hold_docstring_imports_and_names_only() -> None:
    """Some load their modules when a name is first asked for, so that a search starts without the rest (decision 12)."""
    memory = SOURCE / "memory"
    rooms = {SOURCE / name for name in ("capabilities", "config", "models", "runtime", "storage", "tools")}
    lazy = {
        SOURCE,
        *rooms,
        memory,
        memory / "text" / "credentials",
        memory / "distill",
        memory / "show" / "page",
        memory / "transfer",
        SOURCE / "tools" / "builtin",
    }
    busy = []
    for path in SOURCE.rglob("__init__.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            is_names = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in (
                "__all__",
                "__version__",
            )
            if path.parent not in lazy and not (
                is_docstring or is_names or isinstance(node, ast.Import | ast.ImportFrom)
            ):
                busy.append(f"{name_of(path)}: {ast.unparse(node)[:60]}")
    assert busy == []


@requirement("house:public-names")
def test_every_public_name_can_be_imported() -> None:
    missing = []
    for path in modules():
        if "migrations" in path.parts or path.stem == "__main__":
            continue
        module = importlib.import_module(name_of(path))
        missing += [
            f"{module.__name__}.{name}"
            for name in getattr(module, "__all__", [])
            if not hasattr(module, name)
        ]
    assert missing == []


@requirement("house:one-name-one-thing")
def test_no_two_public_classes_have_one_name() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in modules():
        for name in outline(path).classes:
            if not name.startswith("_"):
                places[name].append(name_of(path))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


DOORS = {
    "environment": (r"\bos\.(environ|getenv|environb|putenv)\b", {"config"}),
    "processes": (
        r"\b(subprocess\.|os\.(system|popen|fork|spawn\w*|posix_spawn\w*|exec\w+)\(|create_subprocess_|anyio\.(open|run)_process)",
        {"sandbox"},
    ),
    "databases": (r"\bsqlite3\.(connect|dbapi2)|\bcreate_engine\(", {"storage"}),
    "time of day": (r"\btime\.time\(|\bdatetime\.(now|utcnow|today)\(|\bdate\.today\(", {"clock"}),
    "tasks": (r"\basyncio\.(create_task|gather|ensure_future|to_thread|get_event_loop)\b", set()),
}

EXCEPTIONS = {
    # It runs inside the sandbox, whose environment it makes.
    "environment": {"sandbox/guest/start.py"},
    # The first fetches the weights with pip or uv, which are programs; it can't see the sandbox, a room of its own layer.
    # The second starts no other process: `satchel serve` begins anew in its own.
    "processes": {"models/embedding/sources.py", "cli/serve.py"},
}


@requirement("house:doors")
@pytest.mark.parametrize("door", DOORS)
def test_each_dangerous_thing_has_one_door(door: str) -> None:
    pattern, rooms = DOORS[door]
    opened = []
    for path in modules():
        room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if room in rooms or path.relative_to(SOURCE).as_posix() in EXCEPTIONS.get(door, set()):
            continue
        opened += [
            f"{path.relative_to(ROOT)}:{line}"
            for line, source in outline(path).uses
            if re.search(pattern, source)
        ]
    assert sorted(set(opened)) == []


def exit_codes() -> Iterator[tuple[str, int]]:
    for name in errors.__all__:
        yield name, getattr(errors, name).exit_code


@requirement("house:errors:who-acts")
def test_every_error_has_the_exit_code_of_who_must_act() -> None:
    special = {name: code for name, code in exit_codes() if code != 1}
    assert special == {
        "UserError": 2,
        "ConfigError": 2,
        "UsageError": 2,
        "LineFull": 2,
        "NotFound": 3,
        "Refused": 4,
        "NoSandbox": 4,
    }


@requirement("house:no-machine-names")
def test_the_tree_contains_no_path_and_no_host_of_a_machine() -> None:
    # Written in parts, so that this file does not find itself.
    words = ["/wo" + "rk/", "/ro" + "ot/", "llm-" + "relay", "far" + "m-", "/sha" + "red/", "/opt/py" + "pi"]
    found = []
    for path in files_of_the_tree():
        content = path.read_bytes()
        if b"\0" in content[:8000]:
            continue
        text = content.decode("utf-8", "replace")
        found += [f"{path.relative_to(ROOT)}: {word}" for word in words if word in text]
    assert found == []


@requirement("house:lock:hashed")
@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-dev.lock"])
def test_the_lock_has_a_hash_for_everything_and_no_host(lock: str) -> None:
    text = (ROOT / lock).read_text(encoding="utf-8")
    entries = re.split(r"\n(?=\S)", text.strip())
    assert [entry.split()[0] for entry in entries if not re.match(r"[A-Za-z0-9_.\[\]-]+==\S+", entry)] == []
    assert [entry.split()[0] for entry in entries if "--hash=sha256:" not in entry] == []
    assert re.findall(r"\w+://\S+|--(?:index-url|extra-index-url|find-links|trusted-host)", text) == []


@requirement("house:lock:complete")
def test_every_dependency_is_in_the_lock() -> None:
    def names(lines: list[str]) -> set[str]:
        return {re.split(r"[\[<>=!~; ]", line)[0].lower().replace("_", "-") for line in lines}

    locked = names(
        re.findall(r"^\S+==", (ROOT / "requirements.lock").read_text(encoding="utf-8"), re.MULTILINE)
    )
    dev = names(
        re.findall(r"^\S+==", (ROOT / "requirements-dev.lock").read_text(encoding="utf-8"), re.MULTILINE)
    )
    project = PYPROJECT["project"]
    assert names(project["dependencies"]) - locked == set()
    assert (
        names([*PYPROJECT["dependency-groups"]["dev"], *chain(*project["optional-dependencies"].values())])
        - dev
        == set()
    )
    assert project["dependencies"] == sorted(project["dependencies"], key=str.lower)


@requirement("house:ci")
def test_the_pipeline_runs_the_same_command_as_a_person() -> None:
    commands = [
        line
        for line in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
        if line and line[0] != "#"
    ]
    assert commands == ["set -euo pipefail", 'cd "$(dirname "$0")/.."', "make test"]


@requirement("house:bench")
def test_make_bench_runs_every_benchmark_that_needs_nothing_from_outside() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    run = next(line for line in makefile.splitlines() if line.startswith("BENCHMARKS :=")).split()[2:]
    there = {path.stem for path in (ROOT / "benchmarks").glob("*.py")}
    from_outside = {
        "databases", "documents", "tool_search", "embedder_stacks", "distilling", "fit_surfacing", "lives", "left_out", "statements",
        "table", "newest", "pages", "before_after",
    }  # fmt: skip
    takes_an_hour = {"year"}
    not_run_alone = {"chosen", "judged", "loopback", "recorded", "sets", "stand_in", "unseen"}
    assert there - set(run) == from_outside | takes_an_hour | not_run_alone
    listed = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    assert [name for name in sorted(there) if f"`{name}.py`" not in listed] == []


def loaded_by(statement: str) -> set[str]:
    program = f"{statement}\nimport sys\nprint(' '.join(sys.modules))"
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=280
    )
    return set(ended.stdout.split())


@requirement("house:import:light")
def test_importing_the_package_loads_no_room() -> None:
    loaded = loaded_by("import satchel")
    assert {name for name in loaded if name.startswith("satchel")} == {
        "satchel",
        "satchel.lazy",
        "satchel.version",
    }
    assert satchel.__version__


@requirement("house:import:light")
def test_importing_memory_loads_no_loop_no_face_and_no_heavy_library() -> None:
    loaded = loaded_by("import satchel.memory")
    rooms = {name.split(".")[1] for name in loaded if name.startswith("satchel.")}
    assert rooms & {"cli", "runtime", "loop", "sessions"} == set()
    heavy = {"httpx2", "mcp", "dbos", "rich", "prompt_toolkit", "click", "alembic"}
    assert loaded & heavy == set()


@requirement("rooms:no-circles")
def test_no_modules_import_each_other_in_a_circle_not_even_for_types() -> None:
    graph = grimp.build_graph("satchel")
    waiting = {name: set(graph.find_modules_directly_imported_by(name)) for name in graph.modules}
    # What imports nothing that is left is in no circle; what is left at the end is in one, or needs one that is.
    while free := [name for name, needs in waiting.items() if not needs]:
        for name in free:
            del waiting[name]
        for needs in waiting.values():
            needs.difference_update(free)
    assert waiting == {}


@requirement("house:public-names")
def test_no_name_of_a_package_that_loads_on_demand_is_a_modules_name() -> None:
    """Importing the module would put it in the place of the function."""
    clashes = []
    for path in SOURCE.rglob("__init__.py"):
        package = importlib.import_module(name_of(path))
        if hasattr(package, "__getattr__"):
            names = {each.stem for each in path.parent.glob("*.py")} & set(getattr(package, "__all__", ()))
            clashes += [f"{package.__name__}.{name}" for name in names]
    assert clashes == []
