"""What every command that needs Satchel does first: open it, and tell what is missing."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio

from satchel.cli.output import is_terminal, tell
from satchel.config import Settings
from satchel.errors import SatchelError
from satchel.runtime.home import Home

if TYPE_CHECKING:
    from satchel.runtime import RunningTurn, Satchel

__all__ = ["FetchLine", "opened", "opened_home", "settled"]


@asynccontextmanager
async def opened(settings: Settings, *, with_notices: bool = True) -> AsyncIterator[Satchel]:
    """Satchel, open; what is missing is told on stderr.

    Args:
        settings: See `read_settings`.
        with_notices: Whether it is told.
    """
    # Imported when a conversation is wanted: searching memory starts a third faster without.
    from satchel.runtime.satchel import Satchel

    async with Satchel.open(settings, progress=_fetch_line()) as satchel:
        if with_notices:
            _tell_notices(satchel)
        yield satchel


@asynccontextmanager
async def opened_home(settings: Settings, *, with_notices: bool = True) -> AsyncIterator[Home]:
    """The same without models and tools, for commands that only look at what is kept."""
    async with Home.open(settings, progress=_fetch_line()) as home:
        if with_notices:
            _tell_notices(home)
        yield home


def _fetch_line() -> FetchLine | None:
    return FetchLine() if is_terminal(sys.stderr) else None


def _tell_notices(home: Home) -> None:
    for notice in home.notices:
        tell(f"! {notice.text}")


async def settled(running: RunningTurn) -> None:
    """Interrupt a turn, unless it is over, and let it write down how it ended."""
    running.cancel()
    with anyio.CancelScope(shield=True):
        # Whoever followed the turn was told of its error.
        with contextlib.suppress(SatchelError):
            await running.result()


class FetchLine:
    """One line on the terminal that tells how far the embedding model is fetched: once in a home's life."""

    def __init__(self) -> None:
        self._shown = ""

    def __call__(self, what: str, done: int, total: int) -> None:
        """What is being done, and the bytes done and in all (0: not known). Called from another thread."""
        part = f"{100 * done // total} %" if total else f"{done / 1e6:.0f} MB"
        line = f"embedding model: {what} {part}"
        if line != self._shown:
            self._shown = line
            end = "\n" if total and done >= total else ""
            print(f"\r\x1b[K{line}{end}", end="", file=sys.stderr, flush=True)
