"""Distilling: facts drawn from what was said, each with the words that it rests on. Derived from state, never lost."""

from __future__ import annotations

from satchel.memory.distill.engine import Distiller
from satchel.memory.distill.records import (
    DistillReport,
    DistillStatus,
    SpentRow,
    WindowResult,
    report_to_json,
    status_to_json,
)

__all__ = [
    "DistillReport",
    "DistillStatus",
    "Distiller",
    "SpentRow",
    "WindowResult",
    "report_to_json",
    "status_to_json",
]
