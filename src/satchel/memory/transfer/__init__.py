"""Carrying memories out of a store and into it: Satchel's own file, and those of other programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel.lazy import on_demand

if TYPE_CHECKING:
    from satchel.memory.transfer.pieces import UNDATED
    from satchel.memory.transfer.report import (
        ExportReport,
        ImportReport,
        ImportSource,
        Skipped,
        TransferProgress,
        export_report_to_json,
        import_report_to_json,
    )
    from satchel.memory.transfer.service import Transfer

__all__ = [
    "UNDATED",
    "ExportReport",
    "ImportReport",
    "ImportSource",
    "Skipped",
    "Transfer",
    "TransferProgress",
    "export_report_to_json",
    "import_report_to_json",
]

# Few starts of a store carry anything.
__getattr__ = on_demand(
    __name__,
    {
        "pieces": ("UNDATED",),
        "report": (
            "ExportReport",
            "ImportReport",
            "ImportSource",
            "Skipped",
            "TransferProgress",
            "export_report_to_json",
            "import_report_to_json",
        ),
        "service": ("Transfer",),
    },
)
