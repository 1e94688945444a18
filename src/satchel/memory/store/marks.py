"""What the journal and its database tell each other; see `memory.journal`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """How far a journal has got: the highest numbers in it of memories, history entries and distilled windows.

    Attributes:
        changed: The number of the space's last change then.
        distilled: The time of the last episode that was marked as distilled, in microseconds since 1970.
        page: The number of the newest version of the page.
        size: Of the journal, in bytes; 0 where there is none.
        stamp: Stands in the journal's first line, and is another one whenever lines were taken out of it.
    """

    rid: int = 0
    change: int = 0
    window: int = 0
    changed: int = 0
    distilled: int = 0
    page: int = 0
    size: int = 0
    stamp: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """What a database took back from its journal.

    Attributes:
        memories: That were missing.
        changes: Corrections, pins and links that were missing.
        forgotten: That were forgotten, and were in the database again.
    """

    memories: int = 0
    changes: int = 0
    forgotten: int = 0


@dataclass(slots=True)
class There:
    """What was found in the journal: the memories, and the history entries by their numbers in the database."""

    ids: set[str] = field(default_factory=set)
    changes: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingLines:
    """What a journal doesn't have yet.

    Attributes:
        head: The first line, but for the stamp.
        lines: To append.
        drop: The memories whose lines are taken out before that.
        mark: After it, but for size and stamp.
    """

    head: Mapping[str, Any]
    lines: list[bytes]
    drop: set[str]
    mark: Mark
