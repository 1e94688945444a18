"""What an import and an export did, in counts and with reasons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

__all__ = [
    "ExportReport",
    "ImportReport",
    "ImportSource",
    "Skipped",
    "TransferProgress",
    "export_report_to_json",
    "import_report_to_json",
]

ImportSource: TypeAlias = Literal[
    "auto", "satchel", "mcp", "claude-code", "codex", "chatgpt", "markdown", "mem0"
]
"""What wrote the files; "auto" looks at each of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferProgress:
    """How far an import is.

    Attributes:
        file: The one that is being read.
        done_bytes: Of all files together, as they lie on the disk; `total_bytes` likewise.
        new: Memories stored so far; `known` were there already; `skipped` were left out.
    """

    file: str
    done_bytes: int
    total_bytes: int
    new: int
    known: int
    skipped: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """One thing that was left out: why, and where it stands."""

    reason: str
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """What an import did.

    Attributes:
        files: How many of each format were read.
        new: Memories that were stored; in a dry run, that would be.
        known: Memories that were there already.
        edges: Edges that were stored.
        changes: Entries of histories that were stored.
        tombstones: Notes of what was forgotten that were stored.
        redacted: New memories out of which secrets were taken.
        stripped: New memories out of which text was taken that Satchel itself had put there.
        skipped: What was left out though it looked like memory, by reason; `examples` names the first of them.
        ignored: What does not belong to a conversation, such as the output of tools, by reason.
        dry_run: Nothing was written.
    """

    files: Mapping[str, int] = field(default_factory=dict)
    new: int = 0
    known: int = 0
    edges: int = 0
    changes: int = 0
    tombstones: int = 0
    redacted: int = 0
    stripped: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)
    ignored: Mapping[str, int] = field(default_factory=dict)
    examples: tuple[Skipped, ...] = ()
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport:
    """What an export wrote."""

    memories: int
    edges: int
    changes: int
    tombstones: int
    bytes: int


def import_report_to_json(report: ImportReport) -> dict[str, Any]:
    """The report as plain JSON data."""
    return {
        "files": dict(report.files),
        "new": report.new,
        "known": report.known,
        "skipped": sum(report.skipped.values()),
        "skipped_by_reason": dict(report.skipped),
        "ignored_by_reason": dict(report.ignored),
        "examples": [{"reason": one.reason, "where": one.where} for one in report.examples],
        "edges": report.edges,
        "changes": report.changes,
        "tombstones": report.tombstones,
        "redacted": report.redacted,
        "stripped": report.stripped,
        "dry_run": report.dry_run,
    }


def export_report_to_json(report: ExportReport) -> dict[str, Any]:
    """The report as plain JSON data."""
    return {
        "memories": report.memories,
        "edges": report.edges,
        "changes": report.changes,
        "tombstones": report.tombstones,
        "bytes": report.bytes,
    }
