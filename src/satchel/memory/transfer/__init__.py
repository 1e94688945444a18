"""Carrying memories out of a store and into it: Satchel's own file, and those of other programs."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from satchel.memory.transfer.own import write
    from satchel.memory.transfer.pieces import UNDATED, Left, Piece
    from satchel.memory.transfer.report import (
        ExportReport,
        ImportReport,
        ImportSource,
        Skipped,
        TransferProgress,
        export_report_to_json,
        import_report_to_json,
    )
    from satchel.memory.transfer.taking_in import (
        Batch,
        Course,
        Prepared,
        Tally,
        Written,
        batches_of,
        known_ids,
        prepare,
        write_batch,
    )

__all__ = [
    "UNDATED",
    "Batch",
    "Course",
    "ExportReport",
    "ImportReport",
    "ImportSource",
    "Left",
    "Piece",
    "Prepared",
    "Skipped",
    "Tally",
    "TransferProgress",
    "Written",
    "batches_of",
    "export_report_to_json",
    "import_report_to_json",
    "known_ids",
    "prepare",
    "write",
    "write_batch",
]

_MODULES = {
    "own": ("write",),
    "pieces": ("UNDATED", "Left", "Piece"),
    "report": (
        "ExportReport",
        "ImportReport",
        "ImportSource",
        "Skipped",
        "TransferProgress",
        "export_report_to_json",
        "import_report_to_json",
    ),
    "taking_in": (
        "Batch",
        "Course",
        "Prepared",
        "Tally",
        "Written",
        "batches_of",
        "known_ids",
        "prepare",
        "write_batch",
    ),
}


def __getattr__(name: str) -> Any:
    """Load a module when one of its names is first asked for: few starts of a store carry anything."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"satchel.memory.transfer.{module}"), name)
    raise AttributeError(f"module 'satchel.memory.transfer' has no attribute {name!r}")
