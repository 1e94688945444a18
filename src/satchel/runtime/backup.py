"""Backs up a home to one file, and restores it."""

from __future__ import annotations

import io
import json
import os
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from satchel.clock import Clock
from satchel.errors import NotFound, Refused, StorageCorrupt, StorageError, StorageTooNew, StorageUnwritable
from satchel.runtime.copies import note_copy
from satchel.storage import HEAD, REVISIONS
from satchel.storage.copies import copy_database, is_in_use, revision_of

__all__ = ["Backup", "Restored", "back_up", "restore"]

_FORMAT: Final = 1
_MANIFEST: Final = "satchel-backup.json"
_END: Final = "satchel-backup.end"
_OWN: Final = (_MANIFEST, _END)
"""Entries that belong to the backup and are not files of the home."""
_LEFT_OUT: Final = ("models", "logs", "cache", "oauth")
"""Left out: files that can be fetched again, logs of errors, and logins, which a stolen backup would give away."""
_MAX_BYTES: Final = 1 << 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """A finished backup: `files` besides the database, and the size of the archive in bytes."""

    path: Path
    files: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """A finished restore; `aside` is where the previous home is now, or None if there was none."""

    home: Path
    files: int
    aside: Path | None


def back_up(home: Path, database: Path, target: Path, *, clock: Clock) -> Backup:
    """Write the memories, conversations, settings and tools of a home to one .tar.gz.

    The home may be in use: the database is copied as of one moment, and the logs after it, so that the logs contain
    everything that the database does.

    Args:
        home: SATCHEL_HOME.
        database: The database file; it need not be in the home.
        target: Replaced when the backup is complete.
        clock: For the time of the backup.

    Raises:
        NotFound: There is no home.
        StorageError: Something can't be read or written; a file at `target` is unchanged.
    """
    if not home.is_dir():
        raise NotFound(f"There is no folder {home}, so there is nothing to back up.")
    if target.is_dir():
        raise StorageUnwritable(f"{target} is a folder; name a file, such as {target / 'satchel.tar.gz'}.")
    part = target.with_name(f".{target.name}.{os.getpid()}")
    copy = target.with_name(f".{target.name}.{os.getpid()}.db")
    try:
        if database.exists():
            copy_database(database, copy)
        with _written(part) as archive:
            _put(archive, _MANIFEST, _manifest(clock))
            count = 0
            if copy.exists():
                archive.add(copy, "satchel.db", recursive=False)
            for path, name in _files(
                home, {database.resolve(), target.resolve(), part.resolve(), copy.resolve()}
            ):
                try:
                    archive.add(path, name, recursive=False)
                except FileNotFoundError:
                    continue  # it was removed meanwhile
                count += 1
            _put(archive, _END, {"files": count})
        size = part.stat().st_size
        part.replace(target)
        note_copy(home, target, clock=clock)
    except OSError as error:
        raise StorageUnwritable(
            f"The backup {target} could not be written: {error.strerror or error}. An existing file there is unchanged."
        ) from error
    finally:
        for path in (part, copy):
            with suppress(OSError):
                path.unlink(missing_ok=True)
    return Backup(path=target, files=count, bytes=size)


def restore(archive: Path, home: Path, *, clock: Clock) -> Restored:
    """Replace a home by a backup; the previous home is kept beside it.

    Args:
        archive: A file that `back_up` wrote.
        home: SATCHEL_HOME.
        clock: For the name of the folder that keeps the previous home.

    Raises:
        NotFound: There is no such file.
        StorageCorrupt: It is not a backup, or damaged; nothing was changed.
        StorageTooNew: A newer Satchel wrote it; nothing was changed.
        Refused: The home is in use by another process; nothing was changed.
        StorageError: Something can't be read or written.
    """
    if not archive.is_file():
        raise NotFound(f"There is no file {str(archive)!r}.")
    if is_in_use(home / "satchel.db"):
        raise Refused(
            f"{home} is in use by another process. Stop it, and restore again. Nothing was changed."
        )
    stamp = clock.now().strftime("%Y%m%d-%H%M%S")
    fresh = home.with_name(f"{home.name}.restoring-{os.getpid()}")
    aside: Path | None = None
    try:
        fresh.mkdir(mode=0o700, parents=True)
        count = _unpack(archive, fresh)
        if (fresh / "satchel.db").exists() and revision_of(fresh / "satchel.db") is None:
            raise StorageCorrupt(f"The database in {archive} is empty. Nothing was changed.")
        if home.exists():
            aside = home.with_name(f"{home.name}.before-restore-{stamp}")
            if aside.exists():
                raise StorageUnwritable(f"{aside} already exists; move it away and restore again.")
            home.rename(aside)
        try:
            fresh.rename(home)
        except OSError:
            if aside is not None:
                aside.rename(home)
            raise
        if aside is not None and (aside / "models").is_dir():
            # Backups don't contain the models; keep those that have been fetched.
            (aside / "models").rename(home / "models")
    except OSError as error:
        raise StorageUnwritable(f"{home} could not be replaced: {error.strerror or error}.") from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return Restored(home=home, files=count, aside=aside)


def _manifest(clock: Clock) -> dict[str, Any]:
    return {"satchel-backup": _FORMAT, "schema": HEAD, "created_at": clock.now().isoformat()}


@contextmanager
def _written(path: Path) -> Iterator[tarfile.TarFile]:
    """A new archive that only its owner can read; at the end it is synced to disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        with tarfile.open(fileobj=stream, mode="w:gz", format=tarfile.PAX_FORMAT) as archive:
            yield archive
        stream.flush()
        os.fsync(stream.fileno())


def _put(archive: tarfile.TarFile, name: str, value: dict[str, Any]) -> None:
    raw = json.dumps(value, indent=1).encode() + b"\n"
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(raw), 0o600
    archive.addfile(entry, io.BytesIO(raw))


def _files(home: Path, others: set[Path]) -> Iterator[tuple[Path, str]]:
    """The files of a home for a backup, with their names in it; symlinks are left out."""
    for folder, folders, names in os.walk(home):
        here = Path(folder)
        if here == home:
            folders[:] = [name for name in folders if name not in _LEFT_OUT]
        folders.sort()
        for name in sorted(names):
            path = here / name
            is_database = here == home and (
                ".db-" in name or name.endswith((".db", ".backup")) or ".db." in name
            )
            is_own = here == home and name in _OWN
            if path.is_symlink() or not path.is_file() or is_database or is_own or path.resolve() in others:
                continue
            yield path, path.relative_to(home).as_posix()


def _unpack(path: Path, target: Path) -> int:
    """Write the files of a backup to a folder; returns their number, without the database."""
    count = size = 0
    try:
        with tarfile.open(path, "r:gz") as archive:
            first = archive.next()
            stream = archive.extractfile(first) if first is not None and first.name == _MANIFEST else None
            manifest = json.loads(stream.read(1 << 20)) if stream is not None else {}
            if not isinstance(manifest, dict) or "satchel-backup" not in manifest:
                raise StorageCorrupt(f"{path} is not a Satchel backup. Nothing was changed.")
            if manifest["satchel-backup"] != _FORMAT or manifest.get("schema") not in REVISIONS:
                raise StorageTooNew(
                    f"A newer version of Satchel wrote the backup {path} (schema {manifest.get('schema')!r}; this "
                    f"version supports up to {HEAD!r}). Upgrade Satchel. Nothing was changed."
                )
            ended = False
            for entry in archive:
                if entry.name == _END:
                    ended = True
                if entry.name in _OWN:
                    continue
                name = PurePosixPath(entry.name)
                if not entry.isreg() or name.is_absolute() or ".." in name.parts or not name.parts:
                    raise StorageCorrupt(
                        f"{path} contains {entry.name!r}, which does not belong in a backup. Nothing was changed."
                    )
                size += entry.size
                content = archive.extractfile(entry)
                if content is None or size > _MAX_BYTES:
                    raise StorageCorrupt(f"{path} can't be unpacked. Nothing was changed.")
                place = target.joinpath(*name.parts)
                place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                mode = 0o700 if entry.mode & 0o100 else 0o600
                descriptor = os.open(
                    place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode
                )
                with os.fdopen(descriptor, "wb") as out:
                    shutil.copyfileobj(content, out, 1 << 20)
                os.utime(place, (entry.mtime, entry.mtime))
                count += entry.name != "satchel.db"
            # The checksum is at the end of the file.
            while archive.fileobj.read(1 << 20):
                pass
            if not ended:
                raise StorageCorrupt(f"{path} is incomplete. Nothing was changed.")
    except (tarfile.TarError, EOFError, ValueError, zlib.error) as error:
        raise StorageCorrupt(
            f"{path} is not a Satchel backup, or is damaged: {error}. Nothing was changed."
        ) from error
    except StorageError:
        raise
    except OSError as error:
        if error.errno is None:  # what the decompressor raises
            raise StorageCorrupt(f"{path} is damaged: {error}. Nothing was changed.") from error
        raise
    return count
