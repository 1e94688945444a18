"""The port of a place where a model's files may be had, and what such a place works with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from satchel.models.embedding.records import WeightFile, Weights

__all__ = ["COPY_BYTES", "Fetching", "Progress", "Source", "SourceFailed"]

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with what is being done ("downloading"), the bytes done, and the bytes in all (0: not known)."""

COPY_BYTES: Final = 1 << 20
"""Read at once: few enough that progress and an interrupt are never far."""


class SourceFailed(Exception):
    """A source does not have the files; the message says why in half a sentence, and the next is tried."""


class Fetching:
    """What a source works with, and what it must call between its steps.

    Attributes:
        weights: Which files are wanted.
        folder: Where to put them, each under its own name; it is the source's alone, and so is `scratch`
            beside it.
        environ: For started processes.
    """

    def __init__(
        self,
        weights: Weights,
        folder: Path,
        scratch: Path,
        *,
        environ: Mapping[str, str],
        progress: Progress | None,
        check_cancelled: Callable[[], None],
    ) -> None:
        """Keep them."""
        self.weights = weights
        self.folder = folder
        self.scratch = scratch
        self.environ = environ
        self._progress = progress
        self._check_cancelled = check_cancelled

    def report(self, what: str, done: int, total: int) -> None:
        """Tell how far it is. Raises where the caller was cancelled, so call it often."""
        self._check_cancelled()
        if self._progress is not None:
            self._progress(what, done, total)

    def keep(self, file: WeightFile, read: Callable[[int], bytes]) -> None:
        """Copy one file into the folder, never more of it than there should be; its content is checked later.

        Args:
            file: Which one.
            read: Gives the next bytes, at most as many as it is asked for; b"" at the end.
        """
        done = 0
        with (self.folder / file.name).open("wb") as target:
            while done <= file.size and (data := read(COPY_BYTES)):
                target.write(data)
                done += len(data)
                self.report("unpacking", done, file.size)


class Source(Protocol):
    """A place where the files may be had."""

    @property
    def name(self) -> str:
        """In words, as in "fetched from …"."""

    def provide(self, fetching: Fetching) -> None:
        """Put every wanted file into `fetching.folder`.

        Raises:
            SourceFailed: It does not have them.
        """
