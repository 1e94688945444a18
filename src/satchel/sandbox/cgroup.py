"""A control group that limits the number of processes: for root, on whom no other limit of the kernel has an effect.

Both versions of control groups are known. Where none can be made, as in most containers, the watchdog alone limits the
processes of root's commands, and a program that forks as fast as it can overshoots by far before it is ended.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

MOUNT = Path("/sys/fs/cgroup")
PROCS = "cgroup.procs"
REMOVE_TRIES, REMOVE_PAUSE_S = 50, 0.01
"""Processes that were killed leave their group a moment later."""


@contextlib.contextmanager
def process_group(most: int, *, mount: Path = MOUNT) -> Iterator[Path | None]:
    """A new group for at most that many processes and threads, or None if none can be made.

    A program that was started with `joined` belongs to it, with all its descendants.
    """
    group = _made(most, mount)
    try:
        yield group
    finally:
        if group is not None:
            _remove(group)


def joined(group: Path, argv: Sequence[str]) -> list[str]:
    """The command line of a program that joins a group before it starts."""
    return ["/bin/sh", "-c", 'echo $$ >"$0" && exec "$@"', str(group / PROCS), *argv]


def _made(most: int, mount: Path) -> Path | None:
    parents = [mount / "pids"]
    with contextlib.suppress(OSError):
        if "pids" in (mount / "cgroup.subtree_control").read_text().split():
            parents.insert(0, mount)
    for parent in parents:
        group = parent / f"satchel-{secrets.token_hex(6)}"
        # Without the file system of control groups, this would be an ordinary folder.
        if not (parent / PROCS).exists():
            continue
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / "pids.max").write_text(str(most))
        except OSError:
            _remove(group)
            continue
        return group
    return None


def _remove(group: Path) -> None:
    for _ in range(REMOVE_TRIES):
        try:
            os.rmdir(group)
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(REMOVE_PAUSE_S)
        else:
            return
