"""A process that has loaded a program and waits; each process of a person is a copy of it.

So a person's process doesn't load the program once more, and shares the memory of what was loaded. The original is told
no secret: it doesn't have the environment of the front door, and what is meant for a copy goes to the copy alone. A
copy has changed its user without starting a program, so Linux lets no other program of that user read its memory.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from satchel.config.loading import prepare_libraries, replace_environ
from satchel.errors import SandboxError
from satchel.processes import has_ended
from satchel.sandbox.apart import argv

_NUMBER: Final = 4
"""Bytes of what is asked of the original, and of its answer: 0 for a new copy, which is answered with its number; else
whether the copy of this number has ended, which is answered with the number, with 0 if it runs, or with `_UNKNOWN`.
"""
_UNKNOWN: Final = 1
"""It is the copy of an original that has died, or was asked about before."""
_LOOK_S: Final = 0.05
_ANSWER_S = 120.0
"""An original that says nothing for so long, as whatever else hangs at its start, is replaced."""


@dataclass(slots=True, eq=False)
class Copy:
    """A process that was started.

    Attributes:
        stdin: The process ends when this is closed, so also when this process is killed.
    """

    pid: int
    stdin: BinaryIO

    @property
    def has_ended(self) -> bool:
        """Whether it is there no more, or doesn't listen any more to be ended."""
        # Nobody can read what is written. Where a child of the copy's could, Linux knows better.
        reader = select.poll()
        try:
            reader.register(self.stdin, 0)
        except ValueError:  # closed, because it has been ended
            return True
        return bool(reader.poll(0)) or has_ended(self.pid)


@dataclass(slots=True)
class Original:
    """The original, which is started when it is needed, and again if it has died. For several threads.

    Attributes:
        modules: What it loads.
        environ: Its whole environment, which the user of each copy can read.
        version: A file that is another one once the program was upgraded, which needs another original.
    """

    modules: Sequence[str]
    environ: Mapping[str, str]
    version: Path
    _asked: socket.socket | None = None
    _process: subprocess.Popen[bytes] | None = None
    _loaded: tuple[int, int] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def load(self) -> None:
        """Start it, if it doesn't run, without waiting for it. Why it can't be, `start` says."""
        with self._lock, suppress(OSError):
            self._ensure()

    def start(
        self,
        arguments: Sequence[str],
        *,
        cwd: Path,
        environ: Mapping[str, str],
        log: Path,
        uid: int | None,
        fd: int,
        first_line: str,
    ) -> Copy:
        """Start a copy that runs a module.

        Args:
            arguments: The module and what it is given, such as ("satchel", "serve").
            cwd: Its working folder, entered with this process's rights: none that its user could replace by a link.
            environ: What it takes for its environment.
            log: What it prints is appended here, to a file that is opened with this process's rights.
            uid: Its user and group; None keeps those of this process.
            fd: A descriptor that it inherits. Its number there becomes the last argument.
            first_line: What it reads first from stdin.

        Raises:
            SandboxError: It could not be started.
        """
        try:
            log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            output = os.open(
                log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
            )
            told, stdin = os.pipe()
            try:
                with self._lock:
                    pid = self._ask(0, (told, output, fd))
            except BaseException:
                os.close(stdin)
                raise
            finally:
                os.close(told)
                os.close(output)
            started = Copy(pid, os.fdopen(stdin, "wb", buffering=0))
            orders = {"arguments": [*arguments], "cwd": str(cwd), "environ": dict(environ), "uid": uid}
            with suppress(BrokenPipeError):  # it has ended, which will be seen
                started.stdin.write(f"{json.dumps(orders)}\n{first_line}\n".encode())
        except OSError as error:
            raise SandboxError(f"{cwd.name}'s Satchel could not be started: {error}.") from error
        return started

    def end(self, copy: Copy, *, wait_s: float) -> None:
        """End a copy: with SIGTERM, and with SIGKILL where that isn't enough in time."""
        give_up_s = time.monotonic() + wait_s
        with suppress(ProcessLookupError):
            if not self._is_over(copy):
                os.kill(copy.pid, signal.SIGTERM)
            while not self._is_over(copy):
                if time.monotonic() > give_up_s:
                    os.kill(copy.pid, signal.SIGKILL)
                time.sleep(_LOOK_S)
        copy.stdin.close()

    def _is_over(self, copy: Copy) -> bool:
        """Whether a copy has ended. As long as this says no, its number is no other process's."""
        with self._lock:
            try:
                answer = self._ask(copy.pid)
            except OSError:
                answer = _UNKNOWN
        return has_ended(copy.pid) if answer == _UNKNOWN else answer == copy.pid

    def close(self) -> None:
        """End the original; copies stay."""
        with self._lock:
            self._stop()

    def _ask(self, number: int, fds: Sequence[int] = ()) -> int:
        for is_last in (False, True):
            if fds:
                self._ensure()
            if self._asked is None:
                break
            with suppress(OSError):
                socket.send_fds(self._asked, [number.to_bytes(_NUMBER)], fds)
                if answer := self._asked.recv(_NUMBER, socket.MSG_WAITALL):
                    return int.from_bytes(answer)
            self._stop()
            if not fds or is_last:
                break
        raise OSError("the process that it is a copy of has ended")

    def _ensure(self) -> None:
        state = self.version.stat()
        if self._process is not None and self._loaded != (state.st_ino, state.st_mtime_ns):
            self._stop()
        if self._process is None:
            self._asked, theirs = socket.socketpair()
            self._asked.settimeout(_ANSWER_S)
            with theirs:
                self._process = subprocess.Popen(
                    argv(("satchel.sandbox.original", *self.modules)),
                    cwd="/",
                    env=dict(self.environ),
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    start_new_session=True,
                )
            self._loaded = state.st_ino, state.st_mtime_ns

    def _stop(self) -> None:
        if self._asked is not None and self._process is not None:
            self._asked.close()
            self._process.kill()
            self._process.wait()
        self._asked = self._process = None


def _wait_for_orders() -> list[int]:
    """Make copies. Returns in each of them, with the descriptors that it was given; the original doesn't come back."""
    gc.collect()
    gc.freeze()  # Collecting would write to the memory that copies share.
    orders = socket.socket(fileno=0)
    while True:
        try:
            number, fds, _, _ = socket.recv_fds(orders, _NUMBER, 3)
        except ConnectionResetError:
            number, fds = b"", []
        if not number:
            os._exit(0)
        if fds:
            pid = os.fork()
            if not pid:
                orders.detach()
                return fds
            for fd in fds:
                os.close(fd)
        else:
            try:
                pid, _ = os.waitpid(int.from_bytes(number), os.WNOHANG)
            except ChildProcessError:
                pid = _UNKNOWN
        orders.sendall(pid.to_bytes(_NUMBER))


def _become_what_is_ordered(told: int, output: int, given: int) -> None:
    os.setsid()
    os.umask(0o077)
    for fd, number in ((told, 0), (output, 1), (output, 2)):
        os.dup2(fd, number)
    os.close(told)
    os.close(output)
    os.set_inheritable(given, False)
    orders = json.loads(sys.stdin.readline())
    os.chdir(orders["cwd"])
    if (uid := orders["uid"]) is not None:
        os.setgroups(())
        os.setgid(uid)
        os.setuid(uid)
    replace_environ(orders["environ"])
    module, *arguments = orders["arguments"]
    sys.argv = [module, *arguments, str(given)]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    prepare_libraries()
    for name in sys.argv[1:]:
        importlib.import_module(name)
    _become_what_is_ordered(*_wait_for_orders())
