"""A helper process that briefly outlives this program and ends what tools left running if Satchel was killed.

When this program exits in an orderly way, it ends the processes of its tools itself. SIGKILL and a crash of the
interpreter leave no time for that. Therefore a shell (`warden.sh`) waits at the other end of a pipe until this program
is gone and ends them then. It is started together with the first process, once per program; each later process costs
two short writes.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from satchel.errors import SandboxError

SHELL = "/bin/sh"
SCRIPT = Path(__file__).with_name("warden.sh")
SYSTEM_PATH = "/usr/bin:/bin"
"""Searched first for grep, awk and sleep, because the PATH of a tool may begin with the tool's own folder."""


class Warden:
    """Watches the processes that this program starts.

    Attributes:
        mark: Identifies the started processes in their environment: 64 random bits in hexadecimal.
    """

    def __init__(self) -> None:
        self.mark = secrets.token_hex(8)
        self._leaders: set[int] = set()
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe_fd = -1
        self._path = SYSTEM_PATH
        self._notes = ""
        self._lock = threading.Lock()

    @property
    def pid(self) -> int:
        """Of the shell; 0 before it is started."""
        return self._process.pid if self._process is not None else 0

    def keep_notes(self, folder: Path) -> None:
        """Say where notes about running commands are: the shell has them set aside what is left; see `aside.save`. A
        folder whose path has a line break is not taken.
        """
        with self._lock:
            if str(folder) != self._notes and "\n" not in str(folder):
                self._notes = str(folder)
                self._send(f"={folder}\n")

    def ensure_running(self, environ: Mapping[str, str]) -> None:
        """Start the warden if it isn't running, because it was never started or somebody ended it.

        Raises:
            SandboxError: The warden can't be started, so a process that is started now could be left running.
        """
        with self._lock:
            self._path = f"{SYSTEM_PATH}:{environ.get('PATH', '')}"
            if self._process is None or self._process.poll() is not None:
                self._start()

    def watch(self, leader: int) -> None:
        """Register a process group that was started.

        Raises:
            SandboxError: As `ensure_running`.
        """
        with self._lock:
            self._leaders.add(leader)
            if not self._send(f"+{leader}\n"):
                self._start()

    def release(self, leader: int) -> None:
        """Unregister a process group that has ended, before the system can reuse its number."""
        with self._lock:
            self._leaders.discard(leader)
            self._send(f"-{leader}\n")

    def leave(self) -> None:
        """End the warden, because nothing is left for it to do."""
        with self._lock:
            self._stop()

    def forget(self) -> None:
        """Detach a forked copy of this program from the warden, which would otherwise wait for the copy to end, too."""
        if self._process is not None:
            self._process.returncode = 0  # it is not a child of this process
            os.close(self._pipe_fd)
        self.mark, self._leaders, self._process = secrets.token_hex(8), set(), None
        self._lock = threading.Lock()  # another thread of the original may hold it

    def _start(self) -> None:
        self._stop()
        try:
            theirs, self._pipe_fd = os.pipe()
        except OSError as error:
            raise SandboxError(f"No pipe could be opened for a new process: {error.strerror}.") from error
        # If somebody stops the warden, writing to it must not block this program.
        os.set_blocking(self._pipe_fd, False)
        try:
            self._process = subprocess.Popen(
                [SHELL, str(SCRIPT), self.mark, sys.executable, str(os.getpid())],
                cwd="/",
                env={"PATH": self._path, "LC_ALL": "C"},
                stdin=theirs,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                # A signal to the terminal or to our process group must not reach it.
                start_new_session=True,
            )
        except OSError as error:
            os.close(self._pipe_fd)
            raise SandboxError(
                f"{SHELL}, which ends what is left if Satchel is killed, could not be started: {error.strerror}."
            ) from error
        finally:
            os.close(theirs)
        if self._notes:
            self._send(f"={self._notes}\n")
        for leader in self._leaders:
            self._send(f"+{leader}\n")

    def _send(self, line: str) -> bool:
        """Send a line to the warden. False if somebody ended it, or stopped it so long ago that the pipe is full."""
        if self._process is None:
            return False
        try:
            os.write(self._pipe_fd, line.encode())
        except (BrokenPipeError, BlockingIOError):
            return False
        return True

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            # Kill it before closing the pipe; otherwise it would start looking for processes.
            process.kill()
            process.wait()
            os.close(self._pipe_fd)
