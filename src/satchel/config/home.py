"""Creates SATCHEL_HOME, and changes files in it safely."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

from satchel.errors import ConfigError, StorageUnwritable


def ensure_home(home: Path) -> Path:
    """Create the folder if it is missing, readable only by its owner.

    Returns:
        `home`.

    Raises:
        StorageUnwritable: It can't be created, or is not a folder.
    """
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError:
        raise StorageUnwritable(
            f"SATCHEL_HOME is {home}, which is a file. Move it away, or set SATCHEL_HOME to a folder."
        ) from None
    except OSError as error:
        raise StorageUnwritable(
            f"The folder {home} could not be created: {error.strerror}. Create it, or set SATCHEL_HOME to a "
            "folder that you can write to."
        ) from error
    return home


def default_home(environ: Mapping[str, str]) -> Path:
    """Where SATCHEL_HOME is if nothing says otherwise."""
    user_home = environ.get("HOME", "")
    return (Path(user_home) if user_home else Path.home()).resolve() / ".satchel"


def home_of(environ: Mapping[str, str], cwd: Path) -> Path:
    """SATCHEL_HOME, which needn't exist.

    Raises:
        ConfigError: The variable holds no name of a folder.
    """
    text = environ.get("SATCHEL_HOME", "").strip()
    if "\0" in text:
        raise ConfigError("SATCHEL_HOME contains a NUL character, which no folder name can.")
    default = default_home(environ)
    if not text:
        return default
    if text == "~" or text.startswith("~/"):
        return default.parent / text[2:]
    return (cwd / text).resolve()


def expanded(path: str, user_home: str) -> str:
    """A path with `~` as the user's home. Without a home ("") it stays as it is."""
    return user_home + path[1:] if user_home and (path == "~" or path.startswith("~/")) else path


def bytes_below(folder: Path) -> int:
    """The size of all files in a folder. What others remove meanwhile counts nothing."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += (Path(place) / name).lstat().st_size
    return total


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Lock the folder while one of its files is read, changed and written back.

    This is a kernel lock on the folder itself: it leaves no file behind and ends with the process.

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


def open_regular(path: Path) -> BufferedReader | None:
    """The file, opened for reading, or None if it isn't a regular one.

    Raises:
        OSError: It can't be opened.
    """
    # O_NONBLOCK: opening a FIFO, which a checkout may hold, must not wait for its other end.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return os.fdopen(handle, "rb")
    os.close(handle)
    return None


@contextmanager
def replacing(path: Path, *, durable: bool = True) -> Iterator[BinaryIO]:
    """Write a file that takes the place of another one when it is whole, readable only by its owner: whoever reads it,
    and the state after a crash, sees the old content or the new one; `durable` also after a power failure.

    Raises:
        OSError: It can't be written; the old file is unchanged.
    """
    path = path.expanduser()
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    try:
        descriptor = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        with os.fdopen(descriptor, "wb") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def linked(source: str | Path, target: str | Path) -> None:
    """Give a file a second name, which takes no room; where the file system can't, copy it. A file with several names
    may only be replaced, never be written to.

    Raises:
        OSError: It can't be read or written.
    """
    try:
        os.link(source, target)
    except OSError:
        with Path(source).open("rb") as file, replacing(Path(target), durable=False) as copy:
            while piece := file.read(1 << 20):
                copy.write(piece)


def sync_folder(folder: Path) -> None:
    """Make the entries of a folder survive a loss of power, where its file system can.

    Raises:
        OSError: The disk fails.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def replace_file(path: Path, text: str) -> None:
    """Replace a file atomically: readers, and the state after a crash, see the old content or the new one.

    A symbolic link is kept, and its target is replaced. A new file is readable only by its owner; an existing one
    keeps its mode.

    Raises:
        StorageUnwritable: The disk is full or the folder is read-only; the old file is unchanged.
    """
    target = path.resolve()
    try:
        with replacing(target) as file:
            file.write(text.encode())
            if target.exists():
                os.fchmod(file.fileno(), target.stat().st_mode & 0o777)
    except OSError as error:
        raise StorageUnwritable(f"{path} could not be written: {error.strerror}. It is unchanged.") from error
