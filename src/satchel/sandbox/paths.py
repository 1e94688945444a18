"""Opens the files and folders of boxes step by step, without following links.

A box may put a link anywhere where it can write, at any time: also between a look at a path and its use, and also
for the next box. So no path that leads through such a place is ever followed by name: each step is opened from the
folder before it, and a link is an error.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from satchel.errors import SandboxError


class LedElsewhere(SandboxError):
    """A path that was agreed to leads elsewhere now."""


def step_by_step(path: Path) -> int | None:
    """A descriptor (`O_PATH`) of a file or folder; None if there is none. The path is absolute, without "..": whoever
    calls resolved it when the user agreed to it.

    Raises:
        LedElsewhere: There is a link on the way, or at its end.
    """
    folder = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    for name in path.parts[1:]:
        try:
            below = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return None
        finally:
            os.close(folder)
        folder = below
        if stat.S_ISLNK(os.fstat(folder).st_mode):
            os.close(folder)
            raise LedElsewhere(
                f"{path} can't be given to a sandbox: there is a symbolic link on the way ({name}). A sandbox never "
                "follows one, since a command may have put it there. Remove the link, or name the real path."
            )
    return folder


@contextmanager
def opened(path: Path) -> Iterator[int | None]:
    """`step_by_step`, closed at the end of the block."""
    descriptor = step_by_step(path)
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)


def identity(path: Path) -> tuple[int, int] | None:
    """What tells a folder from every other one, also from one that takes its place; None for all that is no folder.

    A file has none: editors and git replace files whenever they write them.

    Raises:
        LedElsewhere: As `step_by_step`.
    """
    with opened(path) as descriptor:
        state = os.fstat(descriptor) if descriptor is not None else None
    return (state.st_dev, state.st_ino) if state is not None and stat.S_ISDIR(state.st_mode) else None


def make_folder(path: Path) -> None:
    """Make a folder for its owner alone, and those above it, without following links.

    Raises:
        SandboxError: It can't be made, or is no folder; LedElsewhere for a link.
    """
    for folder in (*reversed(path.parents), path):
        with opened(folder) as there:
            if there is not None:
                continue
        with opened(folder.parent) as above:
            try:
                if above is None:
                    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
                os.mkdir(folder.name, mode=0o700, dir_fd=above)
            except FileExistsError:
                pass
            except OSError as error:
                raise SandboxError(
                    f"{path} can't be made: {error.strerror}. The sandbox keeps its caches there."
                ) from error
