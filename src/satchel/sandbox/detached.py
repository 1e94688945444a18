"""Starts a process that goes on when this program has ended: Satchel's own worker, and nothing else."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from satchel.errors import SandboxError
from satchel.sandbox.process import MARK, REPORT_FD

__all__ = ["start_detached"]


def start_detached(argv: Sequence[str], *, cwd: Path, environ: Mapping[str, str], log: Path) -> None:
    """Start a program in a session of its own, without a terminal. Nobody waits for it and nobody ends it.

    It is not confined, so it must be a program of ours.

    Args:
        argv: The program and its arguments.
        cwd: Its working directory.
        environ: Its complete environment. A mark by which the processes of a tool are found is taken out, because this
            one has to outlive the tool that may have caused it.
        log: The file that its output is appended to; created for its owner only.

    Raises:
        SandboxError: It could not be started.
    """
    wanted = {name: value for name, value in environ.items() if name not in (MARK, REPORT_FD)}
    try:
        log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            # A shell in between, so that the program is nobody's child here and leaves no zombie.
            subprocess.run(
                ["/bin/sh", "-c", 'trap "" HUP; "$@" &', "sh", *argv],
                cwd=cwd,
                env=wanted,
                stdin=subprocess.DEVNULL,
                stdout=fd,
                stderr=fd,
                start_new_session=True,
                check=True,
                timeout=10,
            )
        finally:
            os.close(fd)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise SandboxError(
            f"{Path(argv[0]).name} could not be started in the background: {error}."
        ) from error
