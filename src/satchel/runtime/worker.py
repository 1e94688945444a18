"""The worker process: an open home with models and a sandbox, and the job runner on top."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from uuid import uuid4

from satchel.builder.worker import BuildWorker, WorkerReport
from satchel.config import Settings
from satchel.errors import StorageError
from satchel.runtime.satchel import Satchel


async def run_worker(settings: Settings, *, once: bool, tell: Callable[[str], None]) -> WorkerReport:
    """Run the builds of a home. With `once`, return when there has been nothing to do for a while; otherwise run until
    cancelled.

    Raises:
        StorageError: The database is unavailable, or failed.
    """
    # The Builder is told what the conversation and the profile say. Other processes capture and embed.
    quiet = replace(settings, memory=replace(settings.memory, capture=False))
    async with Satchel.open(quiet, embedder="none", upkeep="none") as satchel:
        parts = satchel.capabilities
        if parts is None or satchel.home.made is None:
            raise StorageError("The database can't be opened. `satchel doctor` shows why.")
        builds = parts.builds
        worker = BuildWorker(
            home=settings.home,
            executor=f"{os.getpid()}-{uuid4().hex}",
            workers=settings.builder.workers,
            waiting=builds.waiting,
            build=builds.builder().build,
            tell=tell,
        )
        return await worker.run(once=once)
