"""Starts a process that goes on when this program has ended: one of Satchel's own workers, and nothing else. A lock in
the home says which of them runs.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from satchel.clock import SystemClock
from satchel.config.home import ensure_home
from satchel.config.locks import FileLock, held
from satchel.errors import SandboxError, StorageUnwritable
from satchel.sandbox.marks import MARK, REPORT_FD

_START: Final = 'trap "" HUP; "$@" &'
_START_NICELY: Final = 'trap "" HUP; if command -v nice >/dev/null; then set -- nice -n 15 "$@"; fi; "$@" &'
"""At a low priority, where the machine has `nice`. The lowest, 19, would starve on a machine that is always busy."""
_HANGS_S: Final = 120.0
"""A start that takes longer hangs and keeps no other out: whichever comes second to the work's lock leaves."""


def start_satchel(
    home: Path,
    environ: Mapping[str, str],
    arguments: Sequence[str],
    *,
    log: str,
    nicely: bool = False,
    holds: Sequence[int] = (),
) -> None:
    """Start a command of Satchel in a session of its own, without a terminal. Nobody waits for it and nobody ends it.

    Args:
        home: SATCHEL_HOME, where it works.
        environ: Its complete environment. A mark by which the processes of a tool are found is taken out, because this
            one has to outlive the tool that may have caused it.
        arguments: The command, such as ("worker", "--once").
        log: The name of the file in SATCHEL_HOME/logs that its output is appended to; created for its owner only.
        nicely: Run it at a low priority.
        holds: Descriptors that it inherits.

    Raises:
        SandboxError: It could not be started.
    """
    wanted = {name: value for name, value in environ.items() if name not in (MARK, REPORT_FD)}
    logs = home / "logs"
    try:
        logs.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(logs / log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            # A shell in between, so that the program is nobody's child here and leaves no zombie.
            subprocess.run(
                [
                    "/bin/sh",
                    "-c",
                    _START_NICELY if nicely else _START,
                    "sh",
                    sys.executable,
                    "-m",
                    "satchel",
                    *arguments,
                ],
                # Not the working folder: a project's settings must not reach the work for other projects.
                cwd=home,
                env={**wanted, "SATCHEL_HOME": str(home)},
                stdin=subprocess.DEVNULL,
                stdout=fd,
                stderr=fd,
                start_new_session=True,
                pass_fds=holds,
                check=True,
                timeout=10,
            )
        finally:
            os.close(fd)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise SandboxError(
            f"{Path(sys.executable).name} could not be started in the background: {error}."
        ) from error


def work_lock(home: Path, name: str) -> FileLock | None:
    """The lock of the one process that does a kind of work in a home, or None if another process holds it.

    Raises:
        StorageUnwritable: The lock file can't be created.
    """
    path = _path(home, name)
    try:
        ensure_home(path.parent)
        lock = FileLock.take(path, str(os.getpid()))
    except OSError as error:
        raise StorageUnwritable(f"{path} can't be locked: {error.strerror}.") from error
    if lock is not None:
        with suppress(OSError):
            _starting(home, name).unlink(missing_ok=True)
    return lock


def is_working(home: Path, name: str) -> bool:
    """Whether a process of this machine does a kind of work in a home now."""
    return held(_path(home, name)) is not None


def is_starting(home: Path, name: str) -> bool:
    """Whether a process was started for a kind of work and has neither begun nor died, for less than two minutes."""
    mark = _starting(home, name)
    try:
        # A mark from the future is of a clock that was set back.
        return (
            held(mark) is not None and 0 <= SystemClock().now().timestamp() - mark.stat().st_mtime < _HANGS_S
        )
    except FileNotFoundError:
        return False


def ask_to_end(home: Path, name: str) -> bool:
    """Ask the process that does a kind of work in a home to end; the next one goes on where it was.

    Returns:
        Whether it was asked: none does it otherwise, or it can't be told to be ours, as in another container.
    """
    with suppress(OSError, ValueError):
        pid = int(held(_path(home, name)) or "")
        if b"satchel" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGTERM)
            return True
    return False


def start_working(
    home: Path,
    name: str,
    environ: Mapping[str, str],
    arguments: Sequence[str],
    *,
    log: str,
    nicely: bool = False,
) -> None:
    """Start the process that does a kind of work, unless one does it or is just starting, which takes seconds until it
    has the lock. Of several processes that ask at the same time one starts it. A start that hangs is left alone, and
    another one made beside it. The command takes `work_lock`.

    Raises:
        SandboxError: It could not be started.
    """
    if is_working(home, name):
        return
    mark = _starting(home, name)
    try:
        ensure_home(mark.parent)
        starting = FileLock.take(mark)
        if starting is None and not is_starting(home, name):
            mark.unlink(missing_ok=True)
            starting = FileLock.take(mark)
    except (OSError, StorageUnwritable):
        start_satchel(home, environ, arguments, log=log, nicely=nicely)  # a second one would leave at once
        return
    if starting is None:
        return
    try:
        # The process inherits the lock, so the kernel releases it if that dies before it works.
        start_satchel(home, environ, arguments, log=log, nicely=nicely, holds=(starting.fd,))
    finally:
        starting.release()


def _starting(home: Path, name: str) -> Path:
    return home / "locks" / f"{name}.starting"


def _path(home: Path, name: str) -> Path:
    return home / "locks" / name
