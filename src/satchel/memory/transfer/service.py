"""Exports and imports the memories of a space."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from satchel.config.home import replacing
from satchel.errors import StorageUnwritable, UsageError
from satchel.memory.store.filters import Filters
from satchel.memory.store.thread import OneThread
from satchel.memory.transfer.formats import NamedReader, formats
from satchel.memory.transfer.importing import Intake, batches_of
from satchel.memory.transfer.own_format import write
from satchel.memory.transfer.report import ExportReport, ImportReport, TransferProgress

if TYPE_CHECKING:
    from satchel.memory.store.space import Space

__all__ = ["export_to", "import_from"]


async def export_to(
    space: Space, where: str | Path | BinaryIO, *, progress: Callable[[int, int], None], filters: Filters
) -> ExportReport:
    """Write memories as JSON lines; see `Memory.export_to`."""
    wanted = space.filter_of(filters)
    if not isinstance(where, str | Path):
        return await space.read(write, wanted, where.write, progress)
    try:
        with replacing(Path(where)) as stream:
            return await space.read(write, wanted, stream.write, progress)
    except OSError as error:
        raise StorageUnwritable(f"{where} can't be written: {error.strerror}. It was not changed.") from error


async def import_from(
    space: Space,
    where: str | Path,
    *,
    source: str,
    dry_run: bool,
    progress: Callable[[TransferProgress], None],
    reader: NamedReader | None = None,
) -> ImportReport:
    """Import memories from files; see `Memory.import_from`."""
    if source != "auto" and source not in formats():
        raise UsageError(f"There is no source {source!r}; there are {', '.join(('auto', *formats()))}.")
    thread = OneThread("satchel-import")
    intake = Intake(space=space, in_thread=thread.run, dry_run=dry_run)
    batches = batches_of(Path(where), source, intake, reader=reader)
    try:
        while (batch := await thread.run(next, batches, None)) is not None:
            await intake.take(batch.parts, batch.file)
            progress(intake.progress(batch))
        await intake.finish()
    finally:
        # After a cancellation, a file may still be open.
        await thread.run(batches.close)
        thread.close()
    return intake.report()
