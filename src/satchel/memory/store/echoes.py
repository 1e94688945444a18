"""Lines of a surfaced block that come back alone: pasted by the user, or repeated by a model.

A whole block is recognised by its frame (`block.strip_injected`). A line alone has none, and people write lists of
the same look; so it counts as Satchel's own only if a memory in the store would be shown in exactly these words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import cache, partial
from itertools import islice
from typing import Final

from sqlalchemy import Connection

from satchel.memory.records import MemoryRecord
from satchel.memory.store.filters import CheckedFilters
from satchel.memory.store.repository import list_records, records_by_id
from satchel.memory.store.statement_rows import find_beginning
from satchel.memory.text.block import TAGS, strip_injected
from satchel.memory.text.framing import EARLIER, OVER, origin_of, quoted

_LINE: Final = re.compile(
    r'^[ \t]*- (?P<head>(?P<day>\d{4}-\d\d-\d\d)(?: [A-Z][a-z]{2})?, [^\n"]{1,400}?): '
    rf'(?P<words>"(?:[^"\\\n]|\\.)*")(?:{EARLIER})?[ \t]*(?:\r?\n|\Z)',
    re.MULTILINE,
)
_STANDING: Final = re.compile(
    r"^[ \t]*(?:(?:by |until )?[A-Z][a-z]{2} \d{4}-\d\d-\d\d "
    r"(?:to [A-Z][a-z]{2} \d{4}-\d\d-\d\d )?)?"
    r'(?P<id>[a-z]\w{7}) (?:\d{4}-\d\d-\d\d )?(?P<words>"(?:[^"\\\n]|\\.)*")'
    r'(?:; "(?:[^"\\\n]|\\.)*")*[ \t]*(?:\r?\n|\Z)',
    re.MULTILINE,
)
"""A line of a profile or an agenda."""
_MOST_STANDING: Final = 100
"""A profile has about ten lines."""
_WEEKDAY: Final = re.compile(r"^(\d{4}-\d\d-\d\d) [A-Z][a-z]{2}(?=,)")
_PART: Final = re.compile(rf"(?:{OVER})?(?:, part \d+ of \d+)?$")
_MOST_OF_A_DAY: Final = 5_000
"""Memories of one day that a line is compared with; more come from an import, and the rest is left alone."""


def may_repeat(text: str) -> bool:
    """Whether there is a line to look up at all."""
    return ("- " in text and _LINE.search(text) is not None) or _STANDING.search(text) is not None


def said_only(connection: Connection, space: int, text: str) -> str:
    """The text without what Satchel itself put into the conversation: whole blocks, and lines of them."""
    text = _without_standing(connection, space, strip_injected(text))
    said_on = cache(partial(_said_on, connection, space))
    return _cut(text, [line.span() for line in _LINE.finditer(text) if _is_shown(line, said_on)])


def _cut(text: str, spans: Sequence[tuple[int, int]]) -> str:
    """The text without some lines of it. The tags of a block that lost its first line say nothing alone."""
    starts, ends = [start for start, _ in spans], [0, *(end for _, end in spans)]
    kept = "".join(text[end:start] for end, start in zip(ends, [*starts, len(text)], strict=True))
    return TAGS.sub("", kept) if spans else text


def _without_standing(connection: Connection, space: int, text: str) -> str:
    """The text without lines of a profile or an agenda: those whose id names a memory that has their words."""

    def is_shown(match: re.Match[str]) -> bool:
        records = records_by_id(connection, space, find_beginning(connection, space, match["id"]))
        return any(match["words"][1:-1] in quoted(record.content) for record in records.values())

    found = islice(_STANDING.finditer(text), _MOST_STANDING)
    return _cut(text, [match.span() for match in found if is_shown(match)])


def _said_on(connection: Connection, space: int, day: date) -> Sequence[MemoryRecord]:
    """The memories of a day, in whatever zone it was that day."""
    noon = datetime(day.year, day.month, day.day, 12, tzinfo=UTC)
    within = CheckedFilters(since=noon - timedelta(hours=38), until=noon + timedelta(hours=38))
    return list_records(connection, space, within, limit=_MOST_OF_A_DAY, offset=0)


def _is_shown(line: re.Match[str], said_on: Callable[[date], Sequence[MemoryRecord]]) -> bool:
    try:
        words = json.loads(line["words"], strict=False)
        records = said_on(date.fromisoformat(line["day"]))
    except (ValueError, OverflowError):  # no day, or the first or last that there is
        return False
    inner = json.dumps(words.removeprefix("… ").removesuffix(" …"), ensure_ascii=False)[1:-1]
    head = _plain(line["head"])
    return any(_plain(origin_of(record)) == head and inner in quoted(record.content) for record in records)


def _plain(head: str) -> str:
    """A line's head without the name of the day, which earlier blocks lacked, and without the place of a passage."""
    return _PART.sub("", _WEEKDAY.sub(r"\1", head, count=1))
