"""Captures what hooks of other agents have queued: transcripts that have grown, and messages."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from satchel.clock import Clock
from satchel.config import Settings, load
from satchel.errors import NotFound, SatchelError, UsageError
from satchel.memory import Episode
from satchel.runtime.home import Home
from satchel.runtime.importing import import_into
from satchel.runtime.other_agents.notebook import Queued, has_queue, queued

if TYPE_CHECKING:
    from satchel.runtime.satchel import Satchel

_WITH_TRANSCRIPTS: Final = ("claude-code", "codex")
_log = logging.getLogger(__name__)

_MOST_BYTES: Final = 1 << 30
_KEPT_DAYS: Final = 60
"""How long after a conversation's last event the memories that it was shown are remembered."""


class AgentsQueue:
    """Captures the queue in the background of an open Satchel, one run at a time."""

    def __init__(self, satchel: Satchel) -> None:
        """`satchel` stays open as long as this is used."""
        self._satchel = satchel
        self._is_running = False
        self._again = False

    def notify(self) -> None:
        """Start a run: something may have been queued."""
        self._again = True
        if not self._is_running:
            self._is_running = True
            self._satchel.parts.background.start(self._run)

    async def _run(self) -> None:
        try:
            while self._again:
                self._again = False
                await self._take()
        finally:
            self._is_running = False

    async def _take(self) -> None:
        satchel, settings = self._satchel, self._satchel.settings
        memory = satchel.memory
        if memory is None or not await anyio.to_thread.run_sync(has_queue, settings.home):
            return
        try:
            if await take_queue(satchel.home, clock=satchel.clock, tell=_log.info):
                satchel.distilling.notify()
        except SatchelError as error:
            _log.warning("What other agents queued is not captured yet: %s", error)


async def take_queue(home: Home, *, clock: Clock, tell: Callable[[str], None]) -> int:
    """Capture the queue. For an agent in a trusted project, the project's settings apply. No line that is told contains
    words of a conversation.

    Returns:
        How many memories are new.

    Raises:
        StorageError: The database failed; what is left waits.
    """
    settings = home.settings
    waiting = await anyio.to_thread.run_sync(queued, settings.home)
    new = 0
    keeps: dict[str, bool] = {}
    for one in waiting:
        if one.cwd not in keeps:
            keeps[one.cwd] = await anyio.to_thread.run_sync(_keeps_memory, settings, one.cwd)
        try:
            if keeps[one.cwd]:
                new += await _take(home, one)
        except (NotFound, UsageError) as error:
            tell(f"not captured: {error}")
        await anyio.to_thread.run_sync(_take_away, one)
    if waiting:
        tell(f"captured from other agents: {new} new")
        await anyio.to_thread.run_sync(_drop_stale, settings.home, clock.now())
    return new


async def _take(home: Home, one: Queued) -> int:
    memory = home.memory
    if memory is None:
        raise NotFound("Memory is off or could not be opened.")
    if not one.transcript:
        said_at = datetime.fromisoformat(one.said_at) if one.said_at else None
        ids = await memory.add_episodes(
            [
                Episode(
                    session=one.key,
                    turn=one.turn,
                    position=one.position,
                    speaker=one.role,
                    text=one.text,
                    said_at=said_at,
                    trust="user" if one.role == "user" else "agent",
                )
            ]
        )
        return len(ids)
    path = Path(one.transcript)
    if one.dialect not in _WITH_TRANSCRIPTS:
        raise UsageError(f"{one.dialect} has no transcripts that can be read.")
    stat = await anyio.to_thread.run_sync(_stat_of, path)
    if stat is None or stat > _MOST_BYTES:
        raise NotFound(f"There is no transcript {path}, or it is larger than {_MOST_BYTES >> 20} MB.")
    report = await import_into(home, memory, path, source=one.dialect)
    return report.new


def _stat_of(path: Path) -> int | None:
    """The size of a regular file, or None."""
    try:
        return path.stat().st_size if path.is_file() else None
    except OSError:
        return None


def _keeps_memory(settings: Settings, cwd: str) -> bool:
    """Whether conversations in that folder become memories."""
    if not cwd or not Path(cwd).is_dir():
        return settings.keeps_memory
    try:
        return load({**settings.environ, **settings.secrets}, cwd=Path(cwd), home=settings.home).keeps_memory
    except SatchelError:
        return False  # Its settings can't be read, so nothing is captured.


def _take_away(one: Queued) -> None:
    """Remove a file from the queue, unless there is a newer one of its name."""
    with suppress(OSError):
        if one.path.stat().st_mtime_ns == one.stamp:
            one.path.unlink()


def _drop_stale(home: Path, now: datetime) -> None:
    """Remove the records of conversations that ended long ago."""
    before = (now - timedelta(days=_KEPT_DAYS)).timestamp()
    with suppress(OSError):
        for path in (home / "agents" / "conversations").iterdir():
            with suppress(OSError):
                if path.stat().st_mtime < before:
                    path.unlink()
