"""Runs commands for one of several people: with a user id of their own where that is possible."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from satchel.errors import SandboxError

_RUN_S: Final = 600
_GONE_S: Final = 5.0


def run_apart(
    arguments: Sequence[str],
    *,
    cwd: Path,
    environ: Mapping[str, str],
    uid: int | None,
    is_module: bool = True,
    limit_s: float | None = _RUN_S,
) -> tuple[int, str, str]:
    """Run a module to its end, such as ("satchel", "backup"): its status, what it printed, and its messages.

    Args:
        arguments: The module, or with `is_module` false the program, and what it is given.
        cwd: Its working folder, entered with this process's rights: none that its user could replace by a link.
        environ: Its whole environment.
        uid: Its user and group; None keeps those of this process.
        is_module: See `arguments`.
        limit_s: How long it may take; None is as long as it likes.

    Raises:
        SandboxError: It could not be started, or took too long.
    """
    try:
        done = subprocess.run(
            argv(arguments) if is_module else list(arguments),
            cwd=cwd,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit_s,
            check=False,
            start_new_session=True,  # no way to the administrator's terminal
            umask=0o077,
            user=uid,
            group=uid,
            extra_groups=None if uid is None else (),
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise SandboxError(f"{arguments[0]} could not be run: {error}.") from error
    return done.returncode, done.stdout, done.stderr.strip()


def remove_tree(path: Path) -> None:
    """Remove a file or a folder, however deep it is; links in it are not followed. One that isn't there is no error.

    Raises:
        SandboxError: Something stays.
    """
    # shutil.rmtree calls itself for each level, and people can make thousands.
    code, _, said = run_apart(
        ("rm", "-rf", "--", str(path)),
        cwd=Path("/"),
        environ={"PATH": os.defpath},
        uid=None,
        is_module=False,
        limit_s=None,
    )
    if code:
        raise SandboxError(f"{path} can't be removed: {said[-300:]}")


def end_all_of(uid: int) -> None:
    """End every process of a user, whatever started it: first with SIGTERM, and after five seconds with SIGKILL.

    Raises:
        SandboxError: Some go on.
    """
    give_up_at = time.monotonic() + _GONE_S
    number = signal.SIGTERM
    while found := _processes_of(uid):
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        if time.monotonic() > give_up_at + _GONE_S:
            raise SandboxError(f"Processes of the user id {uid} can't be ended.")
        if time.monotonic() > give_up_at:
            number = signal.SIGKILL
        time.sleep(0.05)


def _processes_of(uid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                is_zombie = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[0] in "ZX"
                if entry.stat().st_uid == uid and not is_zombie:
                    found.append(int(entry.name))
    return found


def argv(arguments: Sequence[str]) -> list[str]:
    """What runs a module of Satchel."""
    # -P, -s: the folder where it starts and HOME hold files of the person, which must not be taken for modules.
    return [sys.executable, "-P", "-s", "-m", *arguments]
