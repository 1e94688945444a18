"""Finds deferred tools with the search of memory, over their names, descriptions and parameters."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

from satchel.clock import Clock
from satchel.memory import Episode, Memory
from satchel.models.port import Embedder
from satchel.tools.deferral import document_of
from satchel.tools.port import Tool


@dataclass(slots=True, eq=False)
class ToolIndex:
    """A separate store that is derived from the tools; deleting its file loses nothing.

    Attributes:
        embedder: Memory's; "none" searches by words only.
    """

    place: Path
    _: KW_ONLY
    embedder: Embedder | str
    clock: Clock
    home: Path
    _filled: frozenset[str] = field(default_factory=frozenset, init=False)

    async def find(self, query: str, tools: Sequence[Tool], *, limit: int) -> Sequence[str]:
        """See `ToolFinder`.

        Raises:
            StorageError: The index can't be opened.
        """
        names = {_key(tool): tool.spec.name for tool in tools}
        async with Memory.open(
            self.place,
            embedder=self.embedder,
            scope="tools",
            clock=self.clock,
            home=self.home,
            back_fill=False,
            redact=False,
        ) as memory:
            # The session of an episode is a hash of the definition, so adding a known definition again changes nothing.
            if not names.keys() <= self._filled:
                await memory.add_episodes(
                    Episode(session=_key(tool), turn=1, speaker="", text=document_of(tool.spec))
                    for tool in tools
                )
                self._filled = frozenset(names)
            # Definitions that have changed or disappeared stay in the index; their hits are dropped below.
            hits = await memory.search(query, limit=max(4 * limit, 50))
        found = [names[hit.memory.source.session] for hit in hits if hit.memory.source.session in names]
        return list(dict.fromkeys(found))[:limit]


def _key(tool: Tool) -> str:
    text = f"{tool.spec.name}\n{document_of(tool.spec)}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
