"""What every command that talks to models does first: open it, and tell what is missing."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from satchel.cli.home import fetch_line, tell_notices
from satchel.config import Settings
from satchel.errors import SatchelError
from satchel.runtime import RunningTurn, Satchel

__all__ = ["opened", "settled"]


@asynccontextmanager
async def opened(
    settings: Settings, *, with_notices: bool = True, beside_prompt: bool = False
) -> AsyncIterator[Satchel]:
    """Satchel, open; what is missing is told on stderr.

    Args:
        settings: See `read_settings`.
        with_notices: Whether it is told.
        beside_prompt: See `fetch_line`.
    """
    async with Satchel.open(settings, progress=fetch_line(beside_prompt=beside_prompt)) as satchel:
        if with_notices:
            tell_notices(satchel)
        yield satchel


async def settled(running: RunningTurn) -> None:
    """Interrupt a turn, unless it is over, and let it write down how it ended."""
    running.cancel()
    with anyio.CancelScope(shield=True):
        # Whoever followed the turn was told of its error.
        with contextlib.suppress(SatchelError):
            await running.result()
