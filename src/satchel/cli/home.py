"""Opens a home for commands that need neither a model nor tools; they start faster than with all of Satchel."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from satchel.cli.output import is_terminal, tell
from satchel.config import Settings
from satchel.events import Notice
from satchel.runtime.home import Home


@asynccontextmanager
async def opened_home(
    settings: Settings, *, with_notices: bool = True, scope: str = "default"
) -> AsyncIterator[Home]:
    """An open home; stderr reports the parts that are missing.

    Args:
        settings: See `read_settings`.
        with_notices: Whether all missing parts are reported; otherwise only conversations that are. What was held
            back at the user's word always is.
        scope: The scope of its memories.
    """
    async with Home.open(settings, scope=scope, progress=fetch_line()) as home:
        tell_notices([one for one in home.notices if with_notices or one.part in ("sessions", "discretion")])
        yield home


def tell_notices(notices: Sequence[Notice], *, after: int | None = None) -> None:
    """Print what is missing to stderr.

    Args:
        notices: On the board.
        after: Print those after this many, while a session was opened. Its first turn tells which MCP servers are
            down, so they are left out.
    """
    for notice in notices[after:]:
        if after is None or notice.part != "mcp":
            tell(f"! {notice.text}")


def fetch_line(*, beside_prompt: bool = False) -> FetchLine | None:
    """Shows the progress of fetching the embedding model; None without a terminal.

    Args:
        beside_prompt: The user may be typing meanwhile: show one line once, instead of one that changes.
    """
    return FetchLine(once=beside_prompt) if is_terminal(sys.stderr) else None


class FetchLine:
    """One line on the terminal with the progress of fetching the embedding model, which happens once in a home."""

    def __init__(self, *, once: bool = False) -> None:
        self._once = once
        self._shown = ""
        self._stream = sys.stderr

    def __call__(self, what: str, done: int, total: int) -> None:
        """Show the step, the bytes done, and the bytes in total (0: unknown). Called from another thread."""
        # A progress bar of rich takes the place of the stream, and lets each line stand above itself.
        if self._once or sys.stderr is not self._stream:
            if not self._shown:
                self._shown = (
                    f"embedding model: {what} {total / 1e6:.0f} MB, only once. You can continue meanwhile."
                )
                tell(self._shown)
            return
        part = f"{100 * done // total} %" if total else f"{done / 1e6:.0f} MB"
        line = f"embedding model: {what} {part}"
        if line != self._shown:
            self._shown = line
            end = "\n" if total and done >= total else ""
            print(f"\r\x1b[K{line}{end}", end="", file=sys.stderr, flush=True)
