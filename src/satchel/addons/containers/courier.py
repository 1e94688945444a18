"""The host's end of `guest/courier.py`: gives a container its job and takes its report, over a Unix socket."""

from __future__ import annotations

import asyncio
import contextlib
import marshal
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from satchel.errors import SandboxError

LENGTH_BYTES = 8
KILLED = 137
OUT_OF_MEMORY = b"\0memory"
"""These three are as in `guest/courier.py`, which can't be imported: it is no part of the package."""
CHUNK_BYTES = 65_536
LATE_S = 2.0
"""How long the end of the report may take after the program's own end: what is left then is in a buffer."""


class Courier:
    """Serves one run: the first connection gets the job, any other is closed."""

    def __init__(self, message: bytes, *, most_bytes: int) -> None:
        self._message = message
        self._most_bytes = most_bytes
        self._report = bytearray()
        self._taken = False
        self._ended = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Handle one connection."""
        if self._taken:
            writer.close()
            return
        self._taken = True
        try:
            writer.write(len(self._message).to_bytes(LENGTH_BYTES, "big") + self._message)
            await writer.drain()
            while piece := await reader.read(CHUNK_BYTES):
                # What is too much is read and dropped, so that the writer doesn't wait for ever.
                self._report += piece[: self._most_bytes - len(self._report)]
        except OSError:
            # The container ended in the middle; what arrived is judged.
            pass
        finally:
            self._ended.set()
            writer.close()

    async def report(self) -> bytes:
        """What was written to the descriptor of the report. Call it after the program has ended."""
        if self._taken:
            with anyio.move_on_after(LATE_S):
                await self._ended.wait()
        return bytes(self._report)


@asynccontextmanager
async def open_courier(
    path: Path, environ: Mapping[str, str], job: bytes, *, most_bytes: int
) -> AsyncIterator[Courier]:
    """Listen at a path, for one run.

    Raises:
        SandboxError: That is impossible; the path of a socket may have 107 bytes.
    """
    courier = Courier(marshal.dumps((dict(environ), job), 2), most_bytes=most_bytes)
    try:
        server = await asyncio.start_unix_server(courier.serve, path=path)
    except OSError as error:
        raise SandboxError(f"No socket can be opened at {str(path)!r}: {error}.") from error
    try:
        yield courier
    finally:
        server.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
