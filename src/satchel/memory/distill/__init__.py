"""Distilling: extracts facts from conversations, each with the quotes that support it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel.lazy import on_demand

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

# Most processes that open a store don't distil.
__getattr__ = on_demand(
    __name__,
    {
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
    },
)
