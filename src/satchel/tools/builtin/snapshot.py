"""What a command changed in the session's folder, so that it can be taken back as what the file tools change is.

The contents of the folder's files are read before a command, within limits; what differs after it is kept as changes of
the turn. Who changed a file meanwhile can't be known, so whoever takes commands back is shown the files first.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final, TypeAlias

from satchel.errors import SatchelError
from satchel.tools.builtin.changes import keep_commands_changes, noted_bytes
from satchel.tools.builtin.fence import PROTECTED, Place
from satchel.tools.builtin.tree import walk
from satchel.tools.patterns import only_prints
from satchel.tools.shell import read_commands
from satchel.wording import counted, shown

MOST_FILES: Final = 4_000
"""Files and folders, without what `.gitignore` names: most projects. 1,500 take 0.1 s on one core."""
MOST_LOOKED_AT: Final = 20_000
"""The same with what `.gitignore` names: a file there takes 15 µs."""
MOST_BYTES: Final = 32 << 20
"""Of contents, which are in memory while the command runs."""
MOST_BYTES_OF_FILE: Final = 1 << 20
_FRESH_NS: Final = 100_000_000
"""Two changes within a tick of the kernel's clock (10 ms at most) have one time: what just changed is read again."""
_Stamp: TypeAlias = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class _File:
    """A file; its content is None if it is too large, or can't be read."""

    stamp: _Stamp
    mode: int
    content: bytes | None


class Snapshot:
    """The files of a folder before a command. All methods block."""

    def __init__(self, folder: Path, spill_dir: Path, *, home: Path | None = None) -> None:
        """Read them, unless there are too many; what is in SATCHEL_HOME is left out. `spill_dir` is where `keep` keeps
        what has changed.
        """
        self._spill_dir = spill_dir
        self._noted_before = noted_bytes(spill_dir)
        self._folder = Path(os.path.realpath(folder))
        own = None if home is None else Path(os.path.realpath(home))
        self._left_out = f"{own.relative_to(self._folder)}/" if own and self._folder in own.parents else None
        self._room = MOST_BYTES
        self._settled_ns = time.time_ns() - _FRESH_NS
        self._files: dict[str, _File] = {}
        names = self._names()
        self._is_whole = names is not None
        for name in names or ():
            if (file := self._read(name)) is not None:
                self._files[name] = file

    def keep(self, turn: int) -> None:
        """Keep what is different now as changes of a turn.

        Raises:
            SatchelError: They can't be kept.
        """
        keep_commands_changes(self._spill_dir, turn, self._changes(), noted_before=self._noted_before)

    def _changes(self) -> Iterator[tuple[Place, bytes | None, bytes | None, int] | str]:
        """See `keep_commands_changes`."""
        now = self._names() if self._is_whole else None
        if now is None:
            yield f"what else commands changed in a folder with more than {counted(MOST_FILES, 'file')}"
        self._room += MOST_BYTES
        known = {file.stamp[:2] for file in self._files.values()}
        for name in sorted({*self._files, *(now or ())}):
            before = self._files.get(name)
            if (
                before is not None
                and before.stamp == self._stamp(name)
                and before.stamp[-1] < self._settled_ns
            ):
                continue
            after = self._read(name)
            if (before and before.content is None) or (after and after.content is None):
                if before is None or after is None or before.stamp != after.stamp:
                    yield shown(str(self._folder / name))
                continue
            if (
                before is None
                and after is not None
                and after.stamp[-1] < self._settled_ns
                and after.stamp[:2] not in known
            ):
                # It was there, and .gitignore named it until the command changed that: to remove it would lose it.
                yield shown(str(self._folder / name))
                continue
            was = before.content if before is not None else None
            is_now = after.content if after is not None else None
            if was != is_now and (either := before or after):
                yield self._place(name), was, is_now, either.mode

    def _names(self) -> list[str] | None:
        """The paths of the files now; None if there are too many."""
        found: list[str] = []
        looked = count()
        walked = walk(
            self._folder, skips=PROTECTED.__contains__, goes_on=lambda: next(looked) < MOST_LOOKED_AT
        )
        for number, each in enumerate(walked):
            if number >= MOST_FILES:
                return None
            if not each.is_folder and not (self._left_out and each.path.startswith(self._left_out)):
                found.append(each.path)
        return found if next(looked) <= MOST_LOOKED_AT else None

    def _place(self, name: str) -> Place:
        return Place(root=self._folder, parts=tuple(name.split("/")), name=str(self._folder / name))

    def _stamp(self, name: str) -> _Stamp | None:
        try:
            return _stamp_of(os.lstat(self._folder / name))
        except OSError:
            return None

    def _read(self, name: str) -> _File | None:
        """A file as it is; None if it is gone, or no regular file. No link is followed, wherever it was put."""
        try:
            handle = self._place(name).open()
        except SatchelError:
            stamp = self._stamp(name)
            return None if stamp is None else _File(stamp, 0, None)
        state = os.fstat(handle)
        if not stat.S_ISREG(state.st_mode):
            os.close(handle)
            return None
        content = None
        with os.fdopen(handle, "rb") as file:
            if state.st_size <= min(self._room, MOST_BYTES_OF_FILE):
                with suppress(OSError):  # of a disk, or a file system like /sys
                    content = file.read(MOST_BYTES_OF_FILE)
                    self._room -= len(content)
        return _File(_stamp_of(state), stat.S_IMODE(state.st_mode), content)


def may_write(command: str) -> bool:
    """Whether a command may change files; one that consists of programs that only print doesn't."""
    words = read_commands(command)
    return words is None or not all(map(only_prints, words))


def _stamp_of(state: os.stat_result) -> _Stamp:
    """No change keeps all of them: the time of the last change is the kernel's."""
    return state.st_dev, state.st_ino, state.st_size, state.st_ctime_ns
