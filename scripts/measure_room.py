"""Measures a room: its lines, its modules, its longest functions and who imports whom.

python scripts/measure_room.py memory [--root src]
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import sys
import tokenize
from pathlib import Path

import grimp

LONGEST = 10
_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def code_lines(source: str, docstrings: set[int]) -> set[int]:
    """The numbers of the lines with code: no blank line, comment or docstring."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE and token.start[0] not in docstrings:
            lines.update(range(token.start[0], token.end[0] + 1))
    return lines


def docstring_lines(tree: ast.AST) -> set[int]:
    """The numbers of the lines with docstrings, and with strings that document a constant."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


def measure(room: str, root: Path) -> dict[str, object]:
    """The figures of a room."""
    modules: dict[str, tuple[int, int]] = {}
    functions: list[tuple[int, str]] = []
    for file in sorted((root / "satchel" / room).rglob("*.py")):
        source = file.read_text(encoding="utf-8")
        tree = ast.parse(source)
        lines = code_lines(source, docstring_lines(tree))
        name = file.relative_to(root / "satchel" / room).as_posix()
        modules[name] = (source.count("\n"), len(lines))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                inside = range(node.lineno, (node.end_lineno or node.lineno) + 1)
                functions.append((len(lines.intersection(inside)), f"{name}: {node.name}"))
    sys.path.insert(0, str(root))
    graph = grimp.build_graph("satchel", cache_dir=None)
    own = {name for name in graph.modules if name.startswith(f"satchel.{room}.")}
    imports = {name: graph.find_modules_directly_imported_by(name) & own for name in sorted(own)}
    imported = {name: sum(name in found for found in imports.values()) for name in own}
    prefix = f"satchel.{room}."
    return {
        "modules": len(modules),
        "lines": sum(lines for lines, _ in modules.values()),
        "code_lines": sum(code for _, code in modules.values()),
        "largest_modules": sorted(modules.items(), key=lambda item: -item[1][1])[:LONGEST],
        "longest_functions": sorted(functions, reverse=True)[:LONGEST],
        "imports": sum(map(len, imports.values())),
        "import_most": [
            [name.removeprefix(prefix), len(found)]
            for name, found in sorted(imports.items(), key=lambda item: -len(item[1]))[:LONGEST]
        ],
        "imported_most": [
            [name.removeprefix(prefix), count]
            for name, count in sorted(imported.items(), key=lambda item: -item[1])[:LONGEST]
        ],
        "all": sum(file.read_text(encoding="utf-8").count("\n") for file in (root / "satchel").rglob("*.py")),
    }


def main() -> None:
    """Print the figures of one room as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("room")
    parser.add_argument("--root", type=Path, default=Path("src"))
    arguments = parser.parse_args()
    print(json.dumps(measure(arguments.room, arguments.root.resolve()), indent=1))


if __name__ == "__main__":
    main()
