"""basic-memory, as an agent uses it: a note for each message (write_note), and search_notes."""

from __future__ import annotations

import asyncio
import re
from contextlib import AsyncExitStack
from typing import Any

from lines import call, serve, session

_OPERATORS = {"and", "or", "not", "near"}


class Notes:
    """See `lines.Peer`."""

    def __init__(self, opened: Any) -> None:
        self._session = opened
        self._texts: dict[str, str] = {}

    async def store(self, text: str, at: str, n: int) -> None:
        """See `lines.Peer`."""
        del at
        title = f"message {n}"
        await call(self._session, "write_note", title=title, content=text, directory="messages")
        self._texts[title] = text

    async def ask(self, text: str, limit: int) -> list[str]:
        """See `lines.Peer`; a hit names its note, which an agent then reads.

        By words alone, all of a query must be there, and a whole message would find nothing: any of its words will do.
        """
        words = dict.fromkeys(word for word in re.findall(r"\w+", text.lower()) if word not in _OPERATORS)
        said = await call(self._session, "search_notes", query=" OR ".join(words), page_size=limit)
        titles = re.findall(r"^### (message \d+)", said, re.MULTILINE)
        return [self._texts[title] for title in dict.fromkeys(titles)]


async def opened(stack: AsyncExitStack) -> Notes:
    """Start the server."""
    return Notes(await session(stack, "basic-memory", "mcp"))


asyncio.run(serve("basic-memory", opened))
