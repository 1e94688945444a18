"""The process that builds: takes what is to be built from the database until nothing is left."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import anyio
import anyio.from_thread
import anyio.to_thread

from satchel.builder.executors import BEAT_S, WORKER, Executors
from satchel.builder.records import Build
from satchel.errors import SatchelError, StorageError
from satchel.sandbox.detached import WorkerLock

__all__ = ["JobRunner", "BuildWorker", "WorkerReport"]

_log = logging.getLogger(__name__)

_LOOK_S: Final = 0.5
"""How often the database is asked for builds: one short read."""
_PATIENCE: Final = 20
"""Looks without anything to do before a worker that was started for one build ends: ten seconds, in which the user may
ask for the next one."""


class JobRunner(Protocol):
    """See `satchel.builder.jobs.BuildJobs`. All of it blocks."""

    def ensure(self, build_id: str, attempts: int) -> None: ...  # noqa: D102
    def take_over(self, alive: frozenset[str]) -> int: ...  # noqa: D102
    def close(self) -> None: ...  # noqa: D102


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReport:
    """What a worker did.

    Attributes:
        is_elsewhere: Another process of this home is the worker, so this one did nothing.
        ended: The builds that ended while it worked.
    """

    is_elsewhere: bool = False
    ended: tuple[Build, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildWorker:
    """Runs the builds of a home.

    Attributes:
        waiting: The builds that a worker can go on with. Adopts requests that have no build yet.
        build: Runs one build to its end.
        launch: Starts the job runner; blocks. It is given the function that runs a build in one of its threads.
        tell: Says what happens, for a log.
    """

    home: Path
    executors: Executors
    waiting: Callable[[], Awaitable[Sequence[Build]]]
    build: Callable[[str], Awaitable[Build]]
    launch: Callable[[Callable[[str], None]], JobRunner]
    tell: Callable[[str], None]

    async def run(self, *, once: bool, patience: int = _PATIENCE) -> WorkerReport:
        """Work until nothing is left (`once`), or until it is cancelled.

        Args:
            once: End when there has been nothing to do for a while.
            patience: How many looks without anything to do that is.

        Raises:
            StorageError: The database failed.
        """
        ended: list[Build] = []
        while True:
            lock = await anyio.to_thread.run_sync(WorkerLock.acquire, self.home, WORKER)
            if lock is None:
                return WorkerReport(is_elsewhere=True, ended=tuple(ended))
            try:
                await self._work(ended, once=once, patience=patience)
            finally:
                lock.release()
            # Whoever asked for a build while the lock was held has not started another worker.
            if not await self.waiting():
                return WorkerReport(ended=tuple(ended))

    async def _work(self, ended: list[Build], *, once: bool, patience: int) -> None:
        await self.executors.beat()
        async with anyio.from_thread.BlockingPortal() as portal:

            async def run_build(build_id: str) -> None:
                self.tell(f"build {build_id}: begins, or goes on")
                build = await self.build(build_id)
                if build.has_ended:
                    ended.append(build)
                self.tell(f"{build.name}: {build.status}. {build.outcome}".rstrip())

            def run(build_id: str) -> None:
                """Called in a thread of the job runner."""
                try:
                    portal.call(run_build, build_id)
                except SatchelError as error:
                    # The job counts as failed and is followed by another one.
                    self.tell(f"build {build_id}: {error}")
                    raise

            jobs = await anyio.to_thread.run_sync(self.launch, run)
            try:
                async with anyio.create_task_group() as group:
                    group.start_soon(self._beat)
                    await self._dispatch(jobs, once=once, patience=patience)
                    group.cancel_scope.cancel()
            finally:
                with anyio.CancelScope(shield=True):
                    # Builds that are running stop where they are; the next worker continues them.
                    await portal.stop(cancel_remaining=True)
                    await anyio.to_thread.run_sync(jobs.close)
                    await self._leave()

    async def _dispatch(self, jobs: JobRunner, *, once: bool, patience: int) -> None:
        idle = 0
        while idle < patience or not once:
            alive = await self.executors.alive()
            await anyio.to_thread.run_sync(jobs.take_over, alive)
            waiting = await self.waiting()
            for build in waiting:
                await anyio.to_thread.run_sync(jobs.ensure, build.id, build.attempts)
            idle = 0 if waiting else idle + 1
            await anyio.sleep(_LOOK_S)

    async def _beat(self) -> None:
        while True:
            await anyio.sleep(BEAT_S)
            try:
                await self.executors.beat()
            except StorageError as error:
                _log.warning("The heartbeat could not be written: %s", error)

    async def _leave(self) -> None:
        try:
            await self.executors.leave()
        except StorageError as error:
            _log.warning("The heartbeat could not be removed: %s", error)
