"""A process that runs inside an `async with` block and communicates over its stdin and stdout."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from satchel.errors import SandboxError
from satchel.sandbox.port import Entrance
from satchel.sandbox.process import CHUNK_BYTES, MAX_PIPE_BYTES, _Pipe, _Pump, _start, _Tree
from satchel.sandbox.watchdog import Watchdog

EXIT_S = 0.5
"""How long a process may take to exit by itself after its stdin was closed, as a server that reads it does."""
_GRACE_S = 1.0
"""The time between SIGTERM and SIGKILL."""


class RunningProcess:
    """A running process; created by `run_alongside`."""

    def __init__(self, tree: _Tree, *, stdin: _Pipe, stdout: _Pipe, pid: int) -> None:
        """Use `run_alongside`."""
        self.pid = pid
        self._tree = tree
        self._stdin = stdin.write
        self._stdout = stdout.read
        self._sending = anyio.Lock()

    async def send(self, data: bytes) -> None:
        """Write all data to the process's stdin. Data from concurrent tasks is never interleaved.

        Raises:
            SandboxError: The process has closed its stdin or has exited.
        """
        async with self._sending:
            rest = memoryview(data)
            try:
                while rest:
                    await anyio.wait_writable(self._stdin)
                    rest = rest[self._stdin.write(rest[:CHUNK_BYTES]) or 0 :]
            except (OSError, ValueError, anyio.ClosedResourceError) as error:
                raise SandboxError(f"Process {self.pid} no longer reads its input.") from error

    async def receive(self) -> bytes:
        """The next piece of its stdout, at most 64 KiB; b"" at the end."""
        while True:
            await anyio.wait_readable(self._stdout)
            chunk = self._stdout.read(CHUNK_BYTES)
            if chunk is not None:
                return chunk

    async def exited(self) -> None:
        """Wait until the process itself has exited. Child processes and unread output may remain."""
        await self._tree.leader_exit()


@asynccontextmanager
async def run_alongside(
    argv: Sequence[str],
    *,
    cwd: Path,
    environ: Mapping[str, str],
    on_stderr: Callable[[bytes], None],
    box: Entrance | None = None,
) -> AsyncIterator[RunningProcess]:
    """Run a program for as long as the block lasts, in its own session and process group, without a terminal.

    When the block ends, for whatever reason, the program's stdin is closed. The program has half a second to exit by
    itself. Then it and everything that it started are ended as in `run_process`.

    Args:
        argv: The program and its arguments. A program without a slash is searched on the PATH of `environ`.
        cwd: Its working directory.
        environ: Its complete environment; `MARK` is added.
        on_stderr: Called with each piece of its stderr; must not block.
        box: Confines the program; None runs it with all rights of the user. If it exceeds a limit of the box, it is
            ended, which its reader sees as the end of its output.

    Raises:
        SandboxError: The program could not be started; the message says why.
    """

    async def hear(chunk: bytes) -> None:
        on_stderr(chunk)

    with contextlib.ExitStack() as open_pipes:
        stdin, stdout, stderr = _Pipe(open_pipes), _Pipe(open_pipes), _Pipe(open_pipes)
        tree, boxed = _start(argv, cwd, environ, stdin, stdout, stderr, None, box)
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(_Pump(stderr, head_bytes=0, tail_bytes=0, on_chunk=hear).run)
                if boxed is not None:
                    group.start_soon(_guard, Watchdog(tree.pid, boxed.watch), tree)
                yield RunningProcess(tree, stdin=stdin, stdout=stdout, pid=tree.pid)
                group.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                stdin.write.close()
                with anyio.move_on_after(EXIT_S):
                    await _wait_and_drain(tree, stdout)
                await tree.end(_GRACE_S)
            _forward_rest(stderr, on_stderr)
            tree.close()
            if boxed is not None and boxed.after is not None:
                boxed.after()


async def _guard(watchdog: Watchdog, tree: _Tree) -> None:
    """End the program if it exceeds a limit of its box."""
    await watchdog.run()
    await tree.end(_GRACE_S)


def _forward_rest(pipe: _Pipe, on_chunk: Callable[[bytes], None]) -> None:
    """Pass on what a program wrote before it ended: often its last words say why."""
    left = MAX_PIPE_BYTES
    while left > 0 and (chunk := pipe.read.read(CHUNK_BYTES)):
        on_chunk(chunk)
        left -= len(chunk)


async def _wait_and_drain(tree: _Tree, stdout: _Pipe) -> None:
    """Wait for the exit. Output is read and discarded, because a full pipe would keep the process from exiting."""
    async with anyio.create_task_group() as group:
        group.start_soon(_Pump(stdout, head_bytes=0, tail_bytes=0, on_chunk=None).run)
        await tree.leader_exit()
        group.cancel_scope.cancel()
