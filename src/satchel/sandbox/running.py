"""A process that goes on while it is spoken to over its stdin and stdout, and that ends with its `async with`."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from satchel.errors import SandboxError
from satchel.sandbox.process import CHUNK_BYTES, MAX_PIPE_BYTES, _Pipe, _start, _Tree

__all__ = ["RunningProcess", "run_alongside"]

LEAVE_S = 0.5
"""How long a process may take to leave by itself once its stdin is closed: what a server that reads it does."""


class RunningProcess:
    """A process that runs; made by `run_alongside`."""

    def __init__(self, tree: _Tree, *, stdin: _Pipe, stdout: _Pipe, pid: int) -> None:
        """Use `run_alongside`."""
        self.pid = pid
        self._tree = tree
        self._stdin = stdin.write
        self._stdout = stdout.read
        self._sending = anyio.Lock()

    async def send(self, data: bytes) -> None:
        """Write it all to the process's stdin; what two tasks send is never mixed.

        Raises:
            SandboxError: The process has closed its stdin, or is gone.
        """
        async with self._sending:
            rest = memoryview(data)
            try:
                while rest:
                    await anyio.wait_writable(self._stdin)
                    rest = rest[self._stdin.write(rest[:CHUNK_BYTES]) or 0 :]
            except (OSError, ValueError, anyio.ClosedResourceError) as error:
                raise SandboxError(f"Process {self.pid} does not read its input any more.") from error

    async def receive(self) -> bytes:
        """What it wrote to its stdout next, at most 64 KiB; b"" at its end."""
        while True:
            await anyio.wait_readable(self._stdout)
            chunk = self._stdout.read(CHUNK_BYTES)
            if chunk is not None:
                return chunk

    async def exited(self) -> None:
        """Wait until the process itself has exited; it may have left children, and words in its pipes."""
        await self._tree.leader_exit()


@asynccontextmanager
async def run_alongside(
    argv: Sequence[str],
    *,
    cwd: Path,
    environ: Mapping[str, str],
    on_stderr: Callable[[bytes], None],
    grace_s: float = 1.0,
) -> AsyncIterator[RunningProcess]:
    """Run a program for as long as the block lasts, in a session and process group of its own, without a terminal.

    At the block's end, however that comes, its stdin is closed; it has half a second to leave by itself, then
    everything that comes from it is ended as by `run_process`.

    Args:
        argv: The program, found on the PATH of `environ` when it has no slash, and its arguments.
        cwd: Where it starts.
        environ: Its whole environment, to which `MARK` is added.
        on_stderr: Given each piece of what it writes to stderr; must not block.
        grace_s: Time between SIGTERM and SIGKILL.

    Raises:
        SandboxError: It could not be started; says why.
    """
    with contextlib.ExitStack() as open_pipes:
        stdin, stdout, stderr = _Pipe(open_pipes), _Pipe(open_pipes), _Pipe(open_pipes)
        tree = _start(argv, cwd, environ, stdin, stdout, stderr, None)
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(_tell, stderr, on_stderr)
                yield RunningProcess(tree, stdin=stdin, stdout=stdout, pid=tree.pid)
                group.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                stdin.write.close()
                with anyio.move_on_after(LEAVE_S):
                    await _drained(tree, stdout)
                await tree.end(grace_s)
            tree.close()


async def _tell(pipe: _Pipe, on_chunk: Callable[[bytes], None]) -> None:
    while True:
        await anyio.wait_readable(pipe.read)
        chunk = pipe.read.read(CHUNK_BYTES)
        if chunk == b"":
            return
        if chunk:
            on_chunk(chunk)


async def _drained(tree: _Tree, stdout: _Pipe) -> None:
    """Wait for the exit; what is written meanwhile is thrown away, or its writer could not go."""
    async with anyio.create_task_group() as group:

        async def drain() -> None:
            left = MAX_PIPE_BYTES
            while left > 0:
                await anyio.wait_readable(stdout.read)
                chunk = stdout.read.read(CHUNK_BYTES)
                if chunk == b"":
                    return
                left -= len(chunk or b"")

        group.start_soon(drain)
        await tree.leader_exit()
        group.cancel_scope.cancel()
