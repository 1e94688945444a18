"""Carrying memories out of a store and into it: Satchel's own file, and those of other programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel.lazy import on_demand

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

# Few starts of a store carry anything.
__getattr__ = on_demand(
    __name__,
    {
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
    },
)
