"""Shows when the last process of a tree has ended, without searching for processes."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import anyio


class Lifeline:
    """A named pipe that a process and its descendants hold open. Its end shows that the last of them has ended."""

    def __init__(self, folder: Path, name: str = "lifeline") -> None:
        self.path = folder / name
        os.mkfifo(self.path)
        self._reader = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)

    @property
    def open(self) -> str:
        """Shell code that opens the pipe."""
        return f"exec 9>{shlex.quote(str(self.path))}"

    @property
    def hold(self) -> str:
        """Shell code that opens the pipe and reports that it is open."""
        return f"{self.open}; echo held >&9"

    async def held(self) -> None:
        # Generous, because a busy machine may start the program slowly.
        with anyio.fail_after(120):
            await anyio.wait_readable(self._reader)
        assert os.read(self._reader, 5) == b"held\n"

    async def let_go(self) -> None:
        with anyio.fail_after(120):
            await anyio.wait_readable(self._reader)
        assert os.read(self._reader, 100).replace(b"held\n", b"") == b""

    def close(self) -> None:
        os.close(self._reader)
