"""Backs up a home to one file, and restores it."""

from __future__ import annotations

import ctypes
import io
import json
import os
import re
import shutil
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any, Final

from satchel.clock import Clock
from satchel.config.home import linked
from satchel.config.keys import KEYS_FILE
from satchel.errors import NotFound, Refused, StorageCorrupt, StorageError, StorageTooNew, StorageUnwritable
from satchel.processes import has_ended
from satchel.runtime.browsers import BROWSERS_FILE
from satchel.runtime.copies import note_copy
from satchel.runtime.people import PEOPLE_FILE
from satchel.runtime.serving import DOOR_FILE, HOOKS_FILE, SPACES_FILE, TOKEN_FILE, serving
from satchel.storage import HEAD, REVISIONS, sqlite
from satchel.storage.copies import copy_database, is_in_use

_FORMAT: Final = 2
"""Since 2, a file with several names is in the archive once."""
_MANIFEST: Final = "satchel-backup.json"
_END: Final = "satchel-backup.end"
_OWN: Final = (_MANIFEST, _END)
"""Entries that belong to the backup and are not files of the home."""
_LEFT_OUT: Final = (
    "models", "logs", "cache", "oauth", "uploads", KEYS_FILE, "users", "removed", "logins", TOKEN_FILE, BROWSERS_FILE,
    SPACES_FILE,
)  # fmt: skip
"""Left out: files that can be fetched again, logs of errors, logins, which a stolen backup would give away, and the
homes of other people (`satchel user backup`)."""
_KEPT: Final = ("models", "users", "removed", "logins", TOKEN_FILE, BROWSERS_FILE)
"""What a restore keeps as it is, besides the table of people."""
_BESIDE: Final = ("before-restore-", ".restoring-")
"""What a restore leaves in a home that is a mount point."""
_MAX_BYTES: Final = 1 << 40
_USERS: Final = ("tools", "skills")
"""Folders that the user fills: like the home itself, they may hold links, which are followed. Elsewhere a sandbox may
have made them."""
_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2
"""From linux/fcntl.h and linux/fs.h."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """A finished backup.

    Attributes:
        files: How many besides the database.
        left_out: What could not be backed up, by its path in the home: links that lead nowhere, into the home or out of
            folders in which Satchel and its sandboxes write, and what can't be read.
    """

    path: Path
    files: int
    bytes: int
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredHome:
    """A finished restore; `aside` is where the previous home is now, or None if there was none."""

    home: Path
    files: int
    aside: Path | None


def back_up(
    home: Path, database: Path, target: Path, *, clock: Clock, add: Callable[[Path, Path], None] | None = None
) -> Backup:
    """Write the memories, conversations, settings and tools of a home to one .tar.gz.

    The home may be in use: the database is copied as of one moment, and the logs after it, so that the logs contain
    everything that the database does.

    Args:
        home: SATCHEL_HOME.
        database: The database file; it need not be in the home.
        target: Replaced when the backup is complete.
        clock: For the time of the backup.
        add: Adds to the copy of the database what is kept elsewhere, and writes conversations that are to a folder.

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
    elsewhere = target.with_name(f".{target.name}.{os.getpid()}.sessions")
    left_out: list[str] = []
    try:
        _drop_unfinished(target)
        if database.exists():
            copy_database(database, copy)
        if add is not None:
            elsewhere.mkdir(mode=0o700)
            add(copy, elsewhere)
        with _written(part) as archive:
            _put(archive, _MANIFEST, _manifest(clock))
            count = 0
            names: dict[tuple[int, ...], str] = {}
            if copy.exists():
                archive.add(copy, "satchel.db", recursive=False)
            others = {
                database.resolve(),
                target.resolve(),
                part.resolve(),
                copy.resolve(),
                elsewhere.resolve(),
            }
            more = _files(elsewhere, set(), left_out) if add is not None else ()
            beside = ((path, f"sessions/{name}") for path, name in more)
            written: set[str] = set()
            for path, name in chain(beside, _files(home, others, left_out)):
                if name in written:
                    continue  # the home's copy of what is on the server
                written.add(name)
                try:
                    _add(archive, path, name, names)
                except FileNotFoundError:
                    continue  # it was removed meanwhile
                except PermissionError:
                    left_out.append(name)  # a link of the user's to what isn't theirs
                    continue
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
        shutil.rmtree(elsewhere, ignore_errors=True)
        for path in (part, copy):
            with suppress(OSError):
                path.unlink(missing_ok=True)
    return Backup(path=target, files=count, bytes=size, left_out=tuple(left_out))


def _drop_unfinished(target: Path) -> None:
    """Remove what backups to this file left that were killed: they hold words, and nobody looks for them."""
    name = re.compile(rf"\.{re.escape(target.name)}\.(\d+)(?:\.sessions|\.db(?:-wal|-shm)?)?")
    for path in _listed(target.parent):
        match = name.fullmatch(path.name)
        if match and has_ended(int(match[1])):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)


def restore(archive: Path, home: Path, *, clock: Clock) -> RestoredHome:
    """Replace a home by a backup; the previous home is kept beside it, or in it if it is a mount point.

    The models and the people of the previous home stay.

    Raises:
        NotFound: There is no such file.
        StorageCorrupt: It is not a backup, or damaged; nothing was changed.
        StorageTooNew: A newer Satchel wrote it; nothing was changed.
        Refused: The home is in use by another process, or the front door of several people; nothing was changed.
        StorageError: Something can't be read or written.
    """
    if not archive.is_file():
        raise NotFound(f"There is no file {str(archive)!r}.")
    if is_in_use(home / "satchel.db"):
        answers = serving(home, file=HOOKS_FILE)
        which = f" Process {answers.pid} answers hooks of other agents." if answers is not None else ""
        raise Refused(
            f"{home} is in use by another process.{which} Stop it, and restore again. Nothing was changed."
        )
    if door := serving(home, file=DOOR_FILE):
        raise Refused(
            f"{home} is the front door of several people (process {door.pid}). Stop it, and restore again. Nothing was "
            "changed."
        )
    stamp = clock.now().strftime("%Y%m%d-%H%M%S")
    is_mount = home.is_mount()  # it can't be renamed: a volume of a container
    fresh = _fresh(home, is_mount, os.getpid())
    aside: Path | None = None
    try:
        fresh.mkdir(mode=0o700, parents=True)
        count = _unpack(archive, fresh)
        path = fresh / "satchel.db"
        if path.exists() and sqlite.look(path, busy_timeout_ms=1000) is None:
            raise StorageCorrupt(f"The database in {archive} is empty. Nothing was changed.")
        if home.exists():
            before = f"before-restore-{stamp}"
            aside = home / before if is_mount else home.with_name(f"{home.name}.{before}")
            if aside.exists():
                raise StorageUnwritable(f"{aside} already exists; move it away and restore again.")
        _replace(home, fresh, aside, is_mount=is_mount)
        if aside is not None:
            # Backups don't contain the models; keep those that have been fetched. Nor do they contain other people: who
            # they are is what it was just now, so that no number of theirs is given twice.
            for name in (PEOPLE_FILE, *_KEPT):
                if (aside / name).exists():
                    (aside / name).rename(home / name)
    except OSError as error:
        raise StorageUnwritable(f"{home} could not be replaced: {error.strerror or error}.") from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return RestoredHome(home=home, files=count, aside=aside)


def interrupted_restore(home: Path) -> str:
    """What an interrupted restore left, for the user; "" if there is nothing."""
    for is_mount in (False, True):
        begun = _fresh(home, is_mount, "")
        name = re.compile(re.escape(begun.name) + r"(\d+)")
        for path in _listed(begun.parent):
            match = name.fullmatch(path.name)
            if match and path.is_dir() and has_ended(int(match[1])):
                return (
                    f"A restore was interrupted. {path} has the part of the backup that was not in place yet, or what "
                    f"was there before; so has a folder before-restore-…, if there is one. Restore again, or look at "
                    f"them and remove them."
                )
    return ""


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _fresh(home: Path, is_mount: bool, id: object) -> Path:
    return home / f".restoring-{id}" if is_mount else home.with_name(f"{home.name}.restoring-{id}")


def _replace(home: Path, fresh: Path, aside: Path | None, *, is_mount: bool) -> None:
    """Put the unpacked backup in the place of a home. Killed at any point, both are still there."""
    if aside is None:
        fresh.rename(home)
    elif is_mount:
        aside.mkdir(mode=0o700)
        for path in home.iterdir():
            if not path.name.startswith(_BESIDE):
                path.rename(aside / path.name)
        for path in fresh.iterdir():
            path.rename(home / path.name)
    elif _exchange(fresh, home):
        fresh.rename(aside)
    else:
        home.rename(aside)
        try:
            fresh.rename(home)
        except OSError:
            aside.rename(home)
            raise


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two folders in one step, so that there is no moment without a home; False where that is impossible."""
    rename: Any = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    return rename is not None and not rename(
        _AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE
    )


def _manifest(clock: Clock) -> dict[str, Any]:
    return {"satchel-backup": _FORMAT, "schema": HEAD, "created_at": clock.now().isoformat()}


@contextmanager
def _written(path: Path) -> Iterator[tarfile.TarFile]:
    """A new archive that only its owner can read; at the end it is synced to disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        with tarfile.open(
            fileobj=stream, mode="w:gz", format=tarfile.PAX_FORMAT, dereference=True
        ) as archive:
            yield archive
        stream.flush()
        os.fsync(stream.fileno())


def _put(archive: tarfile.TarFile, name: str, value: dict[str, Any]) -> None:
    raw = json.dumps(value, indent=1).encode() + b"\n"
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(raw), 0o600
    archive.addfile(entry, io.BytesIO(raw))


def _add(archive: tarfile.TarFile, path: Path, name: str, names: dict[tuple[int, ...], str]) -> None:
    """Add a file; one of several names is stored at the first of them."""
    with path.open("rb") as file:
        state = os.fstat(file.fileno())
        # Of a file that is removed meanwhile, another one may get the number.
        key = state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns
        first = names.setdefault(key, name) if state.st_nlink > 1 else name
        entry = archive.gettarinfo(arcname=name, fileobj=file)
        if first != name:
            entry.type, entry.linkname, entry.size = tarfile.LNKTYPE, first, 0
        archive.addfile(entry, file)


def _files(home: Path, others: set[Path], left_out: list[str]) -> Iterator[tuple[Path, str]]:
    """The files of a home for a backup, with their names in it. Links that the user made are followed."""
    waiting = [(home, PurePosixPath(), frozenset({home.resolve()}))]
    while waiting:
        folder, inside, above = waiting.pop()
        try:
            entries = sorted(folder.iterdir())
        except PermissionError:
            left_out.append(str(inside))
            continue
        for path in entries:
            name = inside / path.name
            if not inside.parts and _is_no_part(path.name):
                continue
            is_users = not inside.parts or inside.parts[0] in _USERS
            real = path.resolve()
            if path.is_symlink() and not (is_users and real.exists()):
                # A second name for what is beside it, such as RUN.md for SKILL.md, holds nothing of its own.
                if not real.exists() or real.parent != path.parent.resolve():
                    left_out.append(str(name))
            elif real in others:
                continue
            elif path.is_dir():
                if real in above or any(real in one.parents for one in above):
                    left_out.append(str(name))
                else:
                    waiting.append((path, name, above | {real}))
            elif path.is_file():
                yield real, str(name)


def _is_no_part(name: str) -> bool:
    """Whether an entry of the home is left out: a database, of which there is a copy, and what is not the user's."""
    is_database = ".db-" in name or name.endswith((".db", ".backup")) or ".db." in name
    return is_database or name in (*_LEFT_OUT, *_OWN) or name.startswith(_BESIDE)


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
            if (
                manifest["satchel-backup"] not in range(1, _FORMAT + 1)
                or manifest.get("schema") not in REVISIONS
            ):
                raise StorageTooNew(
                    f"A newer version of Satchel wrote the backup {path} (schema {manifest.get('schema')!r}; this "
                    f"version supports up to {HEAD!r}). Upgrade Satchel. Nothing was changed."
                )
            ended = False
            written: dict[str, Path] = {}
            for entry in archive:
                if entry.name == _END:
                    ended = True
                if entry.name in _OWN:
                    continue
                name = PurePosixPath(entry.name)
                is_one = entry.isreg() or (entry.islnk() and entry.linkname in written)
                if not is_one or name.is_absolute() or ".." in name.parts or not name.parts:
                    raise StorageCorrupt(
                        f"{path} contains {entry.name!r}, which does not belong in a backup. Nothing was changed."
                    )
                place = target.joinpath(*name.parts)
                place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                if entry.islnk():
                    linked(written[entry.linkname], place)
                    count += 1
                    continue
                size += entry.size
                content = archive.extractfile(entry)
                if content is None or size > _MAX_BYTES:
                    raise StorageCorrupt(f"{path} can't be unpacked. Nothing was changed.")
                mode = 0o700 if entry.mode & 0o100 else 0o600
                descriptor = os.open(
                    place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode
                )
                with os.fdopen(descriptor, "wb") as out:
                    shutil.copyfileobj(content, out, 1 << 20)
                os.utime(place, (entry.mtime, entry.mtime))
                written[entry.name] = place
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
