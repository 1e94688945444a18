"""Packages that load a module when one of its names is first used (decision 12)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

__all__ = ["on_demand"]


def on_demand(package: str, modules: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """Create a module-level `__getattr__` (PEP 562) for a package.

    Args:
        package: Its full name.
        modules: The public names of each of its modules.
    """
    places = {name: module for module, names in modules.items() for name in names}

    def load(name: str) -> Any:
        module = places.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{module}"), name)

    return load
