"""Distilling: extracts facts from conversations, each with the quotes that support it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel.lazy import on_demand

if TYPE_CHECKING:
    from satchel.memory.distill.engine import Distiller, MaySpend
    from satchel.memory.distill.records import (
        DistillReport,
        DistillStatus,
        WindowResult,
        report_to_json,
        status_to_json,
    )

__all__ = [
    "DistillReport",
    "DistillStatus",
    "Distiller",
    "MaySpend",
    "WindowResult",
    "report_to_json",
    "status_to_json",
]

# Most processes that open a store don't distil.
__getattr__ = on_demand(
    __name__,
    {
        "engine": ("Distiller", "MaySpend"),
        "records": (
            "DistillReport",
            "DistillStatus",
            "WindowResult",
            "report_to_json",
            "status_to_json",
        ),
    },
)
