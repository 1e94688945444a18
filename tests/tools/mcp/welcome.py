"""A well-behaved MCP server on the official SDK: over stdin and stdout, streamable HTTP, or HTTP with events."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from pydantic import BaseModel

server = MCPServer("welcome")


class City(BaseModel):
    """What is asked."""

    city: str


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
async def steps(ctx: Context) -> str:
    """Tell how far it is."""
    await ctx.report_progress(1, 2, "half")
    await ctx.report_progress(2, 2, "all")
    return "done"


@server.tool()
async def where(ctx: Context) -> str:
    """Ask the user for a city."""
    answer = await ctx.elicit("Which city?", City)
    return f"{answer.action} {answer.data.city if answer.action == 'accept' else ''}".strip()


@server.tool()
def header(ctx: Context) -> str:
    """Which header came with the request."""
    return str((ctx.headers or {}).get("x-token"))


@server.tool()
async def learn(ctx: Context) -> str:
    """Offer one more tool from now on."""

    def subtract(a: int, b: int) -> int:
        """Subtract two numbers."""
        return a - b

    server.add_tool(subtract)
    await ctx.notify_tools_changed()
    return "learnt"


def main() -> None:
    """Serve until killed; over HTTP, the port is written to the file of the second argument."""
    if sys.argv[1] == "stdio":
        server.run("stdio")
        return
    app = server.streamable_http_app() if sys.argv[1] == "http" else server.sse_app(sse_path="/mcp")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port_file = Path(sys.argv[2])
        port_file.with_suffix(".new").write_text(str(listener.getsockname()[1]))
        port_file.with_suffix(".new").replace(port_file)
        config = uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1)
        uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
