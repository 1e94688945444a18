"""A home, open, for commands that only look at what is kept: they need no model and no tools, and start faster."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from satchel.cli.output import is_terminal, tell
from satchel.config import Settings
from satchel.runtime.home import Home

__all__ = ["FetchLine", "fetch_line", "opened_home", "tell_notices"]


@asynccontextmanager
async def opened_home(
    settings: Settings, *, with_notices: bool = True, scope: str = "default"
) -> AsyncIterator[Home]:
    """A home, open; what is missing is told on stderr.

    Args:
        settings: See `read_settings`.
        with_notices: Whether it is told.
        scope: Which memories.
    """
    async with Home.open_scope(scope, settings, progress=fetch_line()) as home:
        if with_notices:
            tell_notices(home)
        yield home


def tell_notices(home: Home, *, after: int = 0) -> None:
    """Say what is missing; but for the first `after` notices, which were told."""
    for notice in home.notices[after:]:
        tell(f"! {notice.text}")


def fetch_line(*, beside_prompt: bool = False) -> FetchLine | None:
    """Shows how far the embedding model is fetched, where a person can see it.

    Args:
        beside_prompt: Somebody may be typing meanwhile: it is said once, in a whole line.
    """
    return FetchLine(once=beside_prompt) if is_terminal(sys.stderr) else None


class FetchLine:
    """One line on the terminal that tells how far the embedding model is fetched: once in a home's life."""

    def __init__(self, *, once: bool = False) -> None:
        self._once = once
        self._shown = ""

    def __call__(self, what: str, done: int, total: int) -> None:
        """What is being done, and the bytes done and in all (0: not known). Called from another thread."""
        if self._once:
            if not self._shown:
                self._shown = f"embedding model: {what} {total / 1e6:.0f} MB, this once. Go on meanwhile."
                tell(self._shown)
            return
        part = f"{100 * done // total} %" if total else f"{done / 1e6:.0f} MB"
        line = f"embedding model: {what} {part}"
        if line != self._shown:
            self._shown = line
            end = "\n" if total and done >= total else ""
            print(f"\r\x1b[K{line}{end}", end="", file=sys.stderr, flush=True)
