"""The part of `Memory` that carries memories out of a store and into it."""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeVar, Unpack

import anyio

from satchel.clock import Clock
from satchel.errors import StorageUnwritable
from satchel.memory import transfer
from satchel.memory.checking import one_of
from satchel.memory.filters import Filters, filter_of
from satchel.memory.hashing import WordHasher
from satchel.memory.repository import to_micros
from satchel.storage import Database

if TYPE_CHECKING:
    from satchel.memory.transfer import (
        Batch,
        Course,
        ExportReport,
        ImportReport,
        ImportSource,
        Prepared,
        Tally,
        TransferProgress,
        Written,
    )

__all__ = ["Mover"]

T = TypeVar("T")


def _not_told(*_: object) -> None:
    """Nobody waits for it."""


class Mover(ABC):
    """Export and import of one user's memories in one scope. `Memory` is one; it is not opened by itself."""

    _database: Database
    _space: int
    _clock: Clock
    _redacts: bool
    _hasher: WordHasher

    @abstractmethod
    def _stored(self) -> None:
        """Told when something was stored or changed that has to be embedded."""

    @abstractmethod
    def _aware(self, moment: datetime | None) -> datetime | None:
        """The time with its offset."""

    async def export_to(
        self,
        where: str | Path | BinaryIO,
        *,
        progress: Callable[[int, int], None] = _not_told,
        **filters: Unpack[Filters],
    ) -> ExportReport:
        """Write memories as JSON lines: everything but vectors and indexes, which are made anew.

        What is taken in by an empty store and written again has the same bytes. What was forgotten is noted too
        (by hashes), unless a filter chooses among the memories.

        Args:
            where: A path, which is replaced when all is written; or a stream of bytes, which stays open.
            progress: Told how many of how many memories were written; called from another thread.
            filters: Which ones, see `Filters`.

        Raises:
            StorageUnwritable: The file can't be written; what was there is untouched.
            StorageError: The store could not be read.
        """
        wanted = filter_of(filters, self._aware)

        def carry(stream: BinaryIO) -> Callable[..., ExportReport]:
            return lambda connection: transfer.write(connection, self._space, wanted, stream.write, progress)

        if not isinstance(where, str | Path):
            return await self._database.read(carry(where))
        with _replaced(Path(where)) as stream:
            return await self._database.read(carry(stream))

    async def import_from(
        self,
        where: str | Path,
        *,
        source: ImportSource = "auto",
        dry_run: bool = False,
        progress: Callable[[TransferProgress], None] = _not_told,
    ) -> ImportReport:
        """Take in memories from a file, a folder or an archive; `docs/guides/moving.md` tells what becomes of each.

        What is in the store already stays as it is: ids follow from the files, so that importing again adds nothing,
        and an import that was interrupted goes on when it is called again. What was forgotten is not taken in again
        from the same source. Files are read as streams, whatever their size.

        Args:
            where: A file, a .zip, or a folder, which is searched to its ends.
            source: What wrote it; "auto" looks at each file.
            dry_run: Only count.
            progress: Told after every batch.

        Raises:
            NotFound: There is nothing there.
            UsageError: The source is unknown, or the one file is of no known format.
            StorageError: It can't be read, or the store could not be written; what was told of is stored.
        """
        source = one_of(source, transfer.ImportSource, "source")
        tally, course = transfer.Tally(), transfer.Course()
        counted: set[str] = set()
        pool = ThreadPoolExecutor(1, thread_name_prefix="satchel-import")
        batches = transfer.batches_of(Path(where), source, tally)
        try:
            while (batch := await _run(pool, next, batches, None)) is not None:
                written, ready = await self._take_in(
                    pool, batch, tally, course, dry_run=dry_run, counted=counted
                )
                _count(tally, written, ready, batch)
                progress(tally.progress(batch))
        finally:
            # Reading is in the middle of a file where this was cancelled; it ends with the batch.
            await _run(pool, _close, batches)
            pool.shutdown()
        if tally.new and not dry_run:
            self._stored()
        return tally.report(dry_run=dry_run)

    async def _take_in(
        self,
        pool: ThreadPoolExecutor,
        batch: Batch,
        tally: Tally,
        course: Course,
        *,
        dry_run: bool,
        counted: set[str],
    ) -> tuple[Written, Prepared]:
        ids = [part.id for part in batch.parts if isinstance(part, transfer.Piece)]
        known = (
            await self._database.read(lambda connection: transfer.known_ids(connection, self._space, ids))
            if ids
            else set()
        )
        now = to_micros(self._clock.now())
        ready = await _run(
            pool,
            partial(
                transfer.prepare,
                batch,
                known | counted,
                now=now,
                redacts=self._redacts,
                hasher=self._hasher,
                tally=tally,
            ),
        )
        if dry_run:
            counted.update(ready.pieces)
            return transfer.Written(new=frozenset(ready.pieces)), ready
        if not ready.drafts and not ready.rest:
            return transfer.Written(), ready
        written = await self._database.write(
            lambda connection: transfer.write_batch(connection, self._space, ready, now=now, course=course)
        )
        return written, ready


def _count(tally: Tally, written: Written, ready: Prepared, batch: Batch) -> None:
    tally.new += len(written.new)
    # Another process may have stored some of them since they were looked for.
    tally.redacted += len(ready.redacted & written.new)
    tally.stripped += len(ready.stripped & written.new)
    tally.edges += written.edges
    tally.changes += written.changes
    tally.tombstones += written.tombstones
    for _ in range(written.forgotten):
        tally.leave(transfer.Left(reason="forgotten here before", where=batch.file))
    for _ in range(written.loose):
        # No memory is missing for it: an end was left out, and that is told.
        tally.leave(
            transfer.Left(reason="an edge with an end that is not here", where=batch.file, expected=True)
        )


async def _run(pool: ThreadPoolExecutor, function: Callable[..., T], *args: object) -> T:
    """Run a function on the import's own thread; a cancelled caller waits for it."""
    running = asyncio.wrap_future(pool.submit(function, *args))
    with anyio.CancelScope(shield=True):
        await asyncio.wait([running])
    return running.result()


def _close(batches: Iterator[Batch]) -> None:
    batches.close()  # type: ignore[attr-defined]


@contextmanager
def _replaced(path: Path) -> Iterator[BinaryIO]:
    """A file that takes the place of another when it is whole; readable by its owner alone.

    Raises:
        StorageUnwritable: It can't be written; what was there is untouched.
    """
    target = path.expanduser()
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        descriptor = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(target)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):
            raise StorageUnwritable(
                f"{path} could not be written: {error.strerror}. It was left as it was."
            ) from error
        raise
