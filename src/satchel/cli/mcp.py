"""`satchel mcp`: memory and capabilities for other agents, over stdin and stdout."""

from __future__ import annotations

import anyio
import click

from satchel.cli.opening import opened
from satchel.cli.settings import read_settings

__all__ = ["mcp"]


@click.command()
def mcp() -> int:
    """Serve memory and the active capabilities to another agent, as an MCP server on stdin and stdout.

    The agent starts this command; an entry for it is {"command": "satchel", "args": ["mcp"]}. It ends when its stdin is
    closed.
    """
    settings = read_settings()

    async def body() -> int:
        from satchel.runtime.stdio import claimed_streams  # noqa: PLC0415 - the SDK is imported only here

        with claimed_streams() as lines:
            from satchel.server.mcp.face import McpFace  # noqa: PLC0415
            from satchel.server.mcp.serving import serve_lines  # noqa: PLC0415

            async with opened(settings, upkeep="worker") as satchel:
                await serve_lines(McpFace(satchel), lines)
        return 0

    return anyio.run(body)
