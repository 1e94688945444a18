"""What a server writes to its stderr: in a file, never on the terminal, and never more than so much."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

__all__ = ["CappedLog"]

MAX_BYTES = 1_000_000
"""Of the file; the one before is kept beside it as `NAME.1`."""


class CappedLog:
    """Appends to a file that is opened when there is something to write.

    A log that can't be written is lost: it must not cost the server.
    """

    def __init__(self, path: Path) -> None:
        """Take the file's path; its folder is made when it is needed."""
        self.path = path
        self._descriptor: int | None = None
        self._size = 0
        self._heard = b""

    @property
    def last_words(self) -> str:
        """The last line that the server wrote, cut to 300 characters."""
        lines = self._heard.decode("utf-8", "replace").strip().splitlines()
        return "".join(c if c.isprintable() else " " for c in lines[-1])[-300:] if lines else ""

    def hear(self, data: bytes) -> None:
        """Append what the server wrote."""
        self._heard = (self._heard + data)[-2_000:]
        self.write(data)

    def write(self, data: bytes) -> None:
        """Append it. A write to the page cache takes microseconds, so this does not go to a thread."""
        with suppress(OSError):
            if self._descriptor is None:
                self._open()
            if self._size > MAX_BYTES:
                self.close()
                os.replace(self.path, f"{self.path}.1")  # noqa: PTH105  one call, one error
                self._open()
            if self._descriptor is not None:
                self._size += os.write(self._descriptor, data[:MAX_BYTES])

    def close(self) -> None:
        """Give the descriptor back; a later write opens it again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> None:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        self._descriptor = os.open(self.path, flags, 0o600)
        self._size = os.fstat(self._descriptor).st_size
