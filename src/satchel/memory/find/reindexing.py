"""Making the vectors of a store anew: with another embedder beside the one in use, or what is missing of the same one.

The old vectors serve until the new ones are whole; then the new model takes over in one transaction. Every batch is
written as it is made, so that an end at any moment loses a second of work, and the next call goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from satchel.memory.find.embedding import DenseArm, Fill


@dataclass(frozen=True, slots=True, kw_only=True)
class Reindexed:
    """What was done in all users' spaces: how many memories got vectors, how many have none, whether searches go by
    them, why it stopped before the end, and the embedders whose old vectors were removed.
    """

    embedder: str
    embedded: int
    left: int
    in_use: bool
    trouble: str | None
    dropped: tuple[str, ...]


async def reindex(dense: DenseArm, *, drop_old: bool, progress: Callable[[int, int], None]) -> Reindexed:
    """Give every memory of a database vectors of an embedder, and put it in use."""
    await dense.open()
    total = await dense.pending(everywhere=True)
    wanted = Fill(everywhere=True, progress=lambda done: progress(done, max(total, done)), fetch=True)
    embedded = await dense.fill(wanted)
    in_use = await dense.take_over()
    dropped = await dense.drop_retired(at_once=drop_old) if in_use else []
    return Reindexed(
        embedder=dense.embedder.info.id,
        embedded=embedded,
        left=await dense.pending(everywhere=True),
        in_use=in_use,
        trouble=dense.any_trouble,
        dropped=tuple(dropped),
    )
