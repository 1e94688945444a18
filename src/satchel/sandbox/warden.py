"""The one process that outlives this program, for a moment: it ends what tools left running when Satchel was killed.

Whatever ends this program in an orderly way ends its tools' processes too; SIGKILL and a crash of the interpreter leave
no time for that. So a shell waits at the other end of a pipe for this program to be gone, and does it then
(`warden.sh`). It is started with the first process, once for a program, and costs later ones two short writes.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path

from satchel.errors import SandboxError

__all__ = ["Warden"]

SHELL = "/bin/sh"
SCRIPT = Path(__file__).with_name("warden.sh")
SYSTEM_PATH = "/usr/bin:/bin"
"""Where the system's own grep, awk and sleep are looked for first: a tool's PATH may begin with the tool's own."""


class Warden:
    """Watches over the processes that this program starts.

    Attributes:
        mark: What stands in the environment of everything that is started: 64 random bits, as hex.
    """

    def __init__(self) -> None:
        """Nothing is started yet."""
        self.mark = secrets.token_hex(8)
        self._leaders: set[int] = set()
        self._process: subprocess.Popen[bytes] | None = None
        self._line = -1
        self._path = SYSTEM_PATH
        self._lock = threading.Lock()

    def be_there(self, environ: Mapping[str, str]) -> None:
        """See to it that it runs: it is started where it never was, or where somebody ended it.

        Args:
            environ: Has a PATH, for systems that have their grep elsewhere.

        Raises:
            SandboxError: It can't be started, so that whatever is started now could be left running.
        """
        with self._lock:
            self._path = f"{SYSTEM_PATH}:{environ.get('PATH', '')}"
            if self._process is None or self._process.poll() is not None:
                self._begin()

    def watch(self, leader: int) -> None:
        """A process group was started.

        Raises:
            SandboxError: As `be_there`.
        """
        with self._lock:
            self._leaders.add(leader)
            if not self._tell(f"+{leader}\n"):
                self._begin()

    def release(self, leader: int) -> None:
        """A process group is gone, and its number not yet free: it may soon be another's."""
        with self._lock:
            self._leaders.discard(leader)
            self._tell(f"-{leader}\n")

    def leave(self) -> None:
        """End it: nothing is left for it to do."""
        with self._lock:
            self._end()

    def forget(self) -> None:
        """In a forked copy of this program: the warden is the original's, and would wait for the copy's end too."""
        if self._process is not None:
            self._process.returncode = 0  # it is no child of ours
            os.close(self._line)
        self.mark, self._leaders, self._process = secrets.token_hex(8), set(), None
        self._lock = threading.Lock()  # another thread of the original may have had it

    def _begin(self) -> None:
        self._end()
        try:
            theirs, self._line = os.pipe()
        except OSError as error:
            raise SandboxError(f"No pipe could be opened for a new process: {error.strerror}.") from error
        # Who stops it must not stop us.
        os.set_blocking(self._line, False)
        try:
            self._process = subprocess.Popen(
                [SHELL, str(SCRIPT), self.mark],
                cwd="/",
                env={"PATH": self._path, "LC_ALL": "C"},
                stdin=theirs,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                # A signal to the terminal or to our group must not reach it.
                start_new_session=True,
            )
        except OSError as error:
            os.close(self._line)
            raise SandboxError(
                f"{SHELL}, which ends what is left when Satchel is killed, could not be started: {error.strerror}."
            ) from error
        finally:
            os.close(theirs)
        for leader in self._leaders:
            self._tell(f"+{leader}\n")

    def _tell(self, line: str) -> bool:
        """Whether it can know: not where somebody ended it, or stopped it thousands of processes ago."""
        if self._process is None:
            return False
        try:
            os.write(self._line, line.encode())
        except (BrokenPipeError, BlockingIOError):
            return False
        return True

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            # Before the line is cut, or it would look for what is left.
            process.kill()
            process.wait()
            os.close(self._line)
