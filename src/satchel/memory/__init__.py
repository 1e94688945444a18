"""Memory: what was said, word for word, and what is known; found by words and by meaning. Usable alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel.lazy import on_demand

if TYPE_CHECKING:
    from satchel.memory.checkup import Checkup, Repaired, checkup_to_json
    from satchel.memory.distill.records import DistillReport, DistillStatus, WindowResult
    from satchel.memory.find.reindexing import Calibration, Reindexed
    from satchel.memory.memory import Memory
    from satchel.memory.records import (
        Context,
        Discretion,
        Episode,
        Forgotten,
        Hit,
        Kind,
        MemoryRecord,
        MemoryType,
        Mode,
        Moment,
        Passage,
        Recall,
        Receipt,
        Source,
        Stats,
        StoredDocument,
        Tier,
        Trust,
        Wished,
        hit_to_json,
        receipt_to_json,
        record_to_json,
    )
    from satchel.memory.show.agenda import Agenda, AgendaLine, agenda_to_json
    from satchel.memory.show.page.records import Page, always_to_json, page_to_json
    from satchel.memory.show.profile import Profile, ProfileLine, profile_to_json
    from satchel.memory.store.decay import boost, priority_now, recency_weight
    from satchel.memory.store.filters import Filters
    from satchel.memory.store.graph import RELATIONS, Edge, Related, Successor, edge_to_json, related_to_json
    from satchel.memory.store.history import Change, change_to_json
    from satchel.memory.store.marks import Rebuilt
    from satchel.memory.store.page_lines import PageLine, PageVersion, version_to_json
    from satchel.memory.text.block import Said, strip_injected
    from satchel.memory.text.dates import ResolvedDate, resolve_dates
    from satchel.memory.transfer.report import (
        ExportReport,
        ImportReport,
        TransferProgress,
        export_report_to_json,
        import_report_to_json,
    )

__all__ = [
    "Agenda",
    "AgendaLine",
    "Calibration",
    "Change",
    "Checkup",
    "Context",
    "Discretion",
    "DistillReport",
    "DistillStatus",
    "Edge",
    "Episode",
    "ExportReport",
    "Filters",
    "Forgotten",
    "Hit",
    "ImportReport",
    "Kind",
    "Memory",
    "MemoryRecord",
    "Page",
    "PageLine",
    "PageVersion",
    "Passage",
    "MemoryType",
    "Mode",
    "Moment",
    "RELATIONS",
    "Profile",
    "ProfileLine",
    "Rebuilt",
    "Recall",
    "Receipt",
    "Reindexed",
    "Related",
    "Repaired",
    "ResolvedDate",
    "Said",
    "Source",
    "Stats",
    "StoredDocument",
    "Successor",
    "Tier",
    "TransferProgress",
    "Trust",
    "Wished",
    "WindowResult",
    "agenda_to_json",
    "always_to_json",
    "boost",
    "change_to_json",
    "checkup_to_json",
    "edge_to_json",
    "export_report_to_json",
    "hit_to_json",
    "import_report_to_json",
    "priority_now",
    "page_to_json",
    "profile_to_json",
    "receipt_to_json",
    "recency_weight",
    "record_to_json",
    "related_to_json",
    "resolve_dates",
    "strip_injected",
    "version_to_json",
]

# A search needs no dates, and a date no database.
__getattr__ = on_demand(
    __name__,
    {
        "show.agenda": ("Agenda", "AgendaLine", "agenda_to_json"),
        "show.page.records": ("Page", "always_to_json", "page_to_json"),
        "store.page_lines": ("PageLine", "PageVersion", "version_to_json"),
        "show.profile": ("Profile", "ProfileLine", "profile_to_json"),
        "checkup": (
            "Checkup",
            "Repaired",
            "checkup_to_json",
        ),
        "text.dates": (
            "ResolvedDate",
            "resolve_dates",
        ),
        "store.decay": (
            "boost",
            "priority_now",
            "recency_weight",
        ),
        "distill.records": (
            "DistillReport",
            "DistillStatus",
            "WindowResult",
        ),
        "store.filters": ("Filters",),
        "store.graph": (
            "RELATIONS",
            "Edge",
            "Related",
            "Successor",
            "edge_to_json",
            "related_to_json",
        ),
        "store.history": (
            "Change",
            "change_to_json",
        ),
        "records": (
            "Context",
            "Discretion",
            "Episode",
            "Forgotten",
            "Hit",
            "Kind",
            "MemoryRecord",
            "Passage",
            "MemoryType",
            "Mode",
            "Moment",
            "Recall",
            "Receipt",
            "Source",
            "Stats",
            "StoredDocument",
            "Tier",
            "Trust",
            "Wished",
            "hit_to_json",
            "receipt_to_json",
            "record_to_json",
        ),
        "find.reindexing": (
            "Calibration",
            "Reindexed",
        ),
        "store.marks": ("Rebuilt",),
        "memory": ("Memory",),
        "text.block": (
            "Said",
            "strip_injected",
        ),
        "transfer.report": (
            "ExportReport",
            "ImportReport",
            "TransferProgress",
            "export_report_to_json",
            "import_report_to_json",
        ),
    },
)
