"""Prints how the house stands: its rooms, what is said twice, its largest classes, and how many stops a message makes.

    python scripts/measure_house.py [--root src]

With `--root`, another checkout is measured, so that two can be compared. Stops are counted in this process, with the
scripted model, an empty home and no embedder: functions of Satchel that are called, the modules that they are in, and
how often the one that is called is in another module than the one that was called before; and through how many an
event goes between the loop and the log.
"""

from __future__ import annotations

import argparse
import ast
import os
import sys
import tempfile
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import anyio

LARGEST = 5
_FACES = ("acp", "cli", "runtime", "server", "sessions", "tui")
_VIEW = Path(__file__).resolve().parents[1] / "src" / "satchel" / "sessions" / "view.py"
"""The reducer of a session's events. An event that is none of its parts is one that it merges with others."""


class Stops:
    """The calls of Satchel's functions while `counting` runs."""

    def __init__(self, root: Path) -> None:
        self._root = str(root / "satchel")
        self.functions: set[tuple[str, str]] = set()
        self.changes = 0
        self.to_disk = 0
        self._last = ""

    def _called(self, frame: FrameType, event: str, called: Any) -> None:
        code = frame.f_code
        if event == "c_call" and called is os.write:
            self.to_disk = max(self.to_disk, self._below_loop(frame))
        if event != "call" or not code.co_filename.startswith(self._root):
            return
        self.functions.add((code.co_filename, code.co_qualname))
        self.changes += code.co_filename != self._last
        self._last = code.co_filename

    def _below_loop(self, frame: FrameType | None) -> int:
        """How many functions lie between a write and the loop; 0 if the loop didn't ask for it."""
        stops = 0
        while frame is not None:
            file = frame.f_code.co_filename
            if file == f"{self._root}/loop/emitter.py":
                return stops
            stops += file.startswith(self._root)
            frame = frame.f_back
        return 0

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count what is called in this thread and in new ones."""
        threading.setprofile(self._called)
        sys.setprofile(self._called)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def __str__(self) -> str:
        modules = {file for file, _ in self.functions}
        found = (
            f"{len(self.functions)} functions in {len(modules)} modules, {self.changes:,} changes of module"
        )
        return f"{found}, {self.to_disk} from the loop to the log" if self.to_disk else found


async def count_stops(root: Path) -> dict[str, Stops]:
    """The stops of a turn, of a turn with a call, of a search and of an addition, each the second of its kind."""
    from satchel.config import load  # noqa: PLC0415 - of the checkout that is measured
    from satchel.models import Call, Reply, ScriptedModel  # noqa: PLC0415
    from satchel.runtime import Satchel  # noqa: PLC0415

    def reply(request: Any) -> Any:
        newest = request.messages[-1]
        if "list" in newest.text:
            return Reply(calls=[Call(name="glob", input={"pattern": "*.toml"})])
        return "I see."

    found: dict[str, Stops] = {}
    with tempfile.TemporaryDirectory(prefix="satchel-stops-") as folder:
        environ = {"HOME": folder, "SATCHEL_HOME": f"{folder}/home", "SATCHEL_MEMORY_EMBEDDER": "none"}
        settings = load({**environ, "SATCHEL_AGENT_MODE": "bypass"}, cwd=Path(folder))
        async with Satchel.open(settings, model=ScriptedModel(reply)) as satchel:
            session, memory = await satchel.session(), satchel.memory
            assert memory is not None
            parts = {
                "a plain turn": lambda: session.run_turn("Hello there."),
                "a turn with one call": lambda: session.run_turn("Please list the files."),
                "memory.add": lambda: memory.add("Mara plays the cello."),
                "memory.search": lambda: memory.search("cello"),
            }
            for name, part in parts.items():
                await part()
                stops = found[name] = Stops(root)
                with stops.counting():
                    await part()
    return found


def print_sources(root: Path) -> None:
    """What the sources say."""
    lines: Counter[str] = Counter()
    classes: dict[str, list[str]] = defaultdict(list)
    sizes: list[tuple[int, int, int, str]] = []
    defaults = exhaustive = 0
    events = _event_names(root)
    merged = events - _names_in(_VIEW, "Part")
    folding: dict[str, int] = {}
    raw: dict[str, int] = {}
    for file in sorted((root / "satchel").rglob("*.py")):
        source, place = file.read_text(encoding="utf-8"), file.relative_to(root / "satchel")
        lines[place.parts[0] if len(place.parts) > 1 else "(top)"] += source.count("\n")
        tree = _without_aliases(ast.parse(source))
        exhaustive += source.count("assert_never(")
        matched = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.match_case):
                is_open = isinstance(node.pattern, ast.MatchAs) and node.pattern.pattern is None
                defaults += is_open and node.guard is None and "assert_never" not in ast.dump(node)
            elif (
                isinstance(node, ast.MatchClass) and isinstance(node.cls, ast.Name) and node.cls.id in events
            ):
                matched.add(node.cls.id)
            elif (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id == "isinstance"
            ):
                matched |= {one.id for one in ast.walk(node) if isinstance(one, ast.Name)} & events
            elif isinstance(node, ast.ClassDef):
                classes[node.name].append(str(place))
                sizes.append(_size(node, str(place)))
        if matched and place.name != "events.py":
            folding[str(place)] = len(matched)
        if matched & merged and place.parts[0] in _FACES and place.name != _VIEW.name:
            raw[str(place)] = len(matched & merged)
    print(f"lines: {sum(lines.values()):,}: " + ", ".join(f"{room} {n:,}" for room, n in lines.most_common()))
    print(f"modules that look at events of a session: {len(folding)}, at three kinds or more: ", end="")
    print(sum(n >= 3 for n in folding.values()))
    print(f"of faces, runtime and sessions, modules that look at events that the view merges: {len(raw)}")
    print(f"`case _:` {defaults}, `assert_never` {exhaustive}")
    twice = {
        name: len(where) for name, where in classes.items() if len(where) > 1 and not name.startswith("_")
    }
    most = sorted(twice.items(), key=lambda one: -one[1])
    print(f"class names with more than one meaning: {len(twice)}: " + ", ".join(f"{n} ×{k}" for n, k in most))
    for size, methods, parameters, name in sorted(sizes, reverse=True)[:LARGEST]:
        print(f"{name}: {size} lines, {methods} methods, {parameters} parameters")


def _names_in(file: Path, alias: str) -> set[str]:
    """The names in a type alias."""
    for node in _without_aliases(ast.parse(file.read_text(encoding="utf-8"))).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == alias:
            return {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
    raise SystemExit(f"{file} has no {alias}.")


def _without_aliases(tree: ast.Module) -> ast.Module:
    """The module with the names that `satchel.events` gives: `FinalEvent` and `kinds.Final` are `Final`."""
    names = {
        one.asname: one.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module == "satchel.events"
        for one in node.names
        if one.asname
    }

    class Named(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.Name:
            return ast.Name(id=names.get(node.id, node.id), ctx=node.ctx)

        def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
            self.generic_visit(node)
            is_kind = isinstance(node.value, ast.Name) and node.value.id == "kinds"
            return ast.Name(id=node.attr, ctx=node.ctx) if is_kind else node

    named = Named().visit(tree)
    assert isinstance(named, ast.Module)
    return named


def _event_names(root: Path) -> set[str]:
    tree = ast.parse((root / "satchel" / "events.py").read_text(encoding="utf-8"))
    return {
        node.name
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        for line in node.body
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and line.target.id == "type"
    }


def _size(node: ast.ClassDef, place: str) -> tuple[int, int, int, str]:
    functions = [one for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
    started = next((one.args for one in functions if one.name == "__init__"), None)
    fields = [one for one in node.body if isinstance(one, ast.AnnAssign)] if node.decorator_list else []
    of_record = [ast.unparse(one) for one in fields]
    parameters = (
        len(started.args) + len(started.kwonlyargs) - 1
        if started
        else sum(not line.startswith("_: ") and "init=False" not in line for line in of_record)
    )
    return (node.end_lineno or 0) - node.lineno + 1, len(functions), parameters, f"{place}: {node.name}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[1] / "src")
    root = parser.parse_args().root.resolve()
    sys.path.insert(0, str(root))
    print_sources(root)
    for name, stops in anyio.run(count_stops, root).items():
        print(f"{name}: {stops}")


if __name__ == "__main__":
    main()
