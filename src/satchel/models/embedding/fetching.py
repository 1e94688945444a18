"""The port of a source of model files, and the context that it works in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from satchel.models.embedding.records import ModelFiles, WeightFile

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with the current step ("downloading"), the bytes done, and the total bytes (0 if unknown)."""

COPY_BYTES: Final = 1 << 20
"""The size of one read, small enough for regular progress and interrupts."""


class SourceFailed(Exception):
    """A source doesn't have the files. The message says why, as a part of a sentence; the next source is tried."""


@dataclass(frozen=True, slots=True, eq=False)
class Fetching:
    """The context that a source works in.

    Attributes:
        weights: Which files are wanted.
        folder: The folder for the files, each under its own name. Only the source uses it and the folder `scratch`.
        environ: For started processes.
    """

    weights: ModelFiles
    folder: Path
    scratch: Path
    _: KW_ONLY
    environ: Mapping[str, str]
    progress: Progress | None
    check_cancelled: Callable[[], None]

    def report(self, what: str, done: int, total: int) -> None:
        """Report progress. Raises if the caller was cancelled, so call it often."""
        self.check_cancelled()
        if self.progress is not None:
            self.progress(what, done, total)

    def keep(self, file: WeightFile, read: Callable[[int], bytes]) -> None:
        """Copy one file into the folder, but not more than its expected size. The content is checked later.

        Args:
            file: The file.
            read: Returns the next bytes, at most as many as requested; b"" at the end.
        """
        done = 0
        with (self.folder / file.name).open("wb") as target:
            while done <= file.size and (data := read(COPY_BYTES)):
                target.write(data)
                done += len(data)
                self.report("unpacking", done, file.size)


class FileSource(Protocol):
    """A source of the files."""

    @property
    def name(self) -> str:
        """The name for messages, as in "fetched from …"."""

    def provide(self, fetching: Fetching) -> None:
        """Put every wanted file into `fetching.folder`.

        Raises:
            SourceFailed: The source doesn't have them.
        """
