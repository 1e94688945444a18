"""Reads and writes files in a folder that untrusted code can change, without following what it placed there.

Each step of a path is opened relative to the folder above it, and no step may be a symbolic link. Only regular files
with one name are read, so that neither a pipe, nor a device, nor a link to another file can stand in for one.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from satchel.errors import NotFound, SandboxError, UsageError
from satchel.sandbox.port import Artifact

MOST_ENTRIES = 10_000
"""Entries that are looked at; more than this is an attack, or not a result."""
MOST_DEPTH = 16
MOST_PATH_CHARS = 1024
FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """Files, and those that were left out, each with its reason."""

    artifacts: tuple[Artifact, ...]
    omitted: tuple[str, ...]


def collect(folder: Path, *, most: int, most_bytes: int, only: Sequence[str] = ()) -> Collected:
    """The regular files below a folder, in the order of their paths, those in a folder `out` there first: what lies
    beside it may have been made on the way. The folder's own path is trusted. Only those in `only`, if it is not empty;
    `most_bytes` is their size together.

    Raises:
        NotFound: There is nothing at one of the paths in `only`.
        UsageError: A path in `only` is absolute or contains "..".
    """
    artifacts: list[Artifact] = []
    omitted: list[str] = []
    left = most_bytes
    wanted = [parts_of(path) for path in only]
    seen: set[tuple[str, ...]] = set()
    with _opened(folder) as top:
        for parts, fd in _files(top, (), wanted, omitted, seen):
            path = "/".join(parts)
            try:
                info = os.fstat(fd)
                if info.st_nlink != 1:
                    omitted.append(f"{path}: a file with several names")
                elif len(artifacts) >= most:
                    omitted.append(f"{path}: more than {most} files")
                elif info.st_size > left:
                    omitted.append(f"{path}: more than {most_bytes:,} bytes together")
                else:
                    content = _read(fd, left)
                    left -= len(content)
                    artifacts.append(Artifact(path=path, content=content))
            finally:
                os.close(fd)
    for parts in wanted:
        if not any(path[: len(parts)] == parts for path in seen):
            raise NotFound(f"There is no file or folder {'/'.join(parts)!r} in the sandbox's folder.")
    return Collected(artifacts=tuple(artifacts), omitted=tuple(omitted))


def _files(
    folder: int,
    above: tuple[str, ...],
    wanted: Sequence[tuple[str, ...]],
    omitted: list[str],
    seen: set[tuple[str, ...]],
) -> Iterator[tuple[tuple[str, ...], int]]:
    """Open descriptors of regular files, which the caller closes."""
    try:
        names = sorted(os.listdir(folder), key=lambda name: (bool(above) or name != "out", name))[
            :MOST_ENTRIES
        ]
    except OSError:
        return
    for name in names:
        parts = (*above, name)
        if wanted and not any(parts[: len(want)] == want[: len(parts)] for want in wanted):
            continue
        shown = "/".join(parts).encode("utf-8", "replace").decode()
        if len(seen) >= MOST_ENTRIES:
            omitted.append(f"{shown}: more than {MOST_ENTRIES:,} entries")
            return
        seen.add(parts)
        if shown != "/".join(parts) or len(shown) > MOST_PATH_CHARS:
            omitted.append(f"{shown[:200]!r}: not a name that can be kept")
            continue
        try:
            kind = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
            if stat.S_ISDIR(kind):
                if len(parts) > MOST_DEPTH:
                    omitted.append(f"{shown}: too deep")
                    continue
                below = os.open(name, FOLDER_FLAGS, dir_fd=folder)
                try:
                    yield from _files(below, parts, wanted, omitted, seen)
                finally:
                    os.close(below)
            elif stat.S_ISREG(kind):
                fd = os.open(name, FILE_FLAGS, dir_fd=folder)
                # It may have become something else since it was looked at.
                if stat.S_ISREG(os.fstat(fd).st_mode):
                    yield parts, fd
                else:
                    os.close(fd)
            else:
                omitted.append(f"{shown}: not a regular file")
        except OSError as error:
            omitted.append(f"{shown}: {error.strerror}")


def parts_of(path: str) -> tuple[str, ...]:
    """The steps of a relative path.

    Raises:
        UsageError: It is empty or absolute, or contains "..", a NUL character or something that isn't Unicode.
    """
    pure = PurePosixPath(path)
    if (
        not pure.parts
        or pure.is_absolute()
        or ".." in pure.parts
        or "\0" in path
        or len(path) > MOST_PATH_CHARS
    ):
        raise UsageError(
            f"{path[:200]!r} is not a path in the sandbox's folder. Give a relative path without '..'."
        )
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{path[:200]!r} contains a lone surrogate.") from error
    return pure.parts


def read_file(folder: Path, path: str, *, max_bytes: int) -> bytes:
    """The beginning of a regular file below a folder.

    Raises:
        NotFound: There is no such regular file.
        UsageError: As `parts_of`; or a step of the path is a symbolic link.
    """
    *above, name = parts_of(path)
    with _opened(folder) as top, _descended(top, above, path, create=None) as parent:
        try:
            fd = os.open(name, FILE_FLAGS, dir_fd=parent)
        except OSError as error:
            raise _complaint(path, error) from error
        try:
            info = os.fstat(fd)
            if not stat.S_ISREG(info.st_mode) or info.st_nlink != 1:
                raise NotFound(f"{path!r} is not a regular file.")
            return _read(fd, max_bytes)
        finally:
            os.close(fd)


def write_file(folder: Path, path: str, content: bytes, *, owner: int | None = None) -> None:
    """Write a file below a folder in one step; a file of that name is replaced, whatever it is. The folder's own path
    is trusted. The file and new folders belong to `owner`, user and group; None is the caller.

    Raises:
        UsageError: As `parts_of`; a step is a symbolic link or no folder; a folder has its name; no space is left.
    """
    *above, name = parts_of(path)
    temporary = f".{secrets.token_hex(8)}.tmp"
    with (
        _opened(folder) as top,
        _descended(top, above, path, create=owner if owner is not None else -1) as parent,
    ):
        try:
            fd = os.open(
                temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644, dir_fd=parent
            )
        except OSError as error:
            raise _complaint(path, error) from error
        try:
            with open(fd, "wb") as file:
                if owner is not None:
                    os.fchown(fd, owner, owner)
                file.write(content)
            os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=parent)
            raise _complaint(path, error) from error


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[int]:
    try:
        fd = os.open(folder, FOLDER_FLAGS)
    except OSError as error:
        raise SandboxError(
            f"The sandbox's folder {str(folder)!r} can't be read: {error.strerror}."
        ) from error
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def _descended(top: int, steps: Sequence[str], path: str, *, create: int | None) -> Iterator[int]:
    """The folder at the end of the steps. `create`: make what is missing, for this owner; -1 for the caller."""
    with contextlib.ExitStack() as opened:
        folder = top
        for step in steps:
            try:
                if create is not None:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(step, 0o755, dir_fd=folder)
                        if create >= 0:
                            os.chown(step, create, create, dir_fd=folder, follow_symlinks=False)
                folder = os.open(step, FOLDER_FLAGS, dir_fd=folder)
            except OSError as error:
                raise _complaint(path, error) from error
            opened.callback(os.close, folder)
        yield folder


def _complaint(path: str, error: OSError) -> NotFound | UsageError:
    if isinstance(error, FileNotFoundError):
        return NotFound(f"There is no file {path!r}.")
    # A symbolic link answers ELOOP, as a folder on the way ENOTDIR.
    why = "a symbolic link is on the way" if error.errno == errno.ELOOP else str(error.strerror)
    return UsageError(f"{path!r} can't be used: {why}.")


def _read(fd: int, most: int) -> bytes:
    pieces = []
    while most > 0 and (piece := os.read(fd, min(most, 1 << 20))):
        pieces.append(piece)
        most -= len(piece)
    return b"".join(pieces)
