"""The reports of imports and exports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from satchel.memory.transfer.parts import LeftOut
from satchel.plain import as_json


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferProgress:
    """The progress of an import.

    Attributes:
        done_bytes: Bytes read of all files together, as they are on the disk; `total_bytes` is their size.
        conversations: Those that were looked at.
    """

    file: str
    done_bytes: int
    total_bytes: int
    new: int
    known: int
    skipped: int
    conversations: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """The result of an import.

    Attributes:
        files: The number of files of each format.
        new: Memories that were stored, or would be in a dry run.
        known: Memories that were in the store already.
        redacted: New memories from which secrets were removed.
        stripped: New memories from which text was removed that Satchel itself had injected.
        skipped: The number of parts that could not be imported, by reason; `examples` has the first of them.
        ignored: The number of parts that are not memories, such as the output of tools, by reason.
        conversations: The number of conversations by what became of them: "new", "longer", "known", "gone on" (here, so
            that they were left as they are), or "deleted" (here, so that they stay away).
    """

    files: Mapping[str, int] = field(default_factory=dict)
    conversations: Mapping[str, int] = field(default_factory=dict)
    new: int = 0
    known: int = 0
    edges: int = 0
    changes: int = 0
    tombstones: int = 0
    redacted: int = 0
    stripped: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)
    ignored: Mapping[str, int] = field(default_factory=dict)
    examples: tuple[LeftOut, ...] = ()
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport:
    """The number of records and bytes in an export."""

    memories: int
    edges: int
    changes: int
    tombstones: int
    bytes: int


def import_report_to_json(report: ImportReport) -> dict[str, Any]:
    """Convert a report to JSON data."""
    found = as_json(report)
    by_reason = {f"{name}_by_reason": found.pop(name) for name in ("skipped", "ignored")}
    return {**found, **by_reason, "skipped": sum(report.skipped.values())}
