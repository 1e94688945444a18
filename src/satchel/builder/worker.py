"""The process that builds: takes what is to be built from the database until nothing is left."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import anyio.from_thread
import anyio.to_thread

from satchel.builder.records import Build
from satchel.errors import SatchelError
from satchel.sandbox.detached import work_lock

if TYPE_CHECKING:
    from satchel.builder.jobs import BuildJobs

WORKER: Final = "worker"
"""The name of the lock that one process of a home holds; the kernel releases it when the process dies."""
_LOOK_S: Final = 0.5
"""How often the database is asked for builds: one short read."""
_PATIENCE: Final = 20
"""Looks without anything to do before a worker that was started for one build ends: ten seconds, in which the user may
ask for the next one."""


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
        executor: A name for this process, never used twice.
        tell: Says what happens, for a log.
    """

    home: Path
    waiting: Callable[[], Awaitable[Sequence[Build]]]
    build: Callable[[str], Awaitable[Build]]
    executor: str
    workers: int
    tell: Callable[[str], None]

    async def run(self, *, once: bool, patience: int = _PATIENCE) -> WorkerReport:
        """Work until there was nothing to do for `patience` looks (`once`), or until it is cancelled.

        Raises:
            StorageError: The database failed.
        """
        ended: list[Build] = []
        while True:
            lock = await anyio.to_thread.run_sync(work_lock, self.home, WORKER)
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

            jobs = await anyio.to_thread.run_sync(self._launch, run)
            try:
                await self._dispatch(jobs, once=once, patience=patience)
            finally:
                with anyio.CancelScope(shield=True):
                    # Builds that are running stop where they are; the next worker continues them.
                    await portal.stop(cancel_remaining=True)
                    await anyio.to_thread.run_sync(jobs.close)

    def _launch(self, run: Callable[[str], None]) -> BuildJobs:
        # It takes seconds to load, and only a process that has the lock needs it.
        from satchel.builder.jobs import BuildJobs  # noqa: PLC0415

        return BuildJobs(self.home / "jobs.db", executor=self.executor, workers=self.workers, run=run)

    async def _dispatch(self, jobs: BuildJobs, *, once: bool, patience: int) -> None:
        # The lock says that no other worker of this home is alive.
        await anyio.to_thread.run_sync(jobs.take_over)
        idle = 0
        while idle < patience or not once:
            waiting = await self.waiting()
            for build in waiting:
                await anyio.to_thread.run_sync(jobs.ensure, build.id, build.attempts)
            idle = 0 if waiting else idle + 1
            await anyio.sleep(_LOOK_S)
