"""`satchel serve`: the HTTP server."""

from __future__ import annotations

import anyio
import click

from satchel.cli.commands import Text
from satchel.cli.opening import opened, tell_choice
from satchel.cli.output import tell
from satchel.cli.settings import read_settings

__all__ = ["serve"]


@click.command()
@click.option("--host", type=Text, help="Where to listen; only this machine without it.")
@click.option("--port", type=click.IntRange(0, 65_535), help="0 takes any free port.")
@click.option("--model", type=Text, metavar="PROVIDER:MODEL", help="The model that answers.")
def serve(host: str | None, port: int | None, model: str | None) -> int:
    """Serve conversations, memory and capabilities over HTTP until it is stopped.

    Clients send the token in SATCHEL_HOME/token. SIGTERM and Ctrl-C stop it: running turns are interrupted, and
    everything said is kept.
    """
    settings = read_settings({"server.host": host, "server.port": port, "model": model})

    async def body() -> int:
        # FastAPI and uvicorn are imported only here.
        from satchel.server.listening import serve as serve_http  # noqa: PLC0415

        async with opened(settings) as satchel:
            await tell_choice(satchel)
            await serve_http(satchel, tell=tell)
        return 0

    return anyio.run(body)
