"""`satchel mcp`: memory and capabilities for other agents, over stdin and stdout."""

from __future__ import annotations

import anyio
import click

from satchel.cli.settings import read_settings
from satchel.cli.shared import usable_server


@click.command()
@click.option("--no-server", is_flag=True, help="Don't use the server of this home, even if one runs.")
def mcp(no_server: bool) -> int:
    """Serve memory and the active capabilities to another agent, as an MCP server on stdin and stdout.

    The agent starts this command; an entry for it is {"command": "satchel", "args": ["mcp"]}. It ends when its stdin is
    closed.
    """
    settings = read_settings({"server.join": False if no_server else None})

    async def body() -> int:
        # What each way needs is imported only here.
        from satchel.runtime.stdio import claimed_streams  # noqa: PLC0415

        with claimed_streams() as lines:
            found = usable_server(settings)
            if found is not None:
                from satchel.server.mcp.relay import relay  # noqa: PLC0415

                await relay(settings, found, lines)
                return 0
            from satchel.cli.opening import opened  # noqa: PLC0415
            from satchel.server.mcp.face import McpFace  # noqa: PLC0415
            from satchel.server.mcp.serving import serve_lines  # noqa: PLC0415

            async with opened(settings, upkeep="worker") as satchel:
                await serve_lines(McpFace(satchel), lines)
        return 0

    return anyio.run(body)
