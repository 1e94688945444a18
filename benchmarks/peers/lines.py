"""What the adapters of peers share: it runs in a peer's own environment and talks to `lived.py` in lines of JSON.

    {"do": "store", "text": "…", "at": "2026-03-02T07:12:00+00:00", "n": 1}    ->  {}
    {"do": "ask", "text": "…", "limit": 5}                                     ->  {"texts": ["…"]}

The first line says that the peer is ready, {"ready": "mem0ai 2.2.1"}. Where something fails, it has {"error": "…"}.
PEER_HOME is an empty folder, EMBEDDINGS_URL an endpoint of OpenAI's form with the embedding model that Satchel ships.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from importlib.metadata import version
from typing import Any, Protocol


class Peer(Protocol):
    """One peer."""

    async def store(self, text: str, at: str, n: int) -> None:
        """Keep a message of the user's."""

    async def ask(self, text: str, limit: int) -> list[str]:
        """Give the texts that it finds for a message, best first."""
        ...


async def serve(package: str, opened: Callable[[AsyncExitStack], Awaitable[Peer]]) -> None:
    """Answer until the input ends. What the peer prints goes to the error output."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def say(line: dict[str, Any]) -> None:
        answers.write(json.dumps(line, ensure_ascii=False) + "\n")
        answers.flush()

    async with AsyncExitStack() as stack:
        try:
            peer = await opened(stack)
        except Exception as error:  # noqa: BLE001 - whatever it is, the reader of the table is told
            say({"error": f"{type(error).__name__}: {error}"})
            return
        say({"ready": f"{package} {version(package)}"})
        for line in sys.stdin:
            asked = json.loads(line)
            try:
                if asked["do"] == "store":
                    await peer.store(asked["text"], asked["at"], asked["n"])
                    say({})
                else:
                    say({"texts": await peer.ask(asked["text"], asked["limit"])})
            except Exception as error:  # noqa: BLE001 - the same
                say({"error": f"{type(error).__name__}: {error}"})


async def session(stack: AsyncExitStack, command: str, *arguments: str) -> Any:
    """A session with a peer that is an MCP server; the program is one of its environment."""
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    program = os.path.join(os.path.dirname(sys.executable), command)  # noqa: PTH118, PTH120
    server = StdioServerParameters(command=program, args=list(arguments), env=dict(os.environ))
    streams = await stack.enter_async_context(stdio_client(server))
    opened = await stack.enter_async_context(ClientSession(*streams[:2]))
    await opened.initialize()
    return opened


async def call(opened: Any, tool: str, **arguments: Any) -> str:
    """What a tool of an MCP server says.

    Raises:
        RuntimeError: It says that it failed.
    """
    result = await opened.call_tool(tool, arguments)
    text = "\n".join(part.text for part in result.content if getattr(part, "text", None))
    if getattr(result, "is_error", False) or getattr(result, "isError", False):
        raise RuntimeError(text)
    return text
