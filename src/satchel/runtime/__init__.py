"""Wires the rooms together; the only room that knows them all."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from satchel.runtime.forgetting import ForgetReceipt
    from satchel.runtime.health import Check
    from satchel.runtime.home import Home
    from satchel.runtime.satchel import Satchel
    from satchel.runtime.session import Session
    from satchel.runtime.turns import RunningTurn, Step, Turn

__all__ = ["Check", "ForgetReceipt", "Home", "RunningTurn", "Satchel", "Session", "Step", "Turn"]

_MODULES = {
    "Check": "health",
    "ForgetReceipt": "forgetting",
    "Home": "home",
    "Satchel": "satchel",
    "Session": "session",
    "RunningTurn": "turns",
    "Step": "turns",
    "Turn": "turns",
}


def __getattr__(name: str) -> Any:
    """Load a module when one of its names is first asked for: searching memory needs no loop and no tools."""
    if name in _MODULES:
        return getattr(import_module(f"satchel.runtime.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'satchel.runtime' has no attribute {name!r}")
