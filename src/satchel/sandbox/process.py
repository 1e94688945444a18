"""Starts processes on the host and leaves none of them behind: the only module that uses `subprocess`.

By itself, this is not isolation: without a box, a process runs with the user's rights. `run_process` guarantees that
its output is bounded, that its time is limited, and that the process and everything that it started have ended when the
function returns, however it returns.

On Linux, "everything that it started" means every process in its session and process group, every descendant, and every
process with the mark that is put into its environment (`MARK`). The mark also finds a daemon that forked twice and
created its own session. A process that does both *and* clears its environment before we look escapes; preventing that
takes a PID namespace, which is the sandbox's task. Without /proc, only the process group is ended.

If this program is killed, the warden ends the same processes; see `warden`.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import os
import secrets
import select
import signal
import subprocess
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import anyio
import anyio.to_thread

from satchel.errors import SandboxError
from satchel.sandbox.marks import MARK as MARK
from satchel.sandbox.marks import REPORT_FD as REPORT_FD
from satchel.sandbox.port import Boxed, Entrance, Status
from satchel.sandbox.warden import Warden
from satchel.sandbox.watchdog import Watchdog

StreamName: TypeAlias = Literal["stdout", "stderr"]
OnOutput: TypeAlias = Callable[[StreamName, bytes], Awaitable[None]]

CHUNK_BYTES = 65_536
"""The default capacity of a pipe on Linux, so that one read empties it."""
MAX_PIPE_BYTES = 1_048_576
"""The default maximum size of a pipe (/proc/sys/fs/pipe-max-size): what may remain in it after its writer has ended."""
QUICK_RUN_S = 5.0
"""In a shorter run, the pid counter can't have wrapped around, so only pids after the leader's are examined."""
LINGER_S = 0.1
"""How long remaining processes may take to end by themselves, such as the `tee` of a process substitution. Time in
which one of them waits for a processor doesn't count."""
LINGER_MOST_S = 5.0
"""The limit of that on a machine that is too busy to run them."""
UNCLEAR_S = 0.005
UNCLEAR_LOOKS = 3
"""The number of times that an unidentified process is examined again, with `UNCLEAR_S` between; execve takes less time
than that."""
KERNEL_THREADS_PARENT = 2
KILL_ROUNDS = 10
"""How often SIGKILL is repeated for processes that were forked between looking and killing; forking loses this race
quickly."""
KILL_WAIT_S = 1.0
"""How long to wait after SIGKILL; only a process that hangs in the kernel takes longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """The output of one pipe: its beginning and its end, together at most as long as the limit.

    Attributes:
        omitted: Bytes left out between `head` and `tail`; 0 if the output is complete.
    """

    head: bytes = b""
    tail: bytes = b""
    omitted: int = 0

    @property
    def data(self) -> bytes:
        """Head and tail, without a marker for what is missing between them."""
        return self.head + self.tail

    @property
    def text(self) -> str:
        """The output as UTF-8, with U+FFFD for invalid bytes and a line that says how many bytes were left out."""
        if not self.omitted:
            return self.data.decode(errors="replace")
        head, tail = self.head.decode(errors="replace"), self.tail.decode(errors="replace")
        return f"{head}\n[… {self.omitted:,} bytes left out …]\n{tail}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessResult:
    """How a process ended.

    Attributes:
        exit_code: 0 to 255, or None if a signal ended it.
        signal: The number of the signal, or None.
        timed_out: It was ended because of the time limit.
        report: What it wrote to the descriptor in `REPORT_FD`: the beginning, up to the limit.
        left_behind: The number of processes that it left running and that were then ended.
        stopped: The limit of its box (memory, processes, disk) that it exceeded and for which it was ended; or None.
        peak_mb: The most memory that it was seen to use, in MiB, with its descendants; 0 if it ran without a box.
    """

    exit_code: int | None
    signal: int | None
    timed_out: bool
    stdout: Captured
    stderr: Captured
    report: bytes
    left_behind: int
    duration_s: float
    stopped: Status | None = None
    peak_mb: int = 0


async def run_process(
    argv: Sequence[str],
    *,
    cwd: Path,
    environ: Mapping[str, str],
    stdin: bytes | None = None,
    timeout_s: float | None = None,
    max_output_bytes: int = 1_048_576,
    max_report_bytes: int = 0,
    on_output: OnOutput | None = None,
    grace_s: float = 1.0,
    box: Entrance | None = None,
) -> ProcessResult:
    """Run a program to its end, in its own session and process group, without a terminal.

    The run is over when the program itself exits. Processes that it left running are ended then. A pipe that another
    process still holds is emptied, without waiting for more. If the caller is cancelled, everything is ended first,
    which takes slightly more than `grace_s`.

    Args:
        argv: The program and its arguments. A program without a slash is searched on the PATH of `environ`. No shell
            is involved.
        cwd: Its working directory.
        environ: Its complete environment; `MARK` is added.
        stdin: Its input; None means /dev/null. It is not an error if the program doesn't read it.
        timeout_s: After this time everything is ended and `timed_out` is set; None means no limit.
        max_output_bytes: The limit for stdout and stderr each. The first half and the last half are kept; the rest is
            read and dropped.
        max_report_bytes: If above 0, a third pipe is opened for a report; see `REPORT_FD`.
        on_output: Called with each piece of output. While it runs, its pipe is not read, so the program waits. An
            exception from it ends the program and reaches the caller.
        grace_s: The time between SIGTERM and SIGKILL.
        box: Confines the program; None runs it with all rights of the user.

    Raises:
        SandboxError: The program could not be started; the cause is the OSError or ValueError.
    """
    started = StartedProcess(
        argv, cwd=cwd, environ=environ, has_stdin=stdin is not None, has_report=max_report_bytes > 0, box=box
    )
    return await started.finish(
        stdin=stdin,
        timeout_s=timeout_s,
        max_output_bytes=max_output_bytes,
        max_report_bytes=max_report_bytes,
        on_output=on_output,
        grace_s=grace_s,
    )


class StartedProcess:
    """A program that was started and that nobody listens to yet. It must be finished or discarded."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        environ: Mapping[str, str],
        has_stdin: bool = False,
        has_report: bool = False,
        box: Entrance | None = None,
    ) -> None:
        """Start it; the arguments are those of `run_process`.

        Raises:
            SandboxError: As `run_process`.
        """
        with contextlib.ExitStack() as open_pipes:
            self._stdin = _Pipe(open_pipes) if has_stdin else None
            self._stdout, self._stderr = _Pipe(open_pipes), _Pipe(open_pipes)
            self._report = _Pipe(open_pipes) if has_report else None
            self._tree, self._boxed = _start(
                argv, cwd, environ, self._stdin, self._stdout, self._stderr, self._report, box
            )
            self._open_pipes = open_pipes.pop_all()

    @property
    def has_exited(self) -> bool:
        """Whether it has ended by itself."""
        return self._tree.has_exited

    def discard(self) -> None:
        """Kill it and everything that it started."""
        self._tree.kill_now()
        self._close()

    async def finish(
        self,
        *,
        stdin: bytes | None = None,
        timeout_s: float | None = None,
        max_output_bytes: int = 1_048_576,
        max_report_bytes: int = 0,
        on_output: OnOutput | None = None,
        grace_s: float = 1.0,
        on_start: Callable[[anyio.CancelScope], None] | None = None,
    ) -> ProcessResult:
        """Run it to its end; the arguments are those of `run_process`. The time counts from now.

        `on_start` gets the scope that ends the run when it is cancelled.
        """
        began_s = anyio.current_time()
        half = max_output_bytes // 2
        tree = self._tree
        watchdog = Watchdog(tree.pid, self._boxed.watch) if self._boxed is not None else None
        stdout = _Pump(
            self._stdout, head_bytes=half, tail_bytes=half, on_chunk=_for_stream(on_output, "stdout")
        )
        stderr = _Pump(
            self._stderr, head_bytes=half, tail_bytes=half, on_chunk=_for_stream(on_output, "stderr")
        )
        pumps = [stdout, stderr]
        if self._report is not None:
            pumps.append(_Pump(self._report, head_bytes=max_report_bytes, tail_bytes=0, on_chunk=None))
        exited = False
        try:
            with anyio.move_on_after(timeout_s) as limit:
                if on_start is not None:
                    on_start(limit)
                async with anyio.create_task_group() as group:
                    for pump in pumps:
                        group.start_soon(pump.run)
                    watching, feeding = anyio.CancelScope(), anyio.CancelScope()
                    if watchdog is not None:
                        group.start_soon(_guard, watchdog, watching, limit)
                    if self._stdin is not None and stdin is not None:
                        group.start_soon(_feed, self._stdin, stdin, feeding)
                    await tree.leader_exit()
                    exited = True
                    watching.cancel()
                    await tree.end(grace_s)
                    feeding.cancel()
                    for pump in pumps:
                        pump.finish()
        finally:
            with anyio.CancelScope(shield=True):
                await tree.end(grace_s)
            for pump in pumps:
                pump.drain()
            self._close()
        code = tree.returncode
        exceeded = watchdog.exceeded if watchdog is not None else None
        return ProcessResult(
            exit_code=code if code is not None and code >= 0 else None,
            signal=-code if code is not None and code < 0 else None,
            timed_out=not exited and exceeded is None,
            stdout=stdout.captured,
            stderr=stderr.captured,
            report=pumps[2].captured.head if self._report is not None else b"",
            left_behind=tree.left_behind,
            duration_s=anyio.current_time() - began_s,
            stopped=exceeded,
            peak_mb=watchdog.peak_mb if watchdog is not None else 0,
        )

    def _close(self) -> None:
        self._tree.close()
        self._open_pipes.close()
        if self._boxed is not None and self._boxed.after is not None:
            self._boxed.after()


async def _guard(watchdog: Watchdog, watching: anyio.CancelScope, limit: anyio.CancelScope) -> None:
    """End the run if a limit is exceeded."""
    with watching:
        await watchdog.run()
        limit.cancel()


class _Pipe:
    """Both ends of a pipe, closed at the latest with `stack`."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        try:
            read_fd, write_fd = os.pipe()
        except OSError as error:
            raise SandboxError(f"No pipe could be opened for a new process: {error.strerror}.") from error
        self.read = stack.enter_context(os.fdopen(read_fd, "rb", buffering=0))
        self.write = stack.enter_context(os.fdopen(write_fd, "wb", buffering=0))


def _start(
    argv: Sequence[str],
    cwd: Path,
    environ: Mapping[str, str],
    stdin: _Pipe | None,
    stdout: _Pipe,
    stderr: _Pipe,
    report: _Pipe | None,
    box: Entrance | None,
) -> tuple[_Tree, Boxed | None]:
    """Start the program, close its ends of the pipes, and make our ends non-blocking."""
    mark = secrets.token_hex(8)
    outer = environ.get(MARK)
    marks = [outer] if outer else []
    child_environ = {**environ, MARK: ":".join([*marks, f"{_warden.mark}-{mark}"])}
    theirs: list[io.FileIO] = [stdout.write, stderr.write]
    for pipe in (stdout, stderr):
        os.set_blocking(pipe.read.fileno(), False)
    if stdin is not None:
        theirs.append(stdin.read)
        os.set_blocking(stdin.write.fileno(), False)
    if report is not None:
        theirs.append(report.write)
        os.set_blocking(report.read.fileno(), False)
        child_environ[REPORT_FD] = str(report.write.fileno())
    boxed = box.enter(argv, cwd=cwd, environ=child_environ) if box is not None else None
    inherited = () if report is None else (report.write.fileno(),)
    # An exit of the interpreter in another thread has to wait until the tree is in `_live`.
    with contextlib.ExitStack() as ours, _starting:
        for descriptor in boxed.descriptors if boxed is not None else ():
            ours.callback(os.close, descriptor)
        _warden.ensure_running(environ)
        try:
            leader = subprocess.Popen(
                list(argv if boxed is None else boxed.argv),
                cwd=cwd if boxed is None else boxed.cwd,
                env=child_environ if boxed is None else boxed.environ,
                stdin=subprocess.DEVNULL if stdin is None else stdin.read,
                stdout=stdout.write,
                stderr=stderr.write,
                pass_fds=inherited if boxed is None else (*inherited, *boxed.descriptors),
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise SandboxError(f"{argv[0]!r} could not be started in {str(cwd)!r}: {why}.") from error
        tree = _Tree(leader, mark)
        try:
            _warden.watch(leader.pid)
        except SandboxError:
            tree.kill_now()
            tree.close()
            raise
    for end in theirs:
        end.close()
    return tree, boxed


class Tape:
    """Keeps the beginning and the end of some output."""

    def __init__(self, *, head_bytes: int, tail_bytes: int) -> None:
        self._head_bytes = head_bytes
        self._tail_bytes = tail_bytes
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    def keep(self, chunk: bytes) -> None:
        """Add a piece."""
        self._total += len(chunk)
        room = self._head_bytes - len(self._head)
        self._head += chunk[:room]
        if self._tail_bytes:
            self._tail += chunk[room:]
            # Cut only at twice the size, so that each byte is moved once on average.
            if len(self._tail) > 2 * self._tail_bytes:
                del self._tail[: -self._tail_bytes]

    @property
    def captured(self) -> Captured:
        """What was kept so far."""
        tail = bytes(self._tail[max(0, len(self._tail) - self._tail_bytes) :])
        return Captured(head=bytes(self._head), tail=tail, omitted=self._total - len(self._head) - len(tail))


class _Pump:
    """Reads one pipe while the program runs and keeps the beginning and the end of its output."""

    def __init__(
        self,
        pipe: _Pipe,
        *,
        head_bytes: int,
        tail_bytes: int,
        on_chunk: Callable[[bytes], Awaitable[None]] | None,
    ) -> None:
        self._file = pipe.read
        self._tape = Tape(head_bytes=head_bytes, tail_bytes=tail_bytes)
        self._on_chunk = on_chunk
        self._waiting = anyio.CancelScope()
        self._finishing = False

    async def run(self) -> None:
        """Read until the end of the pipe; or until `finish`, and then what the pipe contains at that moment."""
        while not self._finishing:
            with anyio.CancelScope() as self._waiting:
                await anyio.wait_readable(self._file)
            if self._finishing:
                break
            chunk = self._file.read(CHUNK_BYTES)
            if chunk == b"":
                return
            if chunk:
                await self._receive(chunk)
        left = MAX_PIPE_BYTES
        while left > 0 and (chunk := self._file.read(CHUNK_BYTES)):
            left -= len(chunk)
            await self._receive(chunk)

    def finish(self) -> None:
        """Stop waiting for more output."""
        self._finishing = True
        self._waiting.cancel()

    def drain(self) -> None:
        """Keep what the pipe contains now, without calling `on_chunk`."""
        left = MAX_PIPE_BYTES
        while left > 0 and (chunk := self._file.read(CHUNK_BYTES)):
            left -= len(chunk)
            self._tape.keep(chunk)

    @property
    def captured(self) -> Captured:
        """The output that was kept so far."""
        return self._tape.captured

    async def _receive(self, chunk: bytes) -> None:
        self._tape.keep(chunk)
        if self._on_chunk is not None:
            await self._on_chunk(chunk)


def _for_stream(on_output: OnOutput | None, stream: StreamName) -> Callable[[bytes], Awaitable[None]] | None:
    if on_output is None:
        return None

    def forward(chunk: bytes) -> Awaitable[None]:
        return on_output(stream, chunk)

    return forward


async def _feed(pipe: _Pipe, data: bytes, scope: anyio.CancelScope) -> None:
    """Write all data and close the pipe. A program may close its end, or never read."""
    rest = memoryview(data)
    with scope, contextlib.suppress(BrokenPipeError):
        while rest:
            await anyio.wait_writable(pipe.write)
            rest = rest[pipe.write.write(rest[:CHUNK_BYTES]) or 0 :]
    pipe.write.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stat:
    """The needed fields of /proc/PID/stat; `started` is in clock ticks since boot, `spent` in ticks of a processor."""

    pid: int
    state: bytes
    parent: int
    group: int
    session: int
    spent: int
    started: int


class _Tree:
    """A started program, called the leader, and all processes that come from it."""

    def __init__(self, leader: subprocess.Popen[bytes], mark: str) -> None:
        self.left_behind = 0
        self._leader = leader
        self._mark = mark.encode()
        self._began_s = time.monotonic()
        self._owner = os.getpid()
        self._over = False
        self._closed = False
        self._unclear = False
        # The interpreter exits in the main thread, which may not be the thread of the event loop.
        self._lock = threading.Lock()
        # A pidfd always refers to the same process; a pid may have been reused by the time that it is used.
        self._pidfds: dict[int, int] = {}
        if hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):
                self._pidfds[leader.pid] = os.pidfd_open(leader.pid)
        self._has_pidfds = bool(self._pidfds)
        _live.add(self)

    @property
    def pid(self) -> int:
        """The pid of the leader."""
        return self._leader.pid

    @property
    def returncode(self) -> int | None:
        """Like `Popen.returncode`; None until the leader is reaped."""
        return self._leader.returncode

    @property
    def has_exited(self) -> bool:
        """Whether the leader has exited."""
        leader = self._pidfds.get(self._leader.pid)
        return _has_exited(leader) if leader is not None else self._leader.poll() is not None

    async def leader_exit(self) -> None:
        """Wait for the leader to exit. With pidfds it stays a zombie, so that its pid is not reused."""
        if self._has_pidfds:
            await anyio.wait_readable(self._pidfds[self._leader.pid])
        else:
            await anyio.to_thread.run_sync(self._leader.wait, abandon_on_cancel=True, limiter=_waiters)

    async def end(self, grace_s: float) -> None:
        """End all processes: SIGTERM, `grace_s`, SIGKILL until none is left; then reap. A second call does nothing.

        If the leader has exited, the others first get `LINGER_S` to exit by themselves.
        """
        if self._over:
            return
        running = await self._look()
        if running and self._leader.pid not in running:
            running = await self._linger(running)
            self.left_behind = max(self.left_behind, len(running))
        if running:
            self._signal(signal.SIGTERM)
            # A stopped process receives SIGTERM only after it continues.
            self._signal(signal.SIGCONT)
            await self._wait_for_exit(grace_s)
        for _ in range(KILL_ROUNDS):
            if not await self._look():
                break
            self._signal(signal.SIGKILL)
            await self._wait_for_exit(KILL_WAIT_S)
        self._reap()
        self._over = True

    async def _linger(self, running: list[int]) -> list[int]:
        """Let remaining processes end by themselves. Returns those that have not."""
        until_s = time.monotonic() + LINGER_MOST_S
        while True:
            before = running
            await self._wait_for_exit(LINGER_S)
            running = await self._look()
            goes_on = set(running) != set(before) or any(map(_is_held_up, running))
            if not running or not goes_on or time.monotonic() > until_s:
                return running

    def kill_now(self) -> None:
        """Send SIGKILL to all and wait only for the leader, because the interpreter is exiting."""
        # A forked copy of this program must not end the processes of its parent.
        if os.getpid() != self._owner:
            return
        for _ in range(KILL_ROUNDS):
            running = self._running()
            if running:
                self._signal(signal.SIGKILL)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._leader.wait(timeout=KILL_WAIT_S)
            elif not self._unclear:
                break
            else:
                time.sleep(UNCLEAR_S)
        # One that had already exited was not waited for above.
        self._leader.poll()

    def close(self) -> None:
        """Close the descriptors."""
        with self._lock:
            for pidfd in self._pidfds.values():
                os.close(pidfd)
            self._pidfds.clear()
            self._closed = True
        _live.discard(self)

    async def _look(self) -> list[int]:
        """Like `_running`, but examine unidentified processes again."""
        running = self._running()
        for _ in range(UNCLEAR_LOOKS):
            if running or not self._unclear:
                break
            await anyio.sleep(UNCLEAR_S)
            running = self._running()
        return running

    def _running(self) -> list[int]:
        """Find relatives and return the pids of all running processes; without pidfds, the leader's for its group."""
        if not self._has_pidfds:
            return [self._leader.pid] if _group_exists(self._leader.pid) else []
        with self._lock:
            if self._closed:
                return []
            self._find_relatives()
            return [pid for pid, pidfd in self._pidfds.items() if not _has_exited(pidfd)]

    def _find_relatives(self) -> None:
        self._unclear = False
        stats = [stat for pid in self._candidates() if (stat := _stat(pid)) is not None]
        growing = True
        while growing:
            growing = False
            for stat in stats:
                if stat.pid not in self._pidfds and self._is_relative(stat) and self._track(stat):
                    growing = True

    def _candidates(self) -> Iterator[int]:
        """The pids to examine: in a short run, only those that were assigned after the leader's."""
        leader = self._leader.pid
        newest = _newest_pid() if time.monotonic() - self._began_s < QUICK_RUN_S else None
        try:
            # This runs once or twice for each process that ends; text costs a third of what paths cost.
            names = os.listdir("/proc")
        except OSError:
            return
        for name in names:
            if name.isdigit() and (pid := int(name)) != leader:
                wrapped = newest is not None and newest < leader
                if newest is None or (pid > leader or pid <= newest if wrapped else leader < pid <= newest):
                    yield pid

    def _is_relative(self, stat: _Stat) -> bool:
        leader = self._leader.pid
        if stat.session == leader or stat.group == leader or stat.parent in self._pidfds:
            return True
        try:
            environ = _read_proc(f"/proc/{stat.pid}/environ")
        except OSError:
            return False
        # During execve, a process has no environment for an instant. Kernel threads never have one.
        if not environ and stat.parent != KERNEL_THREADS_PARENT:
            self._unclear = True
        return self._mark in environ

    def _track(self, stat: _Stat) -> bool:
        try:
            pidfd = os.pidfd_open(stat.pid)
        except OSError:
            return False
        # The pid may have been reused before the pidfd was opened.
        again = _stat(stat.pid)
        if again is None or again.started != stat.started:
            os.close(pidfd)
            return False
        self._pidfds[stat.pid] = pidfd
        return True

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._leader.pid, number)
        with self._lock:
            for pid, pidfd in self._pidfds.items():
                if pid != self._leader.pid:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        signal.pidfd_send_signal(pidfd, number)

    async def _wait_for_exit(self, limit_s: float) -> None:
        """Wait until all known processes have exited, at most `limit_s`."""
        with anyio.move_on_after(limit_s):
            for pidfd in list(self._pidfds.values()):
                await anyio.wait_readable(pidfd)
            while not self._has_pidfds and _group_exists(self._leader.pid):
                self._leader.poll()
                await anyio.sleep(0.02)

    def _reap(self) -> None:
        _warden.release(self._leader.pid)
        self._leader.poll()
        for pid in self._pidfds:
            if pid != self._leader.pid:
                # If we are the first process of a container, we inherit orphans.
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)


def watch_notes(folder: Path, environ: Mapping[str, str]) -> int:
    """Have what `aside.save` wrote in a folder acted upon if this program is killed.

    Returns:
        The pid of the process that does it.

    Raises:
        SandboxError: As `Warden.ensure_running`.
    """
    _warden.ensure_running(environ)
    _warden.keep_notes(folder)
    return _warden.pid


_live: set[_Tree] = set()
_warden = Warden()
_starting = threading.Lock()
_waiters = anyio.CapacityLimiter(64)


def _end_all_at_exit() -> None:
    # Never released: from now on, no process is started.
    _starting.acquire(timeout=KILL_WAIT_S)
    for tree in list(_live):
        tree.kill_now()
    _warden.leave()


atexit.register(_end_all_at_exit)
os.register_at_fork(after_in_child=_warden.forget)


def _has_exited(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


def _group_exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _newest_pid() -> int | None:
    """The pid that was assigned last, or None if the system doesn't say."""
    try:
        return int(Path("/proc/loadavg").read_text(encoding="ascii").split()[4])
    except (OSError, ValueError, IndexError):
        return None


def _read_proc(path: str) -> bytes:
    """The content of a file in /proc."""
    with open(path, "rb", buffering=0) as file:
        return file.readall()


def _stat(pid: int) -> _Stat | None:
    """What /proc says about a process; None if it has exited."""
    try:
        line = _read_proc(f"/proc/{pid}/stat")
    except OSError:
        return None
    # The name, in parentheses, may contain anything; the fields after the last parenthesis are plain.
    rest = line[line.rfind(b")") + 2 :].split()
    if len(rest) < 20 or rest[0] in {b"Z", b"X"}:
        return None
    return _Stat(
        pid=pid,
        state=rest[0],
        parent=int(rest[1]),
        group=int(rest[2]),
        session=int(rest[3]),
        spent=int(rest[11]) + int(rest[12]),
        started=int(rest[19]),
    )


def _is_held_up(pid: int) -> bool:
    """Whether a process would run, or reads from a disk, and has hardly had a processor yet."""
    stat = _stat(pid)
    return (
        stat is not None and stat.state in (b"R", b"D") and stat.spent < LINGER_S * os.sysconf("SC_CLK_TCK")
    )
