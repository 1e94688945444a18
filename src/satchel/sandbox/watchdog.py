"""Checks what a running process uses, from outside, and says which limit it exceeded.

Limits of the kernel apply to one process, or to one user. Memory of a whole tree, its number of processes where there
is no namespace, and the size of folders are looked at every tenth of a second. What grows faster overshoots.

What a command wrote to a disk is measured once the disk has lost so much, which may be others' doing: files in the
folders that it may write that changed since it began, and deleted ones that it holds open or, as far as root can see,
mapped. Some files aren't found, such as one whose descriptor waits in a socket. So when a disk becomes nearly full,
what it lost no longer counts as others' doing.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import anyio
from anyio import to_thread

from satchel.sandbox.port import Status, Watch

MIB = 1_048_576
FIRST_LOOK_S = 0.03
"""Most runs are over before it."""
MOST_ENTRIES = 20_000
"""A folder with more entries than this is over any limit."""
BOUNDLESS_MB = 1 << 40
LEAST_FREE = 0.05
"""The share of a disk below which it is nearly full, unless `disk_mb` is less."""
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
        self._disks: dict[int, list[Path]] = {}
        for disk in watch.disks:
            self._disks.setdefault(_device(disk), []).append(disk)
        self._free_mb = {device: _space_mb(paths[0])[0] for device, paths in self._disks.items()}
        self._first_mb = dict(self._free_mb)

    async def run(self) -> None:
        """Return as soon as a limit is exceeded."""
        async with anyio.create_task_group() as group:
            # To measure what was written can take minutes.
            for look in (self._look, self._look_at_disks):
                group.start_soon(self._repeat, look, group.cancel_scope)

    async def _repeat(self, look: Callable[[], Awaitable[Status | None]], scope: anyio.CancelScope) -> None:
        pause_s = min(FIRST_LOOK_S, self._watch.every_s)
        while self.exceeded is None:
            await anyio.sleep(pause_s)
            self.exceeded = await look() or self.exceeded
            pause_s = self._watch.every_s
        scope.cancel()

    def _found(self) -> int | None:
        """The process to look at, or None if it isn't there yet."""
        if self._pid is None and self._watch.pid_file is not None:
            self._pid = _named_in(self._watch.pid_file)
        return self._pid

    async def _look(self) -> Status | None:
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
        if any(self._is_nearly_full(device) for device in self._disks):
            return Status.DISK
        return None

    async def _look_at_disks(self) -> Status | None:
        for device, paths in self._disks.items():
            free_mb, _ = _space_mb(paths[0])
            if self._free_mb[device] - free_mb > self._watch.disk_mb:
                written_mb = await to_thread.run_sync(self._written_mb, device, abandon_on_cancel=True)
                if written_mb > self._watch.disk_mb:
                    return Status.DISK
                # The rest was written by others. The next look is when this command can have written too much.
                self._free_mb[device] = free_mb + written_mb
        return None

    def _is_nearly_full(self, device: int) -> bool:
        """Whether a disk became so while the command ran, and lost as much as the command may write."""
        free_mb, whole_mb = _space_mb(self._disks[device][0])
        limit_mb = self._watch.disk_mb
        return self._first_mb[device] - free_mb > limit_mb and free_mb < min(limit_mb, whole_mb * LEAST_FREE)

    def _written_mb(self, device: int) -> int:
        """What the process and its descendants wrote to a disk, as far as it is still there and found, in MiB."""
        pid = self._found()
        family = [pid, *_descendants(pid)] if pid is not None else []
        return _size_mb(self._disks[device], since_ns=self._began_ns) + _deleted_mb(family, device)


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


def _space_mb(path: Path) -> tuple[int, int]:
    """The free space of a disk, and the whole, in MiB."""
    try:
        disk = os.statvfs(path)
    except OSError:
        return 0, 0
    return disk.f_bavail * disk.f_frsize // MIB, disk.f_blocks * disk.f_frsize // MIB


def _device(path: Path) -> int:
    with contextlib.suppress(OSError):
        return path.stat().st_dev
    return -1


def _size_mb(folders: Iterable[Path], *, since_ns: int = 0) -> int:
    """The space that files take, in MiB. What vanishes or can't be read meanwhile counts nothing.

    With `since_ns`, the space of files that changed since then, however many there are. A folder that its owner closed,
    or whose path is too long, is over any limit then: an honest program has no need to hide what it writes.
    """
    sizes: dict[tuple[int, int], int] = {}
    entries = 0
    waiting = [os.fspath(folder) for folder in folders]

    def count(state: os.stat_result) -> None:
        if state.st_ctime_ns >= since_ns:
            sizes[state.st_dev, state.st_ino] = state.st_blocks * 512

    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(folder) as listing:
                for entry in listing:
                    entries += 1
                    if entries > MOST_ENTRIES and not since_ns:
                        return BOUNDLESS_MB
                    try:
                        state = entry.stat(follow_symlinks=False)
                    except OSError as error:
                        if since_ns and _hides(error, folder):
                            return BOUNDLESS_MB
                        continue
                    count(state)
                    if stat.S_ISDIR(state.st_mode):
                        waiting.append(entry.path)
        except NotADirectoryError:  # a file that may be written
            with contextlib.suppress(OSError):
                count(os.lstat(folder))
        except OSError as error:
            if since_ns and _hides(error, folder):
                return BOUNDLESS_MB
    return sum(sizes.values()) // MIB


def _hides(error: OSError, folder: str) -> bool:
    """Whether a folder can't be looked into because its path is too long, or because its owner closed it."""
    if error.errno == errno.ENAMETOOLONG:
        return True
    with contextlib.suppress(OSError):
        state = os.lstat(folder)
        return state.st_uid == os.geteuid() and state.st_mode & 0o500 != 0o500
    return False


def _deleted_mb(family: Iterable[int], device: int) -> int:
    """The space of files on a disk that are deleted, and that processes hold open or mapped, in MiB."""
    found: dict[int, int] = {}
    for pid in family:
        # Only root may follow map_files.
        for kind in ("fd", "map_files"):
            with contextlib.suppress(OSError):
                for name in os.listdir(f"/proc/{pid}/{kind}"):
                    with contextlib.suppress(OSError):
                        state = os.stat(f"/proc/{pid}/{kind}/{name}")
                        if state.st_dev == device and not state.st_nlink:
                            found[state.st_ino] = state.st_blocks * 512
    return sum(found.values()) // MIB
