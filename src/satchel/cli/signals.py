"""Ends the commands that run in the background when they are asked to."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable

import anyio

__all__ = ["until_signal"]


async def until_signal(body: Callable[[], Awaitable[None]]) -> int:
    """Run `body` until it returns, or until SIGTERM or SIGINT cancels it.

    Returns:
        The exit code: 130 after SIGINT, otherwise 0.
    """
    code = 0
    async with anyio.create_task_group() as group:

        async def stop_on_signal() -> None:
            nonlocal code
            with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
                async for number in signals:
                    code = 130 if number == signal.SIGINT else 0
                    group.cancel_scope.cancel()
                    return

        group.start_soon(stop_on_signal)
        await body()
        group.cancel_scope.cancel()
    return code
