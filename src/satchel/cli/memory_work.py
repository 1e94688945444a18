"""`satchel memory work`: does the work that `satchel ask` leaves to the background."""

from __future__ import annotations

import anyio
import click

from satchel.cli.output import tell
from satchel.cli.settings import read_settings
from satchel.cli.signals import until_signal
from satchel.runtime.memory_worker import run_memory_work

__all__ = ["work"]


@click.command()
def work() -> int:
    """Extract facts and embed until nothing is left to do.

    `satchel ask` starts this in the background, so there is no need to run it. One is enough for a home; a second one
    leaves at once. It ends when there has been no work for memory.worker_idle_s. The next one continues what a killed
    one left.
    """
    settings = read_settings()

    async def body() -> None:
        if not await run_memory_work(settings, tell=tell):
            tell("Another process is doing this work in this home.")

    return anyio.run(until_signal, body)
