"""The filter of system calls, as a program for the kernel's BPF machine.

It is a list of what is refused, because what programs need can't be listed: calls that trace other processes, change
mounts, namespaces, modules, keys or the clock, load programs into the kernel, or have been the way into the kernel
before (io_uring, userfaultfd, bpf, perf). Calls newer than the list get "not implemented", as on an older kernel.
x86_64 was tried; the numbers for aarch64 come from the kernel's table (asm-generic/unistd.h) and were not.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from satchel.errors import NoSandbox


@dataclass(frozen=True, slots=True, kw_only=True)
class SyscallFilter:
    """What differs between the uses of a sandbox.

    Attributes:
        families: The address families that `socket` may create; `socketpair` always works.
        debugging: Allow processes of the sandbox to trace each other (gdb, strace, LeakSanitizer), to turn address
            randomisation off, and to use System V shared memory. Only where a PID namespace hides all others.
        shared: The user's other processes and files are in reach. What Landlock does not know of is refused: limits and
            priorities of others, System V's memory and queues. Modes, owners and times of files stay as they are, but
            programs are told otherwise, because copying and unpacking set them.
    """

    families: tuple[int, ...]
    debugging: bool = False
    shared: bool = False


AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16

CAPABILITY: Final = SyscallFilter(families=(AF_UNIX,))
"""A capability without network: sockets of the host aren't visible to it, and its own do no harm."""
CAPABILITY_WITH_PROXY: Final = SyscallFilter(families=(AF_UNIX, AF_INET, AF_INET6))
"""Its network namespace contains nothing but the forwarder to the proxy."""
WORKSPACE: Final = SyscallFilter(families=(AF_UNIX, AF_INET, AF_INET6, AF_NETLINK), debugging=True)
"""A program under test talks to its own servers on a loopback interface of its own, and lists its interfaces."""
NO_SOCKETS: Final = SyscallFilter(families=(), shared=True)
"""Landlock can't hide the host's Unix sockets, so there are none at all."""

_REFUSED: Final[Mapping[str, tuple[int, int | None]]] = {
    # name: number on x86_64, number on aarch64; None where it doesn't exist
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "listmount": (458, 458),
    "lookup_dcookie": (212, 18),
    "mbind": (237, 235),
    "memfd_secret": (447, 447),
    "migrate_pages": (256, 238),
    "modify_ldt": (154, None),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "name_to_handle_at": (303, 264),
    "nfsservctl": (180, 42),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "set_mempolicy": (238, 237),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "statmount": (457, 457),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "uselib": (134, None),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
}
_DEBUGGING: Final[Mapping[str, tuple[int, int | None]]] = {
    "personality": (135, 92),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "shmget": (29, 194),
}
_ABSENT: Final[Mapping[str, tuple[int, int | None]]] = {
    # Programs have another way when these don't exist. The flags of clone3 can't be examined; clone's can. The memory
    # of a memfd belongs to no process, so that a limit on the memory of processes doesn't count it.
    "clone3": (435, 435),
    "memfd_create": (319, 279),
    # The mode of a new file is in memory, where it can't be examined.
    "openat2": (437, 437),
}
_SHARED: Final[Mapping[str, tuple[int, int | None]]] = {
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "msgctl": (71, 187),
    "msgget": (68, 186),
    "msgrcv": (70, 188),
    "msgsnd": (69, 189),
    "removexattr": (197, 14),
    "fremovexattr": (199, 16),
    "lremovexattr": (198, 15),
    "semctl": (66, 191),
    "semget": (64, 190),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "setxattr": (188, 5),
    "fsetxattr": (190, 7),
    "lsetxattr": (189, 6),
    "shmat": (30, 196),
    "shmctl": (31, 195),
}
_PRETENDED: Final[Mapping[str, tuple[int, int | None]]] = {
    "chmod": (90, None),
    "chown": (92, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "futimesat": (261, None),
    "lchown": (94, None),
    "utime": (132, None),
    "utimensat": (280, 88),
    "utimes": (235, None),
}
_OF_ITSELF: Final = {
    # name: (numbers, the position of the argument that names a process and has to be 0: the caller)
    "ioprio_set": ((251, 30), 1),
    "prlimit64": ((302, 261), 0),
    "sched_setaffinity": ((203, 122), 0),
    "sched_setattr": ((314, 274), 0),
    "sched_setparam": ((142, 118), 0),
    "sched_setscheduler": ((144, 119), 0),
    "setpriority": ((141, 140), 1),
}
_WITH_MODE: Final = {
    # name: (numbers, the position of the mode, the position of the flags that say whether the mode counts, or None)
    "chmod": ((90, None), 1, None),
    "creat": ((85, None), 1, None),
    "fchmod": ((91, 52), 1, None),
    "fchmodat": ((268, 53), 2, None),
    "fchmodat2": ((452, 452), 2, None),
    "mknod": ((133, None), 1, None),
    "mknodat": ((259, 33), 2, None),
    "open": ((2, None), 2, 1),
    "openat": ((257, 56), 3, 2),
}
"""A program with the setuid or setgid bit runs with its owner's rights for whoever starts it, outside as well."""
_SETUID_SETGID: Final = 0o6000
_DEVICE: Final = 0o020000
"""In the kind of a file that `mknod` makes, set for both kinds of devices and for nothing else that it makes."""
_CREATES: Final = 0o20000100
"""O_CREAT and the bit that tells O_TMPFILE from O_DIRECTORY."""
_RENAME: Final = (316, 276)
_WHITEOUT: Final = 4
"""A flag of renameat2: a device of overlays is left in the place of the file."""
_CLONE: Final = (56, 220)
_IOCTL: Final = (16, 29)
_SOCKET: Final = (41, 198)
_ARCHITECTURES: Final = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}

_LAST_KNOWN: Final = 462
"""mseal, of Linux 6.10: the newest call that was looked at."""
_X32: Final = 0x40000000
_NEW_NAMESPACES: Final = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET."""
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
"""They type into a terminal."""

_LOAD, _EQUAL, _ABOVE, _AT_LEAST, _BITS, _RETURN = 0x20, 0x15, 0x25, 0x35, 0x45, 0x06
_ALLOW, _KILL = 0x7FFF0000, 0x80000000
_NUMBER_AT, _ARCHITECTURE_AT, _FIRST_ARGUMENT_AT, _SECOND_ARGUMENT_AT, _THIRD_ARGUMENT_AT = 0, 4, 16, 24, 32
_FIFTH_ARGUMENT_AT = 48
"""Offsets in `struct seccomp_data`, of the low half of an argument on a little-endian machine."""


@cache
def program(which: SyscallFilter, machine: str | None = None) -> bytes:
    """The program, as an array of `struct sock_filter` (8 bytes each). The machine is named as by `platform.machine()`;
    None is this one.

    Raises:
        NoSandbox: There is no table for this kind of processor.
    """
    machine = machine or platform.machine()
    if machine not in _ARCHITECTURES:
        raise NoSandbox(
            f"There is no sandbox for the processor {machine!r}: only the system calls of x86_64 and aarch64 are known."
        )
    column, architecture = _ARCHITECTURES[machine]
    code: list[tuple[int, int, int, int]] = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_EQUAL, 1, 0, architecture),
        # A program for another processor has other numbers for the same calls.
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
    ]
    if machine == "x86_64":
        code += [(_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _KILL)]
    code += [(_ABOVE, 0, 1, _LAST_KNOWN), (_RETURN, 0, 0, _error(errno.ENOSYS))]
    refused = {
        **_REFUSED,
        **({} if which.debugging else _DEBUGGING),
        **(_SHARED if which.shared else {}),
    }
    answers: list[tuple[Mapping[str, tuple[int, int | None]], int]] = [
        (refused, errno.EPERM),
        (_ABSENT, errno.ENOSYS),
    ]
    if which.shared:
        answers.append((_PRETENDED, 0))
    for calls, answer in answers:
        for numbers in calls.values():
            number = numbers[column]
            if number is not None:
                code += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _error(answer))]
    for numbers, position in _OF_ITSELF.values() if which.shared else ():
        code += [
            (_EQUAL, 0, 4, numbers[column]),
            (_LOAD, 0, 0, _FIRST_ARGUMENT_AT + 8 * position),
            (_EQUAL, 1, 0, 0),
            (_RETURN, 0, 0, _error(errno.EPERM)),
            (_RETURN, 0, 0, _ALLOW),
        ]
    for name, (modes, position, flags) in _WITH_MODE.items():
        number = modes[column]
        if number is None:
            continue
        check = [
            (_LOAD, 0, 0, _FIRST_ARGUMENT_AT + 8 * position),
            (_BITS, 0, 1, _SETUID_SETGID | (_DEVICE if name.startswith("mknod") else 0)),
            (_RETURN, 0, 0, _error(errno.EPERM)),
            (_RETURN, 0, 0, _ALLOW),
        ]
        if flags is not None:
            check = [(_LOAD, 0, 0, _FIRST_ARGUMENT_AT + 8 * flags), (_BITS, 0, 3, _CREATES), *check]
        code += [(_EQUAL, 0, len(check), number), *check]
    code += [
        # Of the kernel's netlink families, only the one that lists interfaces and routes.
        (_EQUAL, 0, 6, _SOCKET[column]),
        (_LOAD, 0, 0, _FIRST_ARGUMENT_AT),
        (_EQUAL, 0, 3, AF_NETLINK),
        (_LOAD, 0, 0, _THIRD_ARGUMENT_AT),
        (_EQUAL, 1, 0, 0),
        (_RETURN, 0, 0, _error(errno.EPROTONOSUPPORT)),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_EQUAL, 0, 4, _CLONE[column]),
        (_LOAD, 0, 0, _FIRST_ARGUMENT_AT),
        (_BITS, 0, 1, _NEW_NAMESPACES),
        (_RETURN, 0, 0, _error(errno.EPERM)),
        (_RETURN, 0, 0, _ALLOW),
        (_EQUAL, 0, 4, _RENAME[column]),
        (_LOAD, 0, 0, _FIFTH_ARGUMENT_AT),
        (_BITS, 0, 1, _WHITEOUT),
        (_RETURN, 0, 0, _error(errno.EPERM)),
        (_RETURN, 0, 0, _ALLOW),
        (_EQUAL, 0, 5, _IOCTL[column]),
        (_LOAD, 0, 0, _SECOND_ARGUMENT_AT),
        (_EQUAL, 1, 0, _TIOCSTI),
        (_EQUAL, 0, 1, _TIOCLINUX),
        (_RETURN, 0, 0, _error(errno.EPERM)),
        (_RETURN, 0, 0, _ALLOW),
        (_EQUAL, 0, len(which.families) + 2, _SOCKET[column]),
        (_LOAD, 0, 0, _FIRST_ARGUMENT_AT),
    ]
    for at, family in enumerate(which.families):
        code.append((_EQUAL, len(which.families) - at, 0, family))
    code += [
        (_RETURN, 0, 0, _error(errno.EAFNOSUPPORT)),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("HBBI", *instruction) for instruction in code)


def _error(number: int) -> int:
    return 0x00050000 | number
