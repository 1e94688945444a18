"""Zeroes what SQLite leaves behind in the unused parts of the pages of a database file.

`secure_delete` overwrites a row where it lies when it is deleted. But when SQLite moved it to another page before, the
first page may have a copy of it between its list of cells and its first cell. SQLite itself removes that only when it
writes the whole database anew.

See sqlite.org/fileformat2.html, sections 1.6 and 1.7.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import ClassVar, Final

MOST_PAGES: Final = 2 << 24
"""Up to so many pages (137 GB), the first byte of a page tells whether it is part of a b-tree: other pages begin with
the number of a page, whose first byte is then 0 or 1."""

_LEAVES: Final = frozenset((10, 13))
_INTERIOR: Final = frozenset((2, 5))
_FILE_HEADER: Final = 100
_HEAD: Final = struct.Struct(">BHHH")
_FREE_BLOCK: Final = struct.Struct(">HH")
_MOST_PAGE_BYTES: Final = 65_536
_ZEROS: Final = bytes(_MOST_PAGE_BYTES)


class PageFile:
    """The file of a database, opened beside SQLite; all that use the same file in this process share one.

    SQLite's locks belong to the process and the file, and closing any descriptor of it drops them. So the descriptor
    stays open until the last user has closed its connections.
    """

    _shared: ClassVar[dict[tuple[int, int], PageFile]] = {}
    _lock: ClassVar = Lock()

    def __init__(self, key: tuple[int, int]) -> None:
        """Use `of`."""
        self._key = key
        self._users = 0
        self._fd: int | None = None

    @classmethod
    def of(cls, path: Path) -> PageFile:
        """The file with this name now. Call `release` once all connections to it are closed.

        Raises:
            OSError: It isn't there.
        """
        found = path.stat()
        key = (found.st_dev, found.st_ino)
        with cls._lock:
            file = cls._shared.setdefault(key, cls(key))
            file._users += 1
            return file

    def release(self) -> None:
        """Give back what `of` gave."""
        with self._lock:
            self._users -= 1
            if not self._users:
                del self._shared[self._key]
                if self._fd is not None:
                    os.close(self._fd)

    def _descriptor(self, path: Path) -> int:
        with self._lock:
            if self._fd is None:
                self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            found = os.fstat(self._fd)
            if (found.st_dev, found.st_ino) != self._key:
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
            return self._fd

    def clean(self, path: Path, *, first: int, count: int, page_bytes: int) -> int:
        """Zero the unused parts of some pages.

        The caller holds SQLite's lock for writing and has seen that the write-ahead log is empty: then nobody writes to
        the file, and what is zeroed is what no process reads. It commits something before it gives the lock back if
        pages have changed, so that no other process writes a copy of such a page that it has in its cache. Pages count
        from 0.

        Returns:
            How many pages had something in their unused parts.

        Raises:
            OSError: It can't be read or written.
        """
        fd = self._descriptor(path)
        start = first * page_bytes
        data = os.pread(fd, count * page_bytes, start)
        changed = 0
        for at in range(0, len(data), page_bytes):
            spans = list(_unused(data, at, page_bytes, _FILE_HEADER if start + at == 0 else 0))
            for begin, end in spans:
                os.pwrite(fd, _ZEROS[: end - begin], start + begin)
            changed += bool(spans)
        return changed

    def sync(self, path: Path) -> None:
        """Wait until what was zeroed is on the disk.

        Raises:
            OSError: It can't be written.
        """
        os.fsync(self._descriptor(path))


def _unused(data: bytes, at: int, page_bytes: int, skipped: int) -> Iterator[tuple[int, int]]:
    """The unused parts of the page at an offset that aren't zero; none if it isn't part of a b-tree."""
    head = at + skipped
    kind, block, cells, content = _HEAD.unpack_from(data, head)
    if kind in _LEAVES:
        begin = head + 8 + 2 * cells
    elif kind in _INTERIOR:
        begin = head + 12 + 2 * cells
    else:
        return
    end = at + (content or _MOST_PAGE_BYTES)
    if not begin <= end <= at + page_bytes:
        return  # A free page that was never overwritten looks like anything.
    if data[begin:end] != _ZEROS[: end - begin]:
        yield begin, end
    while at + page_bytes - 4 >= at + block > begin:
        following, size = _FREE_BLOCK.unpack_from(data, at + block)
        begin, end = at + block + 4, at + block + size
        if end > at + page_bytes:
            return
        if data[begin:end] != _ZEROS[: end - begin]:
            yield begin, end
        block = following
