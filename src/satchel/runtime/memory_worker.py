"""The process that does memory's work after `satchel ask` has ended: it distils, embeds and looks at watched folders,
at low priority, and then compresses old logs.

It finds its work in the database, so the next one continues what a killed one left.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import anyio
import anyio.to_thread

from satchel.config import Settings
from satchel.errors import SatchelError, StorageError
from satchel.memory import Memory
from satchel.runtime.memory_work import LOCK
from satchel.runtime.other_agents.capturing import take_queue
from satchel.runtime.other_agents.notebook import has_queue
from satchel.runtime.retention import retain
from satchel.runtime.satchel import Satchel
from satchel.sandbox.detached import work_lock

_LOOK_S: Final = 1.0
"""How often the database is asked for work: one short read."""


async def run_memory_work(settings: Settings, *, tell: Callable[[str], None]) -> bool:
    """Do memory's work in a home until there has been none for `memory.worker_idle_s`. No line that is told contains
    words of a conversation.

    Returns:
        False if another process of this home is doing it.

    Raises:
        StorageError: The database is unavailable, or failed.
    """
    lock = await anyio.to_thread.run_sync(work_lock, settings.home, LOCK)
    if lock is None:
        return False
    async with Satchel.open(settings, upkeep="none") as satchel:
        if satchel.memory is None:
            lock.release()
            raise StorageError("Memory is off or can't be opened. `satchel doctor` shows why.")
        work = _Work(satchel, satchel.memory, tell)
        while True:
            try:
                await work.until_idle()
                await retain(satchel.home)
            finally:
                lock.release()
            # Whoever stored something while the lock was held has not started another process.
            if not await work.has_news():
                return True
            lock = await anyio.to_thread.run_sync(work_lock, settings.home, LOCK)
            if lock is None:
                return True


class _Work:
    def __init__(self, satchel: Satchel, memory: Memory, tell: Callable[[str], None]) -> None:
        self._satchel = satchel
        self._memory = memory
        self._tell = tell
        self._newest = -1
        self._is_stuck = False
        self._look_at_s = 0.0

    async def has_news(self) -> bool:
        """Whether something was said since it was looked at, here or to another agent."""
        if has_queue(self._satchel.settings.home) and not self._is_stuck:
            return True
        return await self._newest_episode() != self._newest

    async def _newest_episode(self) -> int:
        return max([await memory.newest_episode() for memory in await self._satchel.home.memories()])

    async def until_idle(self) -> None:
        """Work until there has been nothing to do for a while. At the end, conversations that have been silent for as
        long are read: the next one should know what was said, and no process may run before it.
        """
        settings = self._satchel.settings.memory
        clock = self._satchel.clock
        busy_at_s = clock.monotonic_s()
        while True:
            while await self._once():
                busy_at_s = clock.monotonic_s()
            left_s = settings.worker_idle_s - (clock.monotonic_s() - busy_at_s)
            if left_s <= 0:
                break
            await anyio.sleep(min(_LOOK_S, left_s))
        while await self._once(silent_s=settings.worker_idle_s):
            pass
        try:
            if self._satchel.earning is not None:
                await self._satchel.earning.look()
        except StorageError:
            raise
        except SatchelError as error:
            self._tell(f"nothing was noticed: {error}")

    async def _once(self, *, silent_s: float | None = None) -> bool:
        """Do what there is; whether there was anything. `silent_s` is that of `Distilling.read_closed`."""
        settings = self._satchel.settings
        if has_queue(settings.home):
            await take_queue(self._satchel.home, clock=self._satchel.clock, tell=self._tell)
            # A file that can't be removed must not keep the process running.
            self._is_stuck = has_queue(settings.home)
        newest = await self._newest_episode()
        if newest != self._newest:
            self._newest = newest
            self._satchel.distilling.allow_more()
        did = False
        try:
            if self._look_at_s <= (now := self._satchel.clock.monotonic_s()):
                if await self._satchel.watching.look(self._tell):
                    return True
                self._look_at_s = now + settings.memory.watch_every_s
            if did := any([await memory.keep_up() for memory in await self._satchel.home.memories()]):
                self._tell("embedded and read what was new")
            if await self._satchel.describing.describe_next():
                self._tell("described a picture")
                return True
            report = await self._satchel.distilling.read_closed(silent_s=silent_s)
        except StorageError:
            raise
        except SatchelError as error:
            self._tell(f"failed: {error}")
            return did
        if report is not None and report.windows:
            results = ", ".join(window.outcome.replace("_", " ") for window in report.windows)
            self._tell(f"read for facts: {results}; {len(report.facts)} new, {report.pending} still to read")
            return True
        return did
