"""mcp-memory-service, as an agent uses it: the tools memory_store and memory_search."""

from __future__ import annotations

import asyncio
import os
import re
from contextlib import AsyncExitStack
from typing import Any

from lines import call, serve, session

os.environ |= {
    "MCP_MEMORY_STORAGE_BACKEND": "sqlite_vec",
    "MCP_MEMORY_BASE_DIR": os.environ["PEER_HOME"],
    "MCP_MEMORY_SQLITE_PATH": f"{os.environ['PEER_HOME']}/memory.db",
    "MCP_EXTERNAL_EMBEDDING_URL": f"{os.environ['EMBEDDINGS_URL']}/embeddings",
    "MCP_EXTERNAL_EMBEDDING_MODEL": "minilm",
}

_HIT = re.compile(r"^\d+\. (.*?)\n   Hash: ", re.MULTILINE | re.DOTALL)


class Service:
    """See `lines.Peer`."""

    def __init__(self, opened: Any) -> None:
        self._session = opened

    async def store(self, text: str, at: str, n: int) -> None:
        """See `lines.Peer`."""
        said = await call(self._session, "memory_store", content=text, metadata={"tags": f"at-{at[:10]}"})
        if "success" not in said.lower() and "stored" not in said.lower():
            raise RuntimeError(f"{n}: {said}")

    async def ask(self, text: str, limit: int) -> list[str]:
        """See `lines.Peer`."""
        said = await call(self._session, "memory_search", query=text, limit=limit)
        if not said.startswith(("Found ", "No memories found")):
            raise RuntimeError(said)
        return _HIT.findall(said)


async def opened(stack: AsyncExitStack) -> Service:
    """Start the server."""
    return Service(await session(stack, "memory", "server"))


asyncio.run(serve("mcp-memory-service-lite", opened))
