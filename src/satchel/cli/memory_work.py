"""`satchel memory work` and `satchel memory answer`: what commands leave to the background."""

from __future__ import annotations

from typing import Final

import anyio
import click

from satchel.cli.output import tell
from satchel.cli.settings import read_settings
from satchel.cli.signals import until_signal
from satchel.runtime import Satchel
from satchel.runtime.memory_work import leave_work
from satchel.runtime.memory_worker import run_memory_work

_ANSWERS_S: Final = 1_800.0
"""How long hooks may be silent. A conversation with an agent pauses for minutes; a start takes two seconds."""


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


@click.command()
def answer() -> None:
    """Answer the hooks of other agents.

    The first hook starts this in the background if no server is running, so there is no need to run it. It ends when no
    hook has asked for half an hour. It is a server on this machine that needs the token of the home, as `satchel serve`
    is, but no other program of Satchel uses it.
    """
    settings = read_settings({"server.host": "127.0.0.1", "server.port": 0, "server.tls_cert": ""})

    async def body() -> None:
        # FastAPI and uvicorn are imported only here.
        from satchel.server.listening import serve_hooks  # noqa: PLC0415

        async with Satchel.open(settings, upkeep="none") as satchel:
            if settings.memory.worker == "auto":
                leave_work(settings)
            if satchel.memory is not None:
                # What takes long the first time is done before a hook waits for it.
                await satchel.memory.surface("Hello.")
            await serve_hooks(satchel, idle_s=_ANSWERS_S)

    anyio.run(until_signal, body)
