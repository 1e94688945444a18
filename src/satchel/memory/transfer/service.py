"""Carrying memories out of a space and into it."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from satchel.errors import StorageUnwritable
from satchel.memory.checking import one_of
from satchel.memory.filters import Filters, filter_of
from satchel.memory.thread import OneThread
from satchel.memory.transfer.own import write
from satchel.memory.transfer.pieces import Left, Piece
from satchel.memory.transfer.report import ExportReport, ImportReport, ImportSource, TransferProgress
from satchel.memory.transfer.taking_in import (
    Batch,
    Course,
    Prepared,
    Tally,
    Written,
    batches_of,
    known_ids,
    prepare,
    write_batch,
)

if TYPE_CHECKING:
    from satchel.memory.space import Space

__all__ = ["Transfer"]


class Transfer:
    """Exports and imports the memories of a space."""

    def __init__(self, space: Space) -> None:
        """Take the space."""
        self._space = space

    async def export_to(
        self, where: str | Path | BinaryIO, *, progress: Callable[[int, int], None], filters: Filters
    ) -> ExportReport:
        """Write memories as JSON lines; see `Memory.export_to`."""
        wanted = filter_of(filters, self._space.aware)
        if not isinstance(where, str | Path):
            return await self._space.read(write, wanted, where.write, progress)
        with _replaced(Path(where)) as stream:
            return await self._space.read(write, wanted, stream.write, progress)

    async def import_from(
        self,
        where: str | Path,
        *,
        source: ImportSource,
        dry_run: bool,
        progress: Callable[[TransferProgress], None],
    ) -> ImportReport:
        """Take in memories from files; see `Memory.import_from`."""
        source = one_of(source, ImportSource, "source")
        tally, course = Tally(), Course()
        counted: set[str] = set()
        reader = OneThread("satchel-import")
        batches = batches_of(Path(where), source, tally)
        try:
            while (batch := await reader.run(next, batches, None)) is not None:
                written, ready = await self._take_in(
                    reader, batch, tally, course, dry_run=dry_run, counted=counted
                )
                _count(tally, written, ready, batch)
                progress(tally.progress(batch))
        finally:
            # Reading is in the middle of a file where this was cancelled; it ends with the batch.
            await reader.run(_close, batches)
            reader.close()
        return tally.report(dry_run=dry_run)

    async def _take_in(
        self,
        reader: OneThread,
        batch: Batch,
        tally: Tally,
        course: Course,
        *,
        dry_run: bool,
        counted: set[str],
    ) -> tuple[Written, Prepared]:
        space = self._space
        ids = [part.id for part in batch.parts if isinstance(part, Piece)]
        known = await space.read(known_ids, ids) if ids else set()
        now = space.now_micros()
        ready = await reader.run(
            partial(
                prepare,
                batch,
                known | counted,
                now=now,
                redacts=space.redacts,
                hasher=space.hasher,
                tally=tally,
            )
        )
        if dry_run:
            counted.update(ready.pieces)
            return Written(new=frozenset(ready.pieces)), ready
        if not ready.drafts and not ready.rest:
            return Written(), ready
        return await space.write(write_batch, ready, now=now, course=course), ready


def _count(tally: Tally, written: Written, ready: Prepared, batch: Batch) -> None:
    tally.new += len(written.new)
    # Another process may have stored some of them since they were looked for.
    tally.redacted += len(ready.redacted & written.new)
    tally.stripped += len(ready.stripped & written.new)
    tally.edges += written.edges
    tally.changes += written.changes
    tally.tombstones += written.tombstones
    for _ in range(written.forgotten):
        tally.leave(Left(reason="forgotten here before", where=batch.file))
    for _ in range(written.loose):
        # No memory is missing for it: an end was left out, and that is told.
        tally.leave(Left(reason="an edge with an end that is not here", where=batch.file, expected=True))


def _close(batches: Generator[Batch]) -> None:
    batches.close()


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
