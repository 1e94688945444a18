"""`satchel worker`: runs the builds of capabilities that sessions have asked for."""

from __future__ import annotations

import anyio
import click

from satchel.cli.output import tell
from satchel.cli.settings import read_settings
from satchel.cli.signals import until_signal
from satchel.runtime.worker import run_worker


@click.command()
@click.option("--once", is_flag=True, help="Leave when there has been nothing to do for ten seconds.")
def worker(once: bool) -> int:
    """Build the capabilities that were asked for.

    Satchel starts a worker in the background when something is to be built, so there is no need to run this. One worker
    is enough for a home; a second one leaves at once. Builds that a worker did not finish go on with the next one.
    """
    settings = read_settings()

    async def body() -> None:
        report = await run_worker(settings, once=once, tell=tell)
        if report.is_elsewhere:
            tell("Another worker is at work in this home.")

    return anyio.run(until_signal, body)
