"""Ends commands in good order when they are asked to."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Final, TypeVar

import anyio

from satchel.clock import SystemClock

_T = TypeVar("_T")
_ONE_WISH_S: Final = 10.0
"""Ctrl-C within this time of the last one that counted says nothing new."""


def run_in_good_order(body: Callable[[], Awaitable[_T]]) -> _T:
    """Run `body`; Ctrl-C cancels it, and further ones let it write how it ended.

    With asyncio alone, a second Ctrl-C is raised wherever the program is. That is left to those who still press it
    after `_ONE_WISH_S`.
    """
    heard_s: float | None = None

    async def heard() -> _T:
        before, clock = signal.getsignal(signal.SIGINT), SystemClock()

        def once(number: int, frame: FrameType | None) -> None:
            nonlocal heard_s
            if (heard_s is None or clock.monotonic_s() - heard_s >= _ONE_WISH_S) and callable(before):
                heard_s = clock.monotonic_s()
                before(number, frame)

        if not callable(before):
            return await body()
        signal.signal(signal.SIGINT, once)
        try:
            return await body()
        finally:
            if heard_s is None:
                signal.signal(signal.SIGINT, before)

    try:
        return anyio.run(heard)
    finally:
        if heard_s is not None:  # The process is about to end, and says with which code.
            signal.signal(signal.SIGINT, signal.SIG_IGN)


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
