"""SATCHEL_HOME, the folder that holds everything: making it, and changing its files safely."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from satchel.errors import StorageUnwritable

__all__ = [
    "ensure_home",
    "locked_folder",
    "replace_file",
]


def ensure_home(home: Path) -> Path:
    """Make the folder where it is missing, readable by its owner alone.

    Returns:
        `home`.

    Raises:
        StorageUnwritable: It can't be made, or it is not a folder.
    """
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError:
        raise StorageUnwritable(
            f"SATCHEL_HOME is {home}, and that is a file. Move it away, or set SATCHEL_HOME to a folder."
        ) from None
    except OSError as error:
        raise StorageUnwritable(
            f"The folder {home} could not be made: {error.strerror}. Make it, or set SATCHEL_HOME to a "
            "folder that you may write to."
        ) from error
    return home


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Hold the folder's lock while one of its files is read, changed and written back.

    The lock is the kernel's, on the folder itself: it leaves no file, and it ends with the process.

    Raises:
        StorageUnwritable: The folder can't be opened.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise StorageUnwritable(f"The folder {folder} can't be opened: {error.strerror}.") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def replace_file(path: Path, text: str) -> None:
    """Write a whole file so that a reader, or a crash, finds the old one or the new one and nothing between.

    A symbolic link stays one: the file that it names is replaced. A new file is readable by its owner alone;
    an old one keeps its mode.

    Raises:
        StorageUnwritable: The disk is full or the place is read-only; the old file is untouched.
    """
    target = path.resolve()
    temporary = target.parent / f".{target.name}.{os.getpid()}"
    try:
        descriptor = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            temporary.chmod(target.stat().st_mode & 0o777)
        temporary.replace(target)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise StorageUnwritable(
            f"{path} could not be written: {error.strerror}. It was left as it was."
        ) from error
