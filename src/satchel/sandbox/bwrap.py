"""Arguments of the program `bwrap` that all its uses share."""

from __future__ import annotations

import os
import shutil
import sys
from functools import cache
from pathlib import Path

from satchel.sandbox.job import memory_file, python_program

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")
ETC = (
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/fonts",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/libreoffice",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/pki",
    "/etc/ssl",
)
"""No shadow, no hosts, and one line of passwd (`named`). LibreOffice doesn't start without its settings. Of /etc/ssl,
private keys are readable by root alone, which nobody is inside."""
ALWAYS = (
    "--unshare-pid",
    "--unshare-net",
    "--unshare-ipc",
    "--unshare-uts",
    "--unshare-cgroup-try",
    "--hostname",
    "sandbox",
    "--die-with-parent",
    "--new-session",
    "--proc",
    "/proc",
    "--dev",
    "/dev",
)
OF_A_USER = ("--unshare-user", "--disable-userns")
ROOT_HIDDEN_UID = 1000
ROOT_HIDDEN = (*OF_A_USER, "--uid", str(ROOT_HIDDEN_UID), "--gid", str(ROOT_HIDDEN_UID))
"""For root, where files of root have to be written: nobody is uid 0 inside."""
NO_SYSCTL = ("--remount-ro", "/proc")
"""For root. The kernel lets the real uid 0 write /proc/sys without any capability, also from a user namespace, and with
core_pattern that is a way out. bwrap's own protection skips what it takes to be unwritable."""
OF_ROOT = ("--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID")
"""What `guest/start.py` needs to become another user, upon which it has none of them any more."""


def find(program: str) -> str | None:
    """The path of the program: not from the user's PATH, whose folders a command may be able to write to."""
    return shutil.which(program, path="/usr/local/bin:/usr/bin:/bin:/run/current-system/sw/bin")


@cache
def system_mounts() -> tuple[str, ...]:
    """The arguments that show the system's programs and libraries, and Satchel's interpreter, read-only."""
    argv: list[str] = []
    for path in SYSTEM:
        if os.path.islink(path):
            argv += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            argv += ["--ro-bind", path, path]
    argv += parents("/etc/ssl")
    for path in ETC:
        argv += ["--ro-bind-try", path, path]
    return (*argv, *interpreter_mounts())


@cache
def interpreter_mounts() -> tuple[str, ...]:
    """The arguments that show Satchel's interpreter, wherever it is: the interpreter alone, not what is beside it."""
    return tuple(
        word for folder in interpreter_folders() for word in (*parents(folder), "--ro-bind", folder, folder)
    )


@cache
def interpreter_folders() -> tuple[str, ...]:
    """Where Satchel's interpreter is, if that isn't below /usr."""
    prefixes = {os.path.realpath(sys.base_prefix), str(python_program().parent.parent)}
    return tuple(sorted(p for p in prefixes if p not in ("/", "/usr") and not p.startswith("/usr/")))


def parents(path: str) -> list[str]:
    """The arguments that make the folders above a path, which otherwise nobody but their owner could pass through."""
    above = [str(folder) for folder in reversed(Path(path).parents)][1:]
    return [word for folder in above for word in ("--perms", "0755", "--dir", folder)]


def named(uid: int, *, home: str, others: str = "") -> tuple[list[str], list[int]]:
    """The arguments that give a user a line in /etc/passwd, and the descriptors that they refer to.

    LibreOffice, for one, doesn't start for a user without a line.

    Args:
        uid: The user, as its processes see it.
        home: Its home folder.
        others: The file without it. Nothing is changed if it has the user already.
    """
    if any(line.split(":")[2:3] == [str(uid)] for line in others.splitlines()):
        return [], []
    file = memory_file(f"sandbox:x:{uid}:{uid}::{home}:/bin/sh\n{others}".encode(errors="surrogateescape"))
    return ["--perms", "0444", "--ro-bind-data", str(file), "/etc/passwd"], [file]
