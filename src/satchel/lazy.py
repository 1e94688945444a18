"""Packages that load a module when one of its names is first used (decision 12)."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any


def on_demand(package: str) -> Callable[[str], Any]:
    """Create a module-level `__getattr__` (PEP 562) for a package. Its names are those that it imports for type
    checkers, as in `if TYPE_CHECKING: from package.module import Name as Name`, so that each is said once.
    """

    def load(name: str) -> Any:
        places = _places(package)
        if name == "__all__":
            return list(places)
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(places[name]), name)

    return load


@cache
def _places(package: str) -> Mapping[str, str]:
    """The module of each name."""
    loader: Any = sys.modules[package].__loader__
    statements = ast.walk(ast.parse(loader.get_source(package)))
    return {
        alias.name: statement.module
        for statement in statements
        if isinstance(statement, ast.ImportFrom) and statement.module is not None
        for alias in statement.names
        if alias.asname == alias.name
    }
