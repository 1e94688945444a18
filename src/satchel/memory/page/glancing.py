"""The page for a hook of another agent, which has no time to open a store: plain SQL, and rendered as always."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

    from satchel.memory.page.records import Page
    from satchel.memory.records import MemoryRecord

__all__ = ["page_at_a_glance"]

Rows: TypeAlias = Callable[[str, Sequence[Any]], "Iterable[Sequence[Any]]"]

_MOST_PINS: Final = 100
_LIVE: Final = (
    "space_id = ? AND trust <> 'outside' AND discretion = 'open' AND (valid_to IS NULL OR valid_to > ?) "
    "AND (valid_from IS NULL OR valid_from <= ?)"
)


def page_at_a_glance(rows: Rows, *, space: int, now: datetime, budget_tokens: int) -> Page | None:
    """The page as `Memory.page` shows it; None where there is none that models may see.

    Raises:
        StorageError: The database can't be read.
    """
    if budget_tokens <= 0:
        return None
    newest = next(
        iter(
            rows(
                "SELECT number, written_at, state, lines FROM memory_pages WHERE space_id = ? "
                "ORDER BY number DESC LIMIT 1",
                (space,),
            )
        ),
        None,
    )
    if newest is None or newest[2] != "used":
        return None
    # Most homes have no page, and what renders one takes 30 ms to load.
    from satchel.memory.page.records import PageVersion, lines_from_json  # noqa: PLC0415
    from satchel.memory.page.rendering import rendered  # noqa: PLC0415

    written_at = datetime.fromtimestamp(newest[1] / 1_000_000, UTC).astimezone(now.tzinfo)
    version = PageVersion(
        number=newest[0],
        written_at=written_at,
        by="model",
        model="",
        state="used",
        changed=0,
        lines=lines_from_json(json.loads(newest[3])),
    )
    ids = json.dumps(sorted({id for line in version.lines for id in line.facts}))
    at = int(now.timestamp() * 1_000_000)
    columns = "SELECT id, content, said_at, said_offset_min FROM memories"
    held = rows(
        f"{columns} WHERE {_LIVE} AND id IN (SELECT value FROM json_each(?))",  # noqa: S608 - constants
        (space, at, at, ids),
    )
    pinned = rows(
        f"{columns} WHERE {_LIVE} AND pinned = 1 ORDER BY rid LIMIT {_MOST_PINS}",
        (space, at, at),
    )
    return rendered(
        version,
        {row[0]: _record(row) for row in held},
        [_record(row) for row in pinned],
        today=now.date(),
        budget_tokens=budget_tokens,
        confidential=False,
    )


def _record(row: Sequence[Any]) -> MemoryRecord:
    """A memory as far as a page needs it."""
    from satchel.memory.records import MemoryRecord, Source  # noqa: PLC0415

    said_at = datetime.fromtimestamp(row[2] / 1_000_000, UTC) + timedelta(minutes=row[3])
    return MemoryRecord(
        id=row[0],
        content=row[1],
        kind="fact",
        tier="long_term",
        memory_type="general",
        importance=3,
        priority=0.0,
        decay_rate=0.0,
        tags=(),
        speaker="",
        said_at=said_at,
        valid_from=None,
        valid_to=None,
        source=Source(),
        trust="user",
        created_at=said_at,
        last_accessed=None,
        access_count=0,
        scope="",
        user="",
    )
