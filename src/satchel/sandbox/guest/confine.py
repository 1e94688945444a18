"""Landlock and seccomp by ctypes, and the process that watches over what they confine. Runs inside the sandbox."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import stat
import struct
import time

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = (
    1,
    4,
    22,
    36,
    38,
)
SECCOMP_MODE_FILTER = 2
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
RULE_PATH_BENEATH, QUERY_VERSION = 1, 1
LEAST_ABI = 6
"""Before it, signals and abstract sockets can't be confined."""

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 2, 4, 8
REMOVE_DIR, REMOVE_FILE, MAKE_CHAR, MAKE_DIR, MAKE_REG, MAKE_SOCK, MAKE_FIFO, MAKE_BLOCK, MAKE_SYM = (
    1 << bit for bit in range(4, 13)
)
REFER, TRUNCATE, IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
ALL_FILES = (1 << 16) - 1
READ = EXECUTE | READ_FILE | READ_DIR
WRITE = (
    READ
    | WRITE_FILE
    | REMOVE_DIR
    | REMOVE_FILE
    | MAKE_DIR
    | MAKE_REG
    | MAKE_FIFO
    | MAKE_SOCK
    | MAKE_SYM
    | REFER
    | TRUNCATE
)
OF_A_FILE = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
ALL_TCP = 3
ALL_SCOPES = 3
KILL_ROUNDS, KILL_PAUSE_S = 1000, 0.002

libc = ctypes.CDLL(None, use_errno=True)


def abi() -> int:
    """The version of the kernel's Landlock; 0 if there is none."""
    version = libc.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(QUERY_VERSION))
    return max(0, int(version))


def prctl(*arguments: object) -> None:
    """Call prctl."""
    padded = [*arguments, 0, 0, 0, 0][:5]
    given = [ctypes.c_ulong(a) if isinstance(a, int) else a for a in padded]
    if libc.prctl(*given) < 0:
        raise OSError(ctypes.get_errno(), f"prctl({arguments[0]})")


def restrict_files(
    readable: list[str | int],
    writable: list[str | int],
    devices: list[str],
    split: list[tuple[int, list[str], list[str]]],
) -> None:
    """Confine this process and its descendants to these paths, without TCP, and signals to themselves.

    Of folders that are split, what is below a descriptor is readable, or can only be listed.
    """
    if abi() < LEAST_ABI:
        raise OSError(95, "Landlock is missing or too old")
    attributes = ctypes.create_string_buffer(struct.pack("QQQ", ALL_FILES, ALL_TCP, ALL_SCOPES))
    ruleset = libc.syscall(CREATE_RULESET, attributes, ctypes.c_size_t(24), ctypes.c_uint32(0))
    if ruleset < 0:
        raise OSError(ctypes.get_errno(), "landlock_create_ruleset")
    for path in readable:
        allow(ruleset, opened(path), READ)
    for path in writable:
        allow(ruleset, opened(path, follows_links=False), WRITE)
    for path in devices:
        allow(ruleset, opened(path), READ_FILE | WRITE_FILE)
    for top, whole, listed in split:
        # One after the other: there may be more files than a process may hold open.
        for path in whole:
            allow(ruleset, opened(path, follows_links=False, top=top), READ)
        for path in listed:
            allow(ruleset, opened(path, follows_links=False, top=top), READ_DIR)
        os.close(top)
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    if libc.syscall(RESTRICT_SELF, ruleset, ctypes.c_uint32(0)) < 0:
        raise OSError(ctypes.get_errno(), "landlock_restrict_self")
    os.close(ruleset)


def opened(path: str | int, *, follows_links: bool = True, top: int | None = None) -> int | None:
    """A descriptor of an absolute path, or of one below `top`; None if it doesn't exist.

    What can be written may contain links by now.
    """
    if isinstance(path, int):
        return path
    try:
        if follows_links:
            return os.open(path, os.O_PATH | os.O_CLOEXEC)
        folder = os.dup(top) if top is not None else os.open("/", os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return None
    for name in filter(None, path.split("/")):
        try:
            below = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        except OSError:
            return None
        finally:
            os.close(folder)
        folder = below
    if stat.S_ISLNK(os.fstat(folder).st_mode):
        os.close(folder)
        return None
    return folder


def allow(ruleset: int, fd: int | None, rights: int) -> None:
    """Add a rule; a path that doesn't exist needs none."""
    if fd is None:
        return
    if not stat.S_ISDIR(os.fstat(fd).st_mode):
        rights &= OF_A_FILE
    rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, fd))
    failed = libc.syscall(ADD_RULE, ruleset, RULE_PATH_BENEATH, rule, ctypes.c_uint32(0)) < 0
    number = ctypes.get_errno()
    os.close(fd)
    if failed:
        raise OSError(number, "landlock_add_rule")


def restrict_calls(program: bytes) -> None:
    """Load a filter of system calls."""
    code = ctypes.create_string_buffer(program, len(program))
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(code)))
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, header)


def supervise(rules: dict[str, Any]) -> None:
    """Fork. The child returns, confined. The parent stays outside, ends all that the child left, and exits like it.

    There is no PID namespace to do this. Orphans become children of the parent, which the confined processes can
    neither signal nor trace.
    """
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    prctl(PR_SET_DUMPABLE, 0)
    child = os.fork()
    if child == 0:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        restrict_files(rules["readable"], rules["writable"], rules["devices"], rules["split"])
        restrict_calls(rules["filter"])
        return

    def stop(number: int, _frame: object) -> None:
        end_all()
        os._exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    # What it holds open would keep the reader of the report waiting.
    os.closerange(3, 1024)
    status = 0
    while True:
        pid, ended = os.waitpid(-1, 0)
        if pid == child:
            status = os.waitstatus_to_exitcode(ended)
            break
    end_all()
    os._exit(status if status >= 0 else 128 - status)


def end_all() -> None:
    """Kill all descendants. Those whose parent has ended become children, so that repeating this reaches everybody."""
    for _ in range(KILL_ROUNDS):
        kin = descendants(os.getpid())
        if not kin:
            return
        for pid in kin:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(KILL_PAUSE_S)


def descendants(pid: int) -> list[int]:
    """All living descendants of a process, and those that nobody has waited for."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            children = [int(word) for word in file.read().split()]
    except OSError:
        return children_by_search(pid) if pid == os.getpid() else []
    return [relative for child in children for relative in (child, *descendants(child))]


def children_by_search(parent: int) -> list[int]:
    """The children of a process, for kernels that don't list them."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                if int(file.read().rpartition(b")")[2].split()[1]) == parent:
                    found.append(int(name))
    return found
