"""Runs the work of in-process embedding models, one piece at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.to_thread

__all__ = ["Worker"]

Result = TypeVar("Result")


class Worker:
    """Runs blocking pieces of work outside the event loop, one at a time, in the order of arrival.

    A call consists of many pieces. Therefore a question that arrives during a long back-fill waits for one piece only,
    and a cancelled call stops after the current piece. The threads are anyio's, not the event loop's default executor.
    """

    def __init__(self) -> None:
        """Nothing is started yet."""
        self._limiter: anyio.CapacityLimiter | None = None

    async def run(self, work: Callable[[], Result]) -> Result:
        """Run one piece. Cancellation takes effect after it, so that two pieces never overlap.

        Args:
            work: A short function, or one that regularly calls `anyio.from_thread.check_cancelled`.

        Returns:
            The return value of `work`.
        """
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(1)
        return await anyio.to_thread.run_sync(work, limiter=self._limiter)
