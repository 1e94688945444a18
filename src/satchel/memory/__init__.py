"""Memory: what was said, word for word, and what is known; found by words and by meaning. Usable alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel.lazy import on_demand

if TYPE_CHECKING:
    from satchel.memory.checkup import Checkup as Checkup
    from satchel.memory.checkup import Repaired as Repaired
    from satchel.memory.checkup import checkup_to_json as checkup_to_json
    from satchel.memory.distill.records import DistillReport as DistillReport
    from satchel.memory.distill.records import DistillStatus as DistillStatus
    from satchel.memory.distill.records import WindowResult as WindowResult
    from satchel.memory.find.reindexing import Reindexed as Reindexed
    from satchel.memory.memory import Memory as Memory
    from satchel.memory.records import Context as Context
    from satchel.memory.records import Discretion as Discretion
    from satchel.memory.records import Episode as Episode
    from satchel.memory.records import Forgotten as Forgotten
    from satchel.memory.records import Hit as Hit
    from satchel.memory.records import Kind as Kind
    from satchel.memory.records import MemoryRecord as MemoryRecord
    from satchel.memory.records import MemoryType as MemoryType
    from satchel.memory.records import Mode as Mode
    from satchel.memory.records import Moment as Moment
    from satchel.memory.records import Passage as Passage
    from satchel.memory.records import Recall as Recall
    from satchel.memory.records import Receipt as Receipt
    from satchel.memory.records import Source as Source
    from satchel.memory.records import Stats as Stats
    from satchel.memory.records import StoredDocument as StoredDocument
    from satchel.memory.records import Tier as Tier
    from satchel.memory.records import Trust as Trust
    from satchel.memory.records import Wished as Wished
    from satchel.memory.records import hit_to_json as hit_to_json
    from satchel.memory.records import receipt_to_json as receipt_to_json
    from satchel.memory.records import record_to_json as record_to_json
    from satchel.memory.show.agenda import Agenda as Agenda
    from satchel.memory.show.agenda import AgendaLine as AgendaLine
    from satchel.memory.show.page.records import Page as Page
    from satchel.memory.show.profile import Profile as Profile
    from satchel.memory.show.profile import ProfileLine as ProfileLine
    from satchel.memory.store.decay import priority_now as priority_now
    from satchel.memory.store.decay import recency_weight as recency_weight
    from satchel.memory.store.filters import Filters as Filters
    from satchel.memory.store.graph import RELATIONS as RELATIONS
    from satchel.memory.store.graph import Edge as Edge
    from satchel.memory.store.graph import Related as Related
    from satchel.memory.store.graph import Successor as Successor
    from satchel.memory.store.history import Change as Change
    from satchel.memory.store.marks import Rebuilt as Rebuilt
    from satchel.memory.store.page_lines import PageLine as PageLine
    from satchel.memory.store.page_lines import PageVersion as PageVersion
    from satchel.memory.store.page_lines import version_to_json as version_to_json
    from satchel.memory.text.block import Said as Said
    from satchel.memory.text.block import strip_injected as strip_injected
    from satchel.memory.text.dates import ResolvedDate as ResolvedDate
    from satchel.memory.text.dates import resolve_dates as resolve_dates
    from satchel.memory.transfer.report import ExportReport as ExportReport
    from satchel.memory.transfer.report import ImportReport as ImportReport
    from satchel.memory.transfer.report import TransferProgress as TransferProgress
    from satchel.memory.transfer.report import import_report_to_json as import_report_to_json

# A search needs no dates, and a date no database.
__getattr__ = on_demand(__name__)
