"""Checks what a running process uses, from outside, and says which limit it exceeded.

Limits of the kernel apply to one process, or to one user. Memory of a whole tree, its number of processes where there
is no namespace, and the size of folders are looked at every tenth of a second. What grows faster overshoots.

What a command wrote to a disk is measured once the disk has lost so much, which may be others' doing: files in the
folders that it may write that changed since it began, and deleted ones that it holds open.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import anyio
from anyio import to_thread

from satchel.sandbox.port import Status, Watch

__all__ = ["Watchdog"]

MIB = 1_048_576
FIRST_LOOK_S = 0.03
"""Most runs are over before it."""
MOST_ENTRIES = 20_000
"""A folder with more entries than this is over any limit."""
BOUNDLESS_MB = 1 << 40
EARLIER_NS = 1_000_000_000
"""The time of a change comes from a clock that is up to 10 ms behind, and on a network from another machine's."""


class Watchdog:
    """Watches one process and its descendants.

    Attributes:
        exceeded: The limit that was exceeded, or None.
        peak_mb: The most memory that was seen, in MiB.
    """

    def __init__(self, pid: int, watch: Watch) -> None:
        """Take the process and its limits. The free space of the disks is noted now."""
        self.exceeded: Status | None = None
        self.peak_mb = 0
        self._pid = pid if watch.pid_file is None else None
        self._watch = watch
        self._began_ns = time.time_ns() - EARLIER_NS
        self._free_mb = {disk: _free_mb(disk) for disk in watch.disks}

    async def run(self) -> None:
        """Return as soon as a limit is exceeded."""
        await anyio.sleep(min(FIRST_LOOK_S, self._watch.every_s))
        while self.exceeded is None:
            self.exceeded = self._look() or await self._look_at_disks()
            if self.exceeded is None:
                await anyio.sleep(self._watch.every_s)

    def _found(self) -> int | None:
        """The process to look at, or None if it isn't there yet."""
        if self._pid is None and self._watch.pid_file is not None:
            self._pid = _named_in(self._watch.pid_file)
        return self._pid

    def _look(self) -> Status | None:
        watch = self._watch
        pid = self._found()
        family = _descendants(pid) if pid is not None else []
        used = [_use(pid) for pid in family]
        if sum(one.threads for one in used) > watch.processes:
            return Status.PROCESSES
        memory_mb = (sum(one.memory_kb for one in used) + (_use(pid).memory_kb if pid else 0)) // 1024
        self.peak_mb = max(self.peak_mb, memory_mb)
        if memory_mb > watch.memory_mb:
            return Status.MEMORY
        if watch.folders and _size_mb(watch.folders) > watch.folders_mb:
            return Status.DISK
        if any(_entries(path, family) > watch.files for path in watch.inside):
            return Status.DISK
        return None

    async def _look_at_disks(self) -> Status | None:
        for disk, without_us in self._free_mb.items():
            free_mb = _free_mb(disk)
            if without_us - free_mb > self._watch.disk_mb:
                written_mb = await to_thread.run_sync(self._written_mb, disk, abandon_on_cancel=True)
                if written_mb > self._watch.disk_mb:
                    return Status.DISK
                # The rest was written by others. The next look is when this command can have written too much.
                self._free_mb[disk] = free_mb + written_mb
        return None

    def _written_mb(self, disk: Path) -> int:
        """What the process and its descendants wrote to a disk, as far as it is still there, in MiB."""
        device = _device(disk)
        folders = [folder for folder in self._watch.disks if _device(folder) == device]
        pid = self._found()
        family = [pid, *_descendants(pid)] if pid is not None else []
        return _size_mb(folders, since_ns=self._began_ns) + _deleted_mb(family, device)


def _named_in(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        # It isn't written yet.
        return None


def _descendants(pid: int) -> list[int]:
    """All living descendants: orphans belong to the first process of the namespace, or to the subreaper."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        for child in _children(waiting.pop()):
            found.append(child)
            waiting.append(child)
    return found


def _children(pid: int) -> list[int]:
    children: list[int] = []
    try:
        # Each thread has a list of its own.
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb", buffering=0) as file:
                children += [int(word) for word in file.readall().split()]
    except OSError:
        pass
    return children


@dataclass(frozen=True, slots=True)
class _Use:
    """What one process uses: memory of its own and its share of shared memory, without the pages of files."""

    memory_kb: int = 0
    threads: int = 0


def _use(pid: int) -> _Use:
    try:
        with open(f"/proc/{pid}/status", "rb", buffering=0) as file:
            lines = file.readall().splitlines()
    except OSError:
        return _Use()
    values = {
        name: int(rest.split()[0])
        for name, _, rest in (line.partition(b":") for line in lines)
        if name in (b"RssAnon", b"RssShmem", b"Threads")
    }
    return _Use(
        memory_kb=values.get(b"RssAnon", 0) + values.get(b"RssShmem", 0), threads=values.get(b"Threads", 0)
    )


def _entries(path: str, family: Iterable[int]) -> int:
    """Files and folders of a file system in the sandbox, seen through one of its processes.

    A file system in memory limits its bytes, not the memory of its entries.
    """
    for pid in family:
        with contextlib.suppress(OSError):
            seen = f"/proc/{pid}/root{path}"
            # Before its mounts are made, the process still sees those of the host.
            if os.stat(seen).st_dev != os.stat(path).st_dev:
                inside = os.statvfs(seen)
                return inside.f_files - inside.f_ffree
    return 0


def _free_mb(path: Path) -> int:
    try:
        disk = os.statvfs(path)
    except OSError:
        return 0
    return disk.f_bavail * disk.f_frsize // MIB


def _device(path: Path) -> int:
    with contextlib.suppress(OSError):
        return path.stat().st_dev
    return -1


def _size_mb(folders: Iterable[Path], *, since_ns: int = 0) -> int:
    """The space that files take, in MiB. What vanishes or can't be read meanwhile counts nothing.

    With `since_ns`, the space of files that changed since then, however many there are. A folder that its owner closed,
    or whose path is too long, is over any limit then: an honest program has no need to hide what it writes.
    """
    size = 0
    entries = 0
    seen: set[tuple[int, int]] = set()
    waiting = [os.fspath(folder) for folder in folders]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(folder) as listing:
                for entry in listing:
                    entries += 1
                    if entries > MOST_ENTRIES and not since_ns:
                        return BOUNDLESS_MB
                    state = entry.stat(follow_symlinks=False)
                    if state.st_ctime_ns >= since_ns and (state.st_dev, state.st_ino) not in seen:
                        seen.add((state.st_dev, state.st_ino))
                        size += state.st_blocks * 512
                    if stat.S_ISDIR(state.st_mode):
                        waiting.append(entry.path)
        except NotADirectoryError:  # a file that may be written
            with contextlib.suppress(OSError):
                size += os.lstat(folder).st_blocks * 512
        except OSError as error:
            if since_ns and (error.errno == errno.ENAMETOOLONG or _is_closed(folder)):
                return BOUNDLESS_MB
    return size // MIB


def _is_closed(folder: str) -> bool:
    with contextlib.suppress(OSError):
        state = os.lstat(folder)
        return state.st_uid == os.geteuid() and state.st_mode & 0o500 != 0o500
    return False


def _deleted_mb(family: Iterable[int], device: int) -> int:
    """The space of files on a disk that are deleted, and that processes hold open, in MiB."""
    found: dict[int, int] = {}
    for pid in family:
        with contextlib.suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    state = os.stat(f"/proc/{pid}/fd/{name}")
                    if state.st_dev == device and not state.st_nlink:
                        found[state.st_ino] = state.st_blocks * 512
    return sum(found.values()) // MIB
