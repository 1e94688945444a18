"""The profile and the agenda, stored for hooks as positions of words in memories, so that hooks need not compose them.

The file contains no words, so memories that were forgotten, edited or superseded since are never shown from it.
"""

from __future__ import annotations

import json
import os
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from satchel.config.home import ensure_home, replace_file
from satchel.memory.glance import KeptLine, changed_of, space_of
from satchel.storage.reading import reading

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.clock import Clock
    from satchel.memory import Memory
    from satchel.memory.records import MemoryRecord

__all__ = ["KeptStanding", "keep_standing", "read_standing"]

_AHEAD_DAYS: Final = 21
"""How far ahead appointments are stored. A hook shows the next eight days, so the file can be used for two weeks."""
_PROFILE_TOKENS: Final = 600
_AGENDA_TOKENS: Final = 400
"""Twice what is shown, so that there are replacements for memories that no longer hold."""
_MOST_BYTES: Final = 1 << 20
_BUSY_MS: Final = 2_000


class KeptStanding(NamedTuple):
    """The stored profile and agenda.

    Attributes:
        day: When, in ISO 8601.
    """

    profile: tuple[KeptLine, ...] = ()
    agenda: tuple[KeptLine, ...] = ()
    day: str = ""


async def keep_standing(memory: Memory, *, home: Path, database: Path, clock: Clock) -> None:
    """Compose the profile and the agenda, and store the positions of their words.

    Raises:
        StorageError: The database can't be read.
        StorageUnwritable: The file can't be written.
    """
    profile = await memory.profile(budget_tokens=_PROFILE_TOKENS)
    agenda = await memory.agenda(budget_tokens=_AGENDA_TOKENS, ahead_days=_AHEAD_DAYS)
    ids = [memory.id for line in (*profile.memories, *agenda.memories) for memory in line.sources]
    with reading(database, busy_timeout_ms=_BUSY_MS, is_late=lambda: False) as rows:
        space = space_of(rows)
        changed = {} if space is None or not ids else changed_of(rows, space, ids)
    kept = KeptStanding(
        profile=tuple(
            one for line in profile.memories if (one := _kept(line.memory, line.words, changed)) is not None
        ),
        agenda=tuple(
            one._replace(
                first=line.first.isoformat(),
                last=line.last.isoformat(),
                doubt=line.doubt,
                lead=line.lead,
                is_never_dropped=line.is_never_dropped,
            )
            for line in agenda.memories
            for memory, words in ((line.memory, line.words), *line.more)
            if (one := _kept(memory, words, changed)) is not None
        ),
        day=clock.now().date().isoformat(),
    )
    path = _file(home)
    text = json.dumps(kept._asdict()) + "\n"
    if _text_of(path) != text:
        ensure_home(path.parent)
        replace_file(path, text)


def _kept(memory: MemoryRecord, words: str, changed: dict[str, int]) -> KeptLine | None:
    start = memory.content.find(words)
    if start < 0 or memory.id not in changed:
        return None
    return KeptLine(id=memory.id, changed=changed[memory.id], start=start, length=len(words))


def read_standing(home: Path) -> KeptStanding | None:
    """The stored profile and agenda; None if there is none or the file is damaged."""
    try:
        found = json.loads(_text_of(_file(home)))
        return KeptStanding(_lines(found["profile"]), _lines(found["agenda"]), str(found["day"]))
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _lines(found: Sequence[Sequence[Any]]) -> tuple[KeptLine, ...]:
    lines = tuple(KeptLine(*line) for line in found)
    for line in lines:
        for day in filter(None, (line.first, line.last)):
            datetime.fromisoformat(day)
        if not all(isinstance(one, int) for one in line[1:4]):
            raise TypeError(line)
    return lines


def _file(home: Path) -> Path:
    return home / "agents" / "standing.json"


def _text_of(path: Path) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            return file.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
