"""One thread's worth of work at a time, for the embedding models that run in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.to_thread

__all__ = ["Worker"]

Result = TypeVar("Result")


class Worker:
    """Runs blocking pieces of work off the event loop, one at a time, first come first served.

    A call is made of many pieces, so a question that is asked during a long back-fill waits for one piece of
    it and not for its end, and a cancelled call stops after the piece in hand. The threads are anyio's own,
    never the event loop's default executor.
    """

    def __init__(self) -> None:
        """Start nothing yet."""
        self._limiter: anyio.CapacityLimiter | None = None

    async def run(self, work: Callable[[], Result]) -> Result:
        """Run one piece; cancellation takes effect when it is done, so that two never overlap.

        Args:
            work: Short, unless it looks at `anyio.from_thread.check_cancelled` now and then.

        Returns:
            What it returned.
        """
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(1)
        return await anyio.to_thread.run_sync(work, limiter=self._limiter)
