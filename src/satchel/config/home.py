"""SATCHEL_HOME: the folder that holds everything, and the list of project folders that the user trusts."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from satchel.errors import ConfigError, StorageUnwritable

__all__ = [
    "ensure_home",
    "is_trusted",
    "locked_folder",
    "project_files",
    "replace_file",
    "trust",
    "trusted_folders",
    "untrust",
]

_TRUSTED: Final = "trusted.json"


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


def trusted_folders(home: Path) -> tuple[Path, ...]:
    """The project folders that the user trusts, in the order in which they were trusted.

    Raises:
        ConfigError: The list can't be read.
    """
    path = home / _TRUSTED
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} can't be read: {error}.") from error
    try:
        folders = json.loads(text)["folders"]
        return tuple(Path(folder) for folder in folders)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError(
            f'{path} is damaged: it should hold {{"folders": ["/a/folder", …]}}. Mend or delete it; '
            f"deleting it "
            "trusts no folder."
        ) from error


def is_trusted(home: Path, folder: Path) -> bool:
    """Whether the user trusts exactly this folder; trust in one folder says nothing about those inside it."""
    return folder.resolve() in trusted_folders(home)


def project_files(folder: Path) -> tuple[str, ...]:
    """What a project brings that counts only once the user trusts its folder: names below it, in the order read."""
    return tuple(
        name for name in (".satchel/config.toml", ".satchel/tools", "AGENTS.md") if (folder / name).exists()
    )


def trust(home: Path, folder: Path) -> None:
    """Let a project's settings, tools and `AGENTS.md` count from now on.

    Raises:
        ConfigError: The list can't be read.
        StorageUnwritable: It can't be written.
    """
    wanted = folder.resolve()
    _change(home, lambda folders: folders if wanted in folders else (*folders, wanted))


def untrust(home: Path, folder: Path) -> bool:
    """Take the trust back.

    Returns:
        Whether the folder had been trusted.

    Raises:
        ConfigError: The list can't be read.
        StorageUnwritable: It can't be written.
    """
    unwanted = folder.resolve()
    if unwanted not in trusted_folders(home):
        return False
    _change(home, lambda folders: tuple(folder for folder in folders if folder != unwanted))
    return True


def _change(home: Path, edit: Callable[[tuple[Path, ...]], tuple[Path, ...]]) -> None:
    ensure_home(home)
    with locked_folder(home):
        folders = edit(trusted_folders(home))
        text = json.dumps({"folders": [str(folder) for folder in folders]}, indent=2)
        replace_file(home / _TRUSTED, text + "\n")


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
