"""Carrying memories out of a store and into it: Satchel's own file, and those of other programs."""

from __future__ import annotations

from satchel.memory.transfer.mover import Mover
from satchel.memory.transfer.report import (
    ExportReport,
    ImportReport,
    ImportSource,
    Skipped,
    TransferProgress,
    export_report_to_json,
    import_report_to_json,
)

__all__ = [
    "ExportReport",
    "ImportReport",
    "ImportSource",
    "Mover",
    "Skipped",
    "TransferProgress",
    "export_report_to_json",
    "import_report_to_json",
]
