"""Opens Satchel for the commands that talk to models, and reports what is missing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

import anyio

from satchel.cli.home import fetch_line, tell_notices
from satchel.cli.output import tell
from satchel.config import Settings
from satchel.runtime import RunningTurn, Satchel, TurnResult

_EXIT = {"done": 0, "asking": 0, "calling": 0, "limit": 1, "failed": 1, "cancelled": 130}
_REFUSED = 4


async def tell_choice(satchel: Satchel) -> None:
    """Report which model Satchel chose by itself, and how to change it. Without a model, the answers say that."""
    if satchel.settings.model or satchel.parts.models.given is not None:
        return
    choice = await satchel.parts.models.choice()
    if choice.name != "none":
        tell(f"{choice.name} answers ({choice.why}). To change it: satchel config set model PROVIDER:MODEL")


@asynccontextmanager
async def opened(
    settings: Settings,
    *,
    with_notices: bool = True,
    beside_prompt: bool = False,
    upkeep: Literal["here", "worker", "here_then_worker", "none"] = "here_then_worker",
) -> AsyncIterator[Satchel]:
    """An open Satchel; stderr reports the parts that are missing.

    Args:
        settings: See `read_settings`.
        with_notices: Whether missing parts are reported.
        beside_prompt: See `fetch_line`.
        upkeep: See `Satchel.open`.
    """
    progress = fetch_line(beside_prompt=beside_prompt)
    async with Satchel.open(settings, progress=progress, upkeep=upkeep) as satchel:
        if with_notices:
            tell_notices(satchel.notices)
        yield satchel


async def settled(running: RunningTurn) -> None:
    """Interrupt a turn unless it is over, and wait until its end is recorded."""
    running.cancel()
    with anyio.CancelScope(shield=True):
        await running.ended()


def exit_code_of(turn: TurnResult) -> int:
    """The exit code of a command that ran this turn."""
    return _REFUSED if turn.was_refused else _EXIT[turn.status]
