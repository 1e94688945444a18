"""Makes the database of a home again from what lies outside of it: the journal, the session logs and the folders of
capabilities.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import anyio.to_thread

from satchel.capabilities.kept import Returned
from satchel.clock import Clock, SystemClock
from satchel.config import Settings
from satchel.errors import Refused, StorageCorrupt, StorageError, StorageUnwritable
from satchel.memory import Rebuilt
from satchel.runtime.capture import Compared, compare
from satchel.runtime.home import Home, clear_loss
from satchel.storage.copies import damage_of, is_in_use


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuiltHome:
    """What was done.

    Attributes:
        journal: What the database took from the journal.
        logs: The messages that were captured again from session logs, and the logs that are damaged.
        capabilities: What was read back from the folders of capabilities.
        aside: Where the damaged database is now; None if it was whole, or missing.
    """

    journal: Rebuilt
    logs: Compared
    capabilities: tuple[Returned, ...]
    aside: Path | None


async def rebuild(settings: Settings) -> RebuiltHome:
    """Compare the database with the journal, the session logs and the records of capabilities, and store what it lacks.
    One that is damaged is set aside, and a new one is made.

    Raises:
        Refused: The database is damaged, and another process uses it.
        StorageError: Memory is off, or something can't be read or written.
    """
    clock = SystemClock()
    place = settings.home_database
    aside = None
    damage = await anyio.to_thread.run_sync(damage_of, place) if place.is_file() else ""
    if damage:
        aside = await anyio.to_thread.run_sync(_set_aside, place, clock)
    async with Home.open(settings, clock=clock, back_fill=False) as home:
        if home.memory is None:
            raise StorageError(
                "Memory is off (memory.enabled) or could not be opened. `satchel doctor` shows why."
            )
        read_back = [(memory.rebuilt, await memory.rebuild()) for memory in await home.memories()]
        logs = await compare(home.sessions, home.memory_in, capture=True)
        catalogue = await home.catalogue()
    clear_loss(settings.home)
    return RebuiltHome(
        journal=Rebuilt(
            memories=sum(part.memories for parts in read_back for part in parts),
            changes=sum(part.changes for parts in read_back for part in parts),
            forgotten=sum(part.forgotten for parts in read_back for part in parts),
        ),
        logs=logs,
        capabilities=catalogue.returned,
        aside=aside,
    )


def _set_aside(place: Path, clock: Clock) -> Path:
    """Move a damaged database away, with what belongs to it."""
    try:
        used = is_in_use(place)
    except StorageCorrupt:
        used = False
    if used:
        raise Refused(f"{place} is damaged, and another process uses it. End that process, and try again.")
    stamp = clock.now().strftime("%Y%m%d-%H%M%S")
    aside = place.with_name(f"{place.name}.damaged-{stamp}")
    try:
        for path in sorted(place.parent.glob(f"{place.name}*")):
            if path.name[len(place.name) :] in ("", "-wal", "-shm"):
                path.rename(aside.with_name(f"{aside.name}{path.name[len(place.name) :]}"))
    except OSError as error:
        raise StorageUnwritable(f"{place} could not be set aside: {error.strerror}.") from error
    return aside
