"""One thread of its own for work that would block the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import anyio

T = TypeVar("T")


class OneThread:
    """A thread that runs functions one after the other, so that what they share needs no lock."""

    def __init__(self, name: str) -> None:
        """The thread starts with the first function."""
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)

    async def run(self, function: Callable[..., T], *args: object) -> T:
        """Run a function; a caller that is cancelled waits for it."""
        running = asyncio.wrap_future(self._pool.submit(function, *args))
        with anyio.CancelScope(shield=True):
            await asyncio.wait([running])
        return running.result()

    def close(self) -> None:
        """Wait for the function that is running, and end the thread."""
        self._pool.shutdown()
