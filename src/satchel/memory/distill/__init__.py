"""Distilling: facts drawn from what was said, each with the words that it rests on. Derived from state, never lost."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from satchel.memory.distill.asking import Asked
    from satchel.memory.distill.engine import Distiller, MaySpend
    from satchel.memory.distill.ledger import add_usage, read_spent
    from satchel.memory.distill.records import (
        DistillReport,
        DistillStatus,
        SpentRow,
        WindowResult,
        report_to_json,
        status_to_json,
    )

__all__ = [
    "Asked",
    "DistillReport",
    "DistillStatus",
    "Distiller",
    "MaySpend",
    "SpentRow",
    "WindowResult",
    "add_usage",
    "read_spent",
    "report_to_json",
    "status_to_json",
]

_MODULES = {
    "asking": ("Asked",),
    "engine": ("Distiller", "MaySpend"),
    "ledger": ("add_usage", "read_spent"),
    "records": (
        "DistillReport",
        "DistillStatus",
        "SpentRow",
        "WindowResult",
        "report_to_json",
        "status_to_json",
    ),
}


def __getattr__(name: str) -> Any:
    """Load a module when one of its names is first asked for: few starts of a store distil."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"satchel.memory.distill.{module}"), name)
    raise AttributeError(f"module 'satchel.memory.distill' has no attribute {name!r}")
