"""Finds the files of an import in a folder or an archive, and opens them as UTF-8 streams within limits.

Archives are never unpacked to the disk, so the names in them are not used as paths.
"""

from __future__ import annotations

import codecs
import io
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO, TypeAlias

from satchel.errors import NotFound, StorageError
from satchel.memory.transfer.parts import LeftOut

if TYPE_CHECKING:
    from zipfile import ZipFile

    from _typeshed import WriteableBuffer

_MAX_UNPACKED = 16 << 30
"""Bytes of one file in an archive. An export of ten years of conversations has a few hundred megabytes."""
_MAX_RATIO = 200
"""The limit of the compression ratio: conversations as JSON reach 10, very repetitive ones 50, and bombs 1,000."""
_RATIO_APPLIES_FROM = 64 << 20
_MAX_RATIO_BESIDE = 60
"""The same of all files together that conversations name, such as pictures: they hardly get smaller, but each branch of
a conversation has a copy, and there may be fifty.
"""
_MAX_MEMBERS = 100_000
_MAX_BESIDE = 64 << 20
_SUFFIXES = (".jsonl", ".json", ".md", ".markdown", ".zip", ".ndjson")
_HIDDEN = ("node_modules", "__pycache__")
_OpenArchive: TypeAlias = "Callable[[Path], ZipFile]"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """A file to import.

    Attributes:
        name: The name in messages: relative to the folder or archive.
        size: Bytes on the disk; for a file in an archive, its compressed size.
        opened: Opens it for buffered reading.
        others: What reads the other files of its archive or folder, by the last components of their names.
    """

    name: str
    size: int
    modified_at: datetime
    opened: Callable[[], io.BufferedReader]
    others: Callable[[], Mapping[str, Callable[[], bytes]]] = field(default=dict)

    @property
    def base(self) -> str:
        """The last component of its name."""
        return self.name.replace("\\", "/").rpartition("/")[2]

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """Open it as UTF-8; UTF-16 and UTF-32 are detected and converted."""
        with self.opened() as raw:
            encoding = json.detect_encoding(raw.peek(4)[:4])
            yield raw if encoding == "utf-8" else io.BufferedReader(_Recoded(raw, encoding), 1 << 20)


class _Recoded(io.RawIOBase):
    """A stream in another encoding as UTF-8; invalid input becomes U+FFFD."""

    def __init__(self, raw: BinaryIO, encoding: str) -> None:
        texts = codecs.iterdecode(iter(partial(raw.read, 1 << 16), b""), encoding, "replace")
        self._chunks = codecs.iterencode(texts, "utf-8", "replace")
        self._ready = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        room = memoryview(buffer)
        self._ready = self._ready or next(self._chunks, b"")
        found = self._ready[: len(room)]
        self._ready = self._ready[len(found) :]
        room[: len(found)] = found
        return len(found)


class _Guarded(io.RawIOBase):
    """A file in an archive that raises `OSError` when it unpacks to more than is plausible."""

    def __init__(self, raw: IO[bytes], packed: int) -> None:
        self._raw, self._packed, self._read = raw, max(1, packed), 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        room = memoryview(buffer)
        found = self._raw.read(len(room))
        self._read += len(found)
        if self._read > _MAX_UNPACKED or (
            self._read > _RATIO_APPLIES_FROM and self._read / self._packed > _MAX_RATIO
        ):
            raise OSError("it unpacks to far more than is plausible")
        room[: len(found)] = found
        return len(found)

    def close(self) -> None:
        self._raw.close()
        super().close()


def name_of(path: Path, root: Path) -> str:
    """The name of a file in messages: relative to the root, or its own if it is the root."""
    return path.name if path == root else path.relative_to(root).as_posix()


def find_files(root: Path) -> Iterator[SourceFile | LeftOut]:
    """The files to import, sorted by name.

    Args:
        root: A file, an archive, or a folder, which is searched recursively. Links in it are not followed.

    Raises:
        NotFound: The path doesn't exist.
        StorageError: It can't be read, or is neither a file nor a folder.
    """
    try:
        kind = root.stat()
    except FileNotFoundError:
        raise NotFound(f"There is no file or folder {str(root)!r} to import.") from None
    except (OSError, ValueError) as error:
        raise StorageError(f"{root} can't be read: {error}. Nothing was imported.") from error
    # The last one stays open: to open it anew reads the names of all its files. It is closed with its last reference.
    open_archive = lru_cache(maxsize=1)(_open_archive)
    if not stat.S_ISDIR(kind.st_mode):
        if not stat.S_ISREG(kind.st_mode):
            raise StorageError(f"{root} is neither a file nor a folder. Nothing was imported.")
        yield from _file(root, root, kind, open_archive)
        return
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _HIDDEN)
        for name in sorted(names):
            if not name.lower().endswith(_SUFFIXES):
                continue
            path = Path(folder, name)
            try:
                found = path.lstat()
            except OSError:
                continue  # it was deleted meanwhile
            if stat.S_ISLNK(found.st_mode):
                yield LeftOut(
                    reason="a link, which is not followed", where=name_of(path, root), expected=True
                )
            elif stat.S_ISREG(found.st_mode):
                yield from _file(path, root, found, open_archive)


def _open_archive(path: Path) -> ZipFile:
    # Imported when used: it loads all decompressors, and few imports need it.
    import zipfile  # noqa: PLC0415

    return zipfile.ZipFile(path)


def _file(
    path: Path, root: Path, found: os.stat_result, open_archive: _OpenArchive
) -> Iterator[SourceFile | LeftOut]:
    name = name_of(path, root)
    modified = datetime.fromtimestamp(found.st_mtime, UTC).astimezone()
    if path.suffix.lower() == ".zip":
        yield from _members(path, name, open_archive)
        return
    yield SourceFile(
        name=name,
        size=found.st_size,
        modified_at=modified,
        opened=lambda: io.BufferedReader(path.open("rb", buffering=0), 1 << 20),
        others=cache(
            lambda: {
                name: partial(_read_beside, Path(folder, name))
                for folder, _, names in (
                    [next(os.walk(path.parent))] if path == root else os.walk(path.parent)
                )
                for name in names
                if not Path(folder, name).is_symlink()
            }
        ),
    )


def _read_beside(path: Path) -> bytes:
    """A plain file beside an export. Where a link was put meanwhile, and for a pipe, nothing is waited for."""
    with open(path, "rb", opener=_without_links) as file:
        state = os.fstat(file.fileno())
        if not stat.S_ISREG(state.st_mode) or state.st_size > _MAX_BESIDE:
            raise OSError("It is no plain file, or too large.")
        return file.read()


def _without_links(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)


def _members(path: Path, name: str, open_archive: _OpenArchive) -> Iterator[SourceFile | LeftOut]:
    import zipfile  # noqa: PLC0415
    import zlib  # noqa: PLC0415

    try:
        members = open_archive(path).infolist()
    except (zipfile.BadZipFile, OSError, NotImplementedError, ValueError) as error:
        yield LeftOut(reason="an archive that can't be read", where=f"{name}: {error}")
        return
    if len(members) > _MAX_MEMBERS:
        yield LeftOut(reason=f"an archive of more than {_MAX_MEMBERS:,} files", where=name)
        return

    packed, unpacked = path.stat().st_size, 0
    if sum(one.compress_size for one in members) > packed:
        # A few bytes can be in thousands of files then, each of which unpacks to what is plausible.
        yield LeftOut(reason="an archive whose files overlap", where=name)
        return

    def opened(one: zipfile.ZipInfo) -> io.BufferedReader:
        return io.BufferedReader(_Guarded(open_archive(path).open(one), one.compress_size), 1 << 20)

    def read(one: zipfile.ZipInfo) -> bytes:
        nonlocal unpacked
        # Each may be small enough, and all together a bomb: what they unpack to is kept beside the conversations.
        if unpacked + one.file_size > max(_RATIO_APPLIES_FROM, _MAX_RATIO_BESIDE * packed):
            raise OSError("The files of this archive unpack to far more than is plausible.")
        unpacked += one.file_size
        try:
            with opened(one) as stream:
                return stream.read()
        except (zipfile.BadZipFile, zlib.error, RuntimeError, EOFError) as error:
            raise OSError(str(error)) from error

    @cache
    def others() -> Mapping[str, Callable[[], bytes]]:
        return {
            one.filename.rpartition("/")[2]: partial(read, one)
            for one in members
            if one.file_size <= _MAX_BESIDE
        }

    for member in sorted(members, key=lambda one: one.filename):
        if member.is_dir() or not member.filename.lower().endswith(_SUFFIXES[:-2] + _SUFFIXES[-1:]):
            continue
        inner = f"{name}/{member.filename}"
        if member.flag_bits & 1:
            yield LeftOut(reason="encrypted with a password", where=inner)
            continue
        try:
            modified = datetime(*member.date_time).astimezone()
        except (ValueError, OverflowError):
            modified = datetime.fromtimestamp(path.stat().st_mtime, UTC).astimezone()

        yield SourceFile(
            name=inner,
            size=member.compress_size,
            modified_at=modified,
            opened=partial(opened, member),
            others=others,
        )
