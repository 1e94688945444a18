"""Memory: what was said, word for word, and what is known; found by words and by meaning. Usable alone."""

from __future__ import annotations

from satchel.memory.records import (
    Context,
    Episode,
    Forgotten,
    Hit,
    Kind,
    MemoryRecord,
    MemoryType,
    Mode,
    Receipt,
    Source,
    Stats,
    Tier,
    Trust,
    hit_to_json,
    receipt_to_json,
    record_to_json,
)
from satchel.memory.reindexing import Calibration, Reindexed
from satchel.memory.store import Memory
from satchel.memory.surfacing import Said, strip_injected

__all__ = [
    "Calibration",
    "Context",
    "Episode",
    "Forgotten",
    "Hit",
    "Kind",
    "Memory",
    "MemoryRecord",
    "MemoryType",
    "Mode",
    "Receipt",
    "Reindexed",
    "Said",
    "Source",
    "Stats",
    "Tier",
    "Trust",
    "hit_to_json",
    "receipt_to_json",
    "record_to_json",
    "strip_injected",
]
