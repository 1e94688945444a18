"""`satchel acp`: Satchel as an editor's agent, over stdin and stdout."""

from __future__ import annotations

import anyio
import click

from satchel.cli.commands import Text
from satchel.cli.opening import opened
from satchel.cli.settings import read_settings
from satchel.cli.shared import connected, usable_server


@click.command()
@click.option(
    "--model",
    type=Text,
    metavar="PROVIDER:MODEL",
    help="The model that answers. With it, a running server is not used.",
)
@click.option("--no-server", is_flag=True, help="Don't use the server of this home, even if one runs.")
def acp(model: str | None, no_server: bool) -> int:
    """Run as an editor's agent, over the Agent Client Protocol on stdin and stdout.

    The editor starts this command. It ends when its stdin is closed.
    """
    settings = read_settings({"model": model, "server.join": False if no_server or model else None})

    async def body() -> int:
        # The SDK is imported only here.
        from satchel.runtime.stdio import claimed_streams  # noqa: PLC0415

        with claimed_streams() as lines:
            from satchel.acp.places import LocalPlace, ServedPlace  # noqa: PLC0415
            from satchel.acp.serving import serve_lines  # noqa: PLC0415

            found = usable_server(settings)
            if found is not None:
                async with connected(settings, found) as host:
                    await serve_lines(ServedPlace(host), lines)
                return 0
            async with opened(settings, upkeep="worker") as satchel:
                await serve_lines(LocalPlace(satchel), lines)
        return 0

    return anyio.run(body)
