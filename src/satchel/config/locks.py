"""Locks of files that say who holds them. The kernel releases one when its process dies, however it dies."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

_MOST_BYTES = 4096


class FileLock:
    """A lock that this process holds; `take` gives one."""

    def __init__(self, path: Path, fd: int, *, removes: bool) -> None:
        """Use `take`."""
        self._path = path
        self._fd = fd
        self._removes = removes

    @classmethod
    def take(cls, path: Path, told: str = "", *, removes: bool = False) -> FileLock | None:
        """Lock a file, which is made for its owner only. None if somebody else holds the lock, now or a moment ago.

        Args:
            path: The file; its folder is there.
            told: What `held` tells others while it is held.
            removes: The file is removed with the lock. All who lock it say the same.

        Raises:
            OSError: The file can't be made, locked or written.
        """
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever held it may have removed the file since it was opened: a lock without a name keeps nobody out.
            if os.path.samestat(os.fstat(fd), path.stat(follow_symlinks=False)):
                os.ftruncate(fd, 0)
                os.pwrite(fd, f"{told}\n".encode(), 0)
                return cls(path, fd, removes=removes)
        except (BlockingIOError, PermissionError, FileNotFoundError):
            pass
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)
        return None

    @property
    def fd(self) -> int:
        """The descriptor that holds it. A process that inherits it holds the lock as well."""
        return self._fd

    def release(self) -> None:
        """Let others have it. May be called more than once."""
        if self._fd < 0:
            return
        if self._removes:
            # While the lock is held, the file can't be another holder's.
            with suppress(OSError):
                self._path.unlink(missing_ok=True)
        os.close(self._fd)
        self._fd = -1


def held(path: Path) -> str | None:
    """What the holder of a lock tells, "" before it has; None if nobody holds it."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return os.pread(fd, _MOST_BYTES, 0).decode("utf-8", "replace").strip()
    finally:
        os.close(fd)
    return None
