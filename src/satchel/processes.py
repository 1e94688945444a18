"""Whether another process still runs, and where."""

from __future__ import annotations

import os
import re
import socket
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

_BOOT: Final = re.compile(r"[0-9a-f-]{36}(?=\.)")
"""The beginning of a `machine_name` of Linux."""
_EXITING: Final = 0x4
"""`PF_EXITING` of Linux: it is set before the kernel closes the files of a process and releases its locks."""


@cache
def machine_name() -> str:
    """What tells this machine, and this container, from others whose process numbers mean something else. It has no
    blanks.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}.{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:  # no Linux
        return socket.gethostname().replace(" ", "-")


def is_of_earlier_start(name: str) -> bool:
    """Whether a `machine_name` is of another start than this one. Where no other machine can have given it, nothing of
    that start runs any more.
    """
    boots = _BOOT.match(name), _BOOT.match(machine_name())
    return None not in boots and len({boot[0] for boot in boots if boot is not None}) == 2


def has_ended(pid: int) -> bool:
    """Whether a process of this machine is known to have ended.

    One that was killed keeps its number until its parent asks for its status, which can take long on a busy machine,
    and for ever in a container whose first process never asks. It has ended all the same.
    """
    try:
        with suppress(PermissionError):  # Somebody else's; it is there.
            os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return True
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        # It has gone meanwhile, or this system has no /proc.
        return Path("/proc/self/stat").exists()
    except OSError:
        return False
    # proc_pid_stat(5): the name, in parentheses, may contain anything; then come state, ppid, pgrp, session, tty_nr,
    # tpgid and flags.
    state, _, _, _, _, _, flags, *_ = stat.rpartition(")")[2].split()
    return state in "ZX" or bool(int(flags) & _EXITING)
