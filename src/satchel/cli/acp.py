"""`satchel acp`: Satchel as an editor's agent, over stdin and stdout."""

from __future__ import annotations

import anyio
import click

from satchel.cli.commands import Text
from satchel.cli.opening import opened
from satchel.cli.settings import read_settings

__all__ = ["acp"]


@click.command()
@click.option("--model", type=Text, metavar="PROVIDER:MODEL", help="The model that answers.")
def acp(model: str | None) -> int:
    """Be the agent of an editor, over the Agent Client Protocol on stdin and stdout.

    The editor starts this command. It ends when its stdin is closed.
    """
    settings = read_settings({"model": model})

    async def body() -> int:
        from satchel.runtime.stdio import claimed_streams  # noqa: PLC0415 - the SDK is imported only here

        with claimed_streams() as lines:
            from satchel.acp.serving import serve_lines  # noqa: PLC0415

            async with opened(settings, upkeep="worker") as satchel:
                await serve_lines(satchel, lines)
        return 0

    return anyio.run(body)
