"""Finds executables in the tool folders, and rejects those that another user could have put there."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from satchel.tools.builtin.fence import describe_kind

FolderKind: TypeAlias = Literal["user", "dirs", "project"]

MOST_ENTRIES = 2000
"""The most entries that are examined in one folder."""
PASSED_OVER = frozenset({"tests", "__pycache__"})
"""Subfolders that are ignored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFolder:
    """A folder that may contain tools.

    Attributes:
        kind: "user" is `SATCHEL_HOME/tools`, "dirs" one of `[tools] dirs`, "project" a trusted project's.
        accepted: SHA-256, by path, of the files that the user accepted when they trusted the project. Any other file
            needs approval. None if new files in the folder need no approval.
    """

    path: Path
    kind: FolderKind
    accepted: Mapping[str, str] | None = None

    def accepts(self, path: Path, sha256: str) -> bool:
        """Whether the user accepted this content when they trusted the project."""
        return self.accepted is not None and self.accepted.get(str(path)) == sha256


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """A file's state. While it stays the same, the file counts as unchanged.

    Attributes:
        ctime_ns: Programs can't set it, unlike `mtime_ns`. If only this differs, the content is compared.
    """

    size: int
    mtime_ns: int
    inode: int
    ctime_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """An executable file; `path` may be a symbolic link."""

    path: Path
    folder: ToolFolder
    stamp: Stamp


@dataclass(frozen=True, slots=True, kw_only=True)
class Unusable:
    """An entry of a folder, or the folder itself, that can't be used, and why."""

    path: Path
    folder: ToolFolder
    reason: str


def scan(folders: Sequence[ToolFolder]) -> list[Candidate | Unusable]:
    """List the entries of the folders, in the folders' order and sorted by name.

    Missing folders, names that begin with a dot or end with a tilde, and the folders `tests` and `__pycache__` are
    ignored.
    """
    seen: set[Path] = set()
    found: list[Candidate | Unusable] = []
    for folder in folders:
        real = Path(os.path.realpath(folder.path))
        if real not in seen:
            seen.add(real)
            found.extend(_scan_folder(folder))
    return found


def stamp_of(state: os.stat_result) -> Stamp:
    """The stamp from the result of `stat`."""
    return Stamp(
        size=state.st_size, mtime_ns=state.st_mtime_ns, inode=state.st_ino, ctime_ns=state.st_ctime_ns
    )


def digest_of(path: Path, expected: Stamp | None = None) -> tuple[str, Stamp]:
    """The SHA-256 of a file's content, and the file's state while it was read. `path` is a regular file.

    Raises:
        OSError: It can't be read, or is not in the expected state; `strerror` says which.
    """
    # O_NONBLOCK: if the file has become a FIFO in the meantime, opening it must not block.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    with os.fdopen(handle, "rb") as file:
        before = os.fstat(file.fileno())
        if not stat.S_ISREG(before.st_mode) or (expected is not None and stamp_of(before) != expected):
            raise OSError(errno.ESTALE, "it changed just now", str(path))
        digest = hashlib.file_digest(file, "sha256")
        stamp = stamp_of(before)
        if stamp_of(os.fstat(file.fileno())) != stamp:
            raise OSError(errno.ESTALE, "it changed just now", str(path))
    return digest.hexdigest(), stamp


def _scan_folder(folder: ToolFolder) -> Iterator[Candidate | Unusable]:
    try:
        state = folder.path.stat()
        if not stat.S_ISDIR(state.st_mode):
            yield Unusable(path=folder.path, folder=folder, reason="it is not a folder.")
            return
        names = sorted(os.listdir(folder.path))  # noqa: PTH208 - names are enough; a thousand paths are not needed
    except FileNotFoundError:
        return
    except OSError as error:
        yield Unusable(path=folder.path, folder=folder, reason=f"it can't be read: {error.strerror}.")
        return
    problem = _strangers(state)
    if problem:
        yield Unusable(path=folder.path, folder=folder, reason=f"its tools are not used: {problem}")
        return
    shown = [name for name in names if not name.startswith(".") and not name.endswith("~")]
    for name in shown[:MOST_ENTRIES]:
        path = folder.path / name
        found = _look(path, folder)
        if found is not None:
            yield found
    if len(shown) > MOST_ENTRIES:
        reason = f"only the first {MOST_ENTRIES:,} of its {len(shown):,} files were examined."
        yield Unusable(path=folder.path, folder=folder, reason=reason)


def _look(path: Path, folder: ToolFolder) -> Candidate | Unusable | None:
    def unusable(reason: str) -> Unusable:
        return Unusable(path=path, folder=folder, reason=reason)

    try:
        os.fsencode(path).decode()
        state = path.stat()
        if path.is_symlink():
            problem = _strangers(Path(os.path.realpath(path)).parent.stat())
            if problem:
                return unusable(f"the folder that it links to is not safe: {problem}")
    except UnicodeDecodeError:
        return unusable("its file name is not UTF-8.")
    except FileNotFoundError:
        return unusable(
            "it is a link to something that does not exist." if path.is_symlink() else "it no longer exists."
        )
    except OSError as error:
        return unusable(f"it can't be reached: {error.strerror}.")
    kind = _kind(state.st_mode)
    if kind == "a folder" and path.name in PASSED_OVER:
        return None
    if kind:
        return unusable(f"it is {kind}, not an executable file.")
    problem = _strangers(state)
    if problem:
        return unusable(problem)
    if not os.access(path, os.X_OK):
        return unusable(f"it is not executable. If it is a tool, type: chmod u+x {path}")
    return Candidate(path=path, folder=folder, stamp=stamp_of(state))


def _strangers(state: os.stat_result) -> str:
    """Why another user could have written it, or "". Files of root are accepted: root can write anywhere."""
    if state.st_uid not in (os.geteuid(), 0):
        return f"it belongs to another user (uid {state.st_uid})."
    if state.st_mode & stat.S_IWOTH:
        return f"everyone can write to it (mode {stat.S_IMODE(state.st_mode):o}). Type: chmod go-w on it."
    if state.st_mode & stat.S_IWGRP:
        return f"its group can write to it (mode {stat.S_IMODE(state.st_mode):o}). Type: chmod g-w on it."
    return ""


def _kind(mode: int) -> str:
    """The kind of a file that is not regular, in words; "" for a regular one."""
    if stat.S_ISREG(mode):
        return ""
    return "a folder" if stat.S_ISDIR(mode) else describe_kind(mode)
