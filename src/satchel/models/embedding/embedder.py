"""What all embedders here have in common: a record, the check of what they give, a thread for work that blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import anyio.to_thread

from satchel.errors import EmbedderError
from satchel.models.embedding.rows import unit_rows
from satchel.models.port import Embedder, EmbedderInfo

if TYPE_CHECKING:
    from satchel.models.port import Vectors

Result = TypeVar("Result")


class BaseEmbedder(Embedder):
    """Blocking pieces of work run outside the event loop, one at a time, in the order of arrival.

    A call consists of many pieces. Therefore a question that arrives during a long back-fill waits for one piece only,
    and a cancelled call stops after the current piece. The threads are anyio's, not the event loop's default executor.
    """

    def __init__(self, info: EmbedderInfo) -> None:
        """Store the record; a dimension of 0 becomes that of the first answer. Nothing is started yet."""
        self._info = info
        self._closed = False
        self._limiter: anyio.CapacityLimiter | None = None

    @property
    def info(self) -> EmbedderInfo:
        """Its record."""
        return self._info

    async def aclose(self) -> None:
        """Release the memory. Later calls are refused."""
        self._closed = True
        # As a piece of work, so that a run of another task ends first.
        await self._queued(self._unload)

    def _unload(self) -> None:
        """Release what was loaded."""

    def _check_open(self) -> None:
        if self._closed:
            raise EmbedderError("This embedder was closed; open another one.")

    async def _blocking(self, work: Callable[[], Result]) -> Result:
        """Run one piece. Cancellation takes effect after it, so that two pieces never overlap.

        Args:
            work: A short function, or one that regularly calls `anyio.from_thread.check_cancelled`.
        """
        self._check_open()
        return await self._queued(work)

    async def _queued(self, work: Callable[[], Result]) -> Result:
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(1)
        return await anyio.to_thread.run_sync(work, limiter=self._limiter)

    def _checked(self, rows: Sequence[Any] | Vectors, *, count: int, source: str = "") -> Vectors:
        """The rows of `count` texts at unit length; `source` names the model in errors."""
        matrix = unit_rows(rows, count=count, dimension=self._info.dimension, source=source or self._info.id)
        if not self._info.dimension:
            self._info = replace(self._info, dimension=matrix.shape[1])
        return matrix


def batches(order: Iterable[int], lengths: Sequence[int], *, most: int) -> Iterator[list[int]]:
    """Group texts by position, in this order, at most `most` tokens together unless a text is alone."""
    batch: list[int] = []
    tokens = 0
    for position in order:
        if batch and tokens + lengths[position] > most:
            yield batch
            batch, tokens = [], 0
        batch.append(position)
        tokens += lengths[position]
    if batch:
        yield batch
