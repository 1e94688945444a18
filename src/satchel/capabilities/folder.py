"""The folders of versions, `SATCHEL_HOME/capabilities/<id>/v<number>`: written whole or not at all."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from satchel.capabilities.package import LINK, SKILL
from satchel.config.home import sync_folder
from satchel.errors import StorageError, StorageUnwritable, UsageError

STAGING: Final = ".staging-"
"""How the names of folders begin that are being written."""
_MAX_FILES: Final = 200
_MAX_TOTAL: Final = 8_000_000
"""Bytes that are read of a folder that somebody may have changed: twice what a capability may have."""
_IGNORED: Final = ("__pycache__", ".git", ".DS_Store")
"""What editors and Python leave behind; it is not part of a version."""


def version_folder(path: Path, number: int) -> Path:
    """The folder of a version in the capability's folder."""
    return path / f"v{number}"


def write_folder(folder: Path, files: Mapping[str, bytes], *, private: bool = True) -> None:
    """Make a folder with these files and `RUN.md`, and wait until all of it is on the disk.

    Args:
        folder: It does not exist; its parents are made.
        files: By their paths, which `package` has checked.
        private: Only the user may read it; otherwise whoever may read the user's new files.

    Raises:
        StorageUnwritable: The disk is full or the place is read-only. Nothing is left of the folder.
    """
    folder_mode, file_mode = (0o700, 0o600) if private else (0o777, 0o666)
    try:
        folder.mkdir(mode=folder_mode, parents=True)
        folders = {folder}
        for path, content in files.items():
            target = folder / path
            target.parent.mkdir(mode=folder_mode, parents=True, exist_ok=True)
            folders.add(target.parent)
            descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, file_mode)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        (folder / LINK).symlink_to(SKILL)
        for each in (*folders, folder.parent):
            sync_folder(each)
    except OSError as error:
        discard(folder)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageUnwritable(
                f"There is no space left for {folder}, so nothing was registered. Free some space and try again."
            ) from error
        raise StorageUnwritable(
            f"{folder} could not be written: {error.strerror}. Nothing was registered."
        ) from error


def read_folder(folder: Path) -> dict[str, bytes]:
    """The files of a folder by their paths, without `RUN.md` if it is a link.

    Raises:
        StorageError: It can't be read.
        UsageError: It contains links or other special files, or more than a capability may have.
    """
    files: dict[str, bytes] = {}
    left = _MAX_TOTAL
    try:
        for root, folders, names in os.walk(folder, onerror=_raise):
            folders[:] = sorted(name for name in folders if name not in _IGNORED)
            for name in sorted([*names, *(f for f in folders if Path(root, f).is_symlink())]):
                place = Path(root, name)
                path = place.relative_to(folder).as_posix()
                if name in _IGNORED or (path == LINK and place.is_symlink()):
                    continue
                files[path] = _content(place, left)
                left -= len(files[path])
                if len(files) > _MAX_FILES:
                    raise UsageError(f"{folder} contains more than {_MAX_FILES} files.")
    except OSError as error:
        raise StorageError(f"{folder} can't be read: {error.strerror}.") from error
    return files


def replace_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Put a version's folder there with these files, in place of one that may be there.

    Raises:
        StorageUnwritable: The disk is full or the place is read-only.
    """
    fresh = folder.with_name(f"{STAGING}{uuid.uuid4().hex[:12]}")
    old = folder.with_name(f"{STAGING}{uuid.uuid4().hex[:12]}")
    write_folder(fresh, files)
    if folder.exists():
        folder.rename(old)
    fresh.rename(folder)
    discard(old)


def discard(folder: Path) -> None:
    """Remove a folder, as far as possible."""
    shutil.rmtree(folder, ignore_errors=True)


def _content(place: Path, limit: int) -> bytes:
    try:
        # A pipe must not block, and a link must not lead elsewhere.
        descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UsageError(f"{place} is a link; a capability contains only regular files.") from None
        raise
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UsageError(f"{place} is not a regular file.")
        content = file.read(limit + 1)
    if len(content) > limit:
        raise UsageError(f"{place.parent} contains more than {_MAX_TOTAL:,} bytes.")
    return content


def _raise(error: OSError) -> None:
    raise error
