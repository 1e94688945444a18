"""`satchel`, and programs of tests, in processes that are forked from one which has imported it: starting Python takes
most of a short run.

Such a process is like one that was started anew: it has its own session, folder, environment and streams, and ends as a
program ends. What a test shows about the start itself needs a real one, `tests.cli.programs.PROGRAM`.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Self

from tests.patience import be_patient

__all__ = ["Forked", "Program", "fork", "import_rooms", "run_python"]

_OTHERS = (
    "anyio._backends._asyncio", "anyio._core._sockets", "anyio.streams.memory", "anyio.streams.stapled",
    "importlib.resources.readers", "jsonschema", "jsonschema_specifications", "referencing.jsonschema", "tree_sitter_bash",
)  # fmt: skip
"""What is imported when it is needed, by most runs."""
_MOST_BYTES = 200_000


class Forked:
    """A process: the part of `subprocess.Popen` that tests use.

    Attributes:
        pid: Its number.
    """

    def __init__(self, told: socket.socket) -> None:
        """Take the socket on which its parent tells its number, and how it ends."""
        data, (self._pidfd,), _, _ = socket.recv_fds(told, 64, 1)
        self.pid = int(data)
        self._told = told
        self._code: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; the exit code, negative for a signal."""
        if self._code is None:
            self._told.settimeout(timeout)
            self._code = int(self._told.recv(64))
            self._told.close()
            os.close(self._pidfd)
        return self._code

    def poll(self) -> int | None:
        """The exit code, or None while it runs."""
        with suppress(BlockingIOError):
            self.wait(0)
        return self._code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self._code is None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)


class Program(Forked):
    """`satchel`, or after "-c" Python of a test, in such a process, with text streams.

    Attributes:
        stdin: It reads what is written here, and its end once this is closed.
        stdout: What it says.
    """

    def __init__(
        self,
        *arguments: object,
        cwd: Path = Path(__file__).parents[1],
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        """Start it in the folder from which tests can be imported, unless another one is given."""
        theirs, ours = os.pipe()
        told, tells = os.pipe()
        self.stdin, self.stdout = os.fdopen(ours, "w"), os.fdopen(told)
        self._stderr = tempfile.TemporaryFile("w+")  # noqa: SIM115
        streams = (theirs, tells, self._stderr.fileno())
        super().__init__(_asked([*map(str, arguments)], cwd=cwd, environ=environ, streams=streams))
        os.close(theirs)
        os.close(tells)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for the end; what it said and has not been read, and its errors."""
        self.stdin.close()
        said = self.stdout.read()
        self.stdout.close()
        self.wait(timeout)
        return said, self.errors()

    def errors(self) -> str:
        """What it said on stderr until its end."""
        self.stdin.close()
        with self._stderr:
            self._stderr.seek(0)
            return self._stderr.read()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(BrokenPipeError):
            self.stdin.close()
        self.stdout.close()
        self.wait()
        self._stderr.close()


def run_python(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run Python of a test to its end."""
    with Program("-c", code, *arguments) as program:
        said, errors = program.communicate()
        return subprocess.CompletedProcess(code, program.wait(), said, errors)


def fork(
    arguments: Sequence[str | bytes],
    *,
    cwd: Path,
    environ: Mapping[str, str],
    stdin: int,
    stdout: int,
    stderr: int,
    is_terminal: bool = False,
    python: str = sys.executable,
    mounts_of: int = 0,
) -> Forked:
    """Run `satchel` with these descriptors, which stay open here. A terminal becomes its controlling one.

    `python` is what it starts other programs with. It sees the mounts of the process `mounts_of`, which has its own
    namespaces of users and mounts.
    """
    more = {"is_terminal": is_terminal, "python": python, "mounts_of": mounts_of}
    return Forked(_asked(arguments, cwd=cwd, environ=environ, streams=(stdin, stdout, stderr), **more))


def _asked(
    arguments: Sequence[str | bytes],
    *,
    cwd: Path,
    environ: Mapping[str, str],
    streams: tuple[int, int, int],
    **more: Any,
) -> socket.socket:
    """Ask for a process; the socket that `Forked` takes."""
    asked = {
        "arguments": [os.fsdecode(argument) for argument in arguments],
        "cwd": str(cwd),
        "environ": dict(environ),
        **more,
    }
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        data = json.dumps(asked).encode()
        assert len(data) < _MOST_BYTES
        socket.send_fds(_server(), [data], [*streams, theirs.fileno()])
    return ours


@cache
def _server() -> socket.socket:
    """The process that is forked, as a socket to it. It ends when this process does."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    kept = ("PATH", "PYTHONPATH", "MALLOC_ARENA_MAX", "OPENBLAS_NUM_THREADS")
    environ = {name: value for name, value in os.environ.items() if name in kept}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.forking", str(theirs.fileno())],
        cwd=Path(__file__).parents[1],
        env={**environ, "LANG": "C.UTF-8"},
        stdin=subprocess.DEVNULL,
        pass_fds=[theirs.fileno()],
        start_new_session=True,
    )
    theirs.close()

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


# ---- In the process that is forked


def import_rooms(*rooms: str) -> None:
    """Import all of some rooms, and of other packages what they import when they need it."""
    for room in rooms:
        path = importlib.import_module(f"satchel.{room}").__path__
        for found in pkgutil.walk_packages(path, f"satchel.{room}."):
            importlib.import_module(found.name)
    for name in _OTHERS:
        importlib.import_module(name)


def serve(control: socket.socket) -> None:
    """Fork for each request, and tell how the copies end. Returns in each copy."""
    running: dict[int, tuple[int, socket.socket]] = {}
    poll = select.poll()
    poll.register(control, select.POLLIN)
    while True:
        for fd, _ in poll.poll():
            if fd in running:
                pid, told = running.pop(fd)
                poll.unregister(fd)
                os.close(fd)
                _, status = os.waitpid(pid, 0)
                with told, suppress(OSError):  # the test may not care
                    told.send(str(os.waitstatus_to_exitcode(status)).encode())
                continue
            data, fds, _, _ = socket.recv_fds(control, _MOST_BYTES, 4)
            if not data:
                os._exit(0)
            # Threads are not forked with the rest; whoever waits for one of them in the copy waits for ever.
            assert threading.active_count() == 1
            child = os.fork()
            if child == 0:
                for each in (control, *(told for _, told in running.values())):
                    each.detach()  # all descriptors are closed
                become(json.loads(data), fds)
                return
            pidfd = os.pidfd_open(child)
            told = socket.socket(fileno=fds.pop())
            socket.send_fds(told, [str(child).encode()], [pidfd])
            running[pidfd] = child, told
            poll.register(pidfd, select.POLLIN)
            for number in fds:
                os.close(number)


def become(asked: Mapping[str, Any], fds: Sequence[int]) -> None:
    """Be the program that was asked for, up to its main function."""
    os.setsid()
    for number, fd in enumerate(fds[:3]):
        os.dup2(fd, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    if asked.get("is_terminal"):
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    if asked.get("mounts_of"):
        for kind in ("user", "mnt"):
            with Path(f"/proc/{asked['mounts_of']}/ns/{kind}").open() as namespace:
                assert ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), 0) == 0, ctypes.get_errno()
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["environ"])
    time.tzset()
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        before = getattr(sys, name)
        stream = open(  # noqa: SIM115 - it is the process's own
            number,
            "w" if number else "r",
            buffering=1 if number == 2 or os.isatty(number) else -1,
            encoding=before.encoding,
            errors=before.errors,
            closefd=False,
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.executable = asked.get("python", sys.executable)
    sys.argv[1:] = asked["arguments"]


def main() -> int:
    """Import the program, serve, and be it."""
    control = socket.socket(fileno=int(sys.argv[1]))
    import_rooms(
        "builder",
        "capabilities",
        "cli",
        "loop",
        "memory",
        "models.openai",
        "runtime",
        "sessions",
        "storage",
        "tools",
    )
    for name in (
        "satchel.server.app",
        "satchel.server.listening",
        "h2.connection",
        "httpcore2",
        "openai.resources.chat.completions",
        "truststore",
    ):
        importlib.import_module(name)
    for name in ("prompt_toolkit.shortcuts", "rich.console", "rich.markdown"):
        importlib.import_module(name)
    be_patient()
    gc.freeze()
    serve(control)
    if sys.argv[1:2] == ["-c"]:
        del sys.argv[0]
        code = sys.argv.pop(1)
        exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102 - the test's own
        return 0
    from satchel.cli import main  # noqa: PLC0415

    return main()


if __name__ == "__main__":
    sys.exit(main())
