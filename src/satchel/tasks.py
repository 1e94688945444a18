"""Tasks that run beside a block and end with it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup


@asynccontextmanager
async def background_tasks() -> AsyncIterator[TaskGroup]:
    """A task group that is cancelled when the block ends. An error of the block is raised as it is, and not inside an
    `ExceptionGroup`, so that callers can catch it by its class.
    """
    failure: Exception | None = None
    async with anyio.create_task_group() as group:
        try:
            yield group
        except Exception as error:  # noqa: BLE001 - raised again below, where the group can't wrap it
            failure = error
        group.cancel_scope.cancel()
    if failure is not None:
        raise failure
