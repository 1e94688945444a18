"""mem0, in its own process: messages are stored as they are (`infer=False`), as no model is there that it could ask."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack

os.environ["MEM0_TELEMETRY"] = "False"

from lines import serve
from mem0 import Memory

USER = "user"


class Mem0:
    """See `lines.Peer`."""

    def __init__(self) -> None:
        home, url = os.environ["PEER_HOME"], os.environ["EMBEDDINGS_URL"]
        endpoint = {"openai_base_url": url, "api_key": "none"}
        self._memory = Memory.from_config(
            {
                "vector_store": {
                    "provider": "qdrant",
                    "config": {"path": f"{home}/qdrant", "embedding_model_dims": 384, "on_disk": True},
                },
                "embedder": {
                    "provider": "openai",
                    "config": {"model": "minilm", "embedding_dims": 384, **endpoint},
                },
                "llm": {"provider": "openai", "config": {"model": "none", **endpoint}},
                "history_db_path": f"{home}/history.db",
            }
        )

    async def store(self, text: str, at: str, n: int) -> None:
        """See `lines.Peer`."""
        said = [{"role": "user", "content": text}]
        self._memory.add(said, user_id=USER, infer=False, metadata={"at": at, "n": n})

    async def ask(self, text: str, limit: int) -> list[str]:
        """See `lines.Peer`."""
        found = self._memory.search(text, top_k=limit, filters={"user_id": USER})
        return [one["memory"] for one in found["results"]]


async def opened(stack: AsyncExitStack) -> Mem0:
    """Open a store."""
    del stack
    return Mem0()


asyncio.run(serve("mem0ai", opened))
