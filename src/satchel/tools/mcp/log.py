"""The log of one server: its stderr goes to a file of bounded size, never to the terminal."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from satchel.tools.visible import visible

MAX_BYTES = 1_000_000
"""The size of the file; the previous one is kept beside it as `NAME.1`."""


class CappedLog:
    """Appends to a file, which is opened by the first write.

    Errors of writing are ignored: a full disk must not stop the server.
    """

    def __init__(self, path: Path) -> None:
        """Take the file's path. Its folder is created by the first write."""
        self.path = path
        self._descriptor: int | None = None
        self._size = 0
        self._heard = b""

    @property
    def last_words(self) -> str:
        """The last line that the server wrote, cut to 300 characters."""
        lines = self._heard.decode("utf-8", "replace").strip().splitlines()
        return visible(lines[-1][-300:]) if lines else ""

    def hear(self, data: bytes) -> None:
        """Append the server's output."""
        self._heard = (self._heard + data)[-2_000:]
        self.write(data)

    def write(self, data: bytes) -> None:
        """Append bytes. A write to the page cache takes microseconds, so this needs no thread."""
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
        """Close the file; a later write opens it again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> None:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        self._descriptor = os.open(self.path, flags, 0o600)
        self._size = os.fstat(self._descriptor).st_size
