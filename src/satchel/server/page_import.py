"""An import that was begun in a page. It goes on when the page is left."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

import anyio
import anyio.to_thread

from satchel.errors import SatchelError, UsageError
from satchel.memory.transfer.report import ImportReport, TransferProgress
from satchel.runtime import Satchel
from satchel.runtime.importing import import_into


@dataclass(slots=True)
class PageImport:
    """The newest import of a server's pages.

    Attributes:
        is_running: It has begun and is not over.
        at: How far it is; None before the first batch.
        report: What came of it; None before its end, and if it failed.
        problem: Why it failed.
    """

    satchel: Satchel
    is_running: bool = False
    at: TransferProgress | None = None
    report: ImportReport | None = None
    problem: str = ""
    _over: anyio.Event = field(default_factory=anyio.Event)

    async def begin(self, content: bytes, name: str, *, wait_s: float) -> None:
        """Import a file that was sent, and wait for the end, but not longer than so many seconds.

        Raises:
            UsageError: Another one is under way.
        """
        if self.is_running:
            raise UsageError("An import is under way. Wait until it is over.")
        self.is_running, self.at, self.report, self.problem = True, None, None, ""
        self._over = anyio.Event()
        self.satchel.parts.background.start(self._run, content, PurePosixPath(name).name)
        with anyio.move_on_after(wait_s):
            await self._over.wait()

    async def _run(self, content: bytes, name: str) -> None:
        memory = self.satchel.memory
        try:
            with TemporaryDirectory(dir=self.satchel.settings.home) as folder:
                # Its name says what it is, but not where it is put.
                path = Path(folder, re.sub(r"[^\w.-]", "_", name).lstrip(".")[-100:] or "file")
                await anyio.to_thread.run_sync(path.write_bytes, content)
                try:
                    if memory is None:
                        raise UsageError("Memory is off or could not be opened.")
                    self.report = await import_into(self.satchel.home, memory, path, progress=self._note)
                except SatchelError as error:
                    self.problem = str(error).replace(str(path), name)
        except OSError as error:
            self.problem = f"{name} can't be stored: {error.strerror}."
        finally:
            self.is_running = False
            self._over.set()

    def _note(self, at: TransferProgress) -> None:
        self.at = at
