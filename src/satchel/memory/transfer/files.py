"""The files of an import: found in a folder or an archive, read as streams of UTF-8, within limits.

Nothing of an archive is ever written to the disk, so the names in it are names and never paths.
"""

from __future__ import annotations

import codecs
import io
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from satchel.errors import NotFound, StorageError
from satchel.memory.transfer.pieces import Left

__all__ = ["Original", "TooMuch", "find_files", "name_of"]

_MAX_UNPACKED = 16 << 30
"""Bytes of one file in an archive: an export of ten years of talking has some hundred megabytes."""
_MAX_RATIO = 200
"""JSON of conversations shrinks to a tenth, of the most repetitive kind to a fiftieth; bombs to a thousandth."""
_RATIO_COUNTS_FROM = 64 << 20
_MAX_MEMBERS = 100_000
_SUFFIXES = (".jsonl", ".json", ".md", ".markdown", ".zip", ".ndjson")
_HIDDEN = ("node_modules", "__pycache__")


class TooMuch(Exception):
    """A file in an archive unpacks to more than it can honestly hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Original:
    """One file to be imported.

    Attributes:
        name: As it is told to people; `stem` is its last part.
        size: Bytes on the disk; of a file in an archive, its share of them.
        modified_at: When it was changed last.
        opened: Opens it for reading, from its beginning.
    """

    name: str
    size: int
    modified_at: datetime
    opened: Callable[[], BinaryIO]

    @property
    def base(self) -> str:
        """The last part of its name."""
        return self.name.replace("\\", "/").rpartition("/")[2]

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """Its bytes as UTF-8, whatever they are in: marks at the beginning tell UTF-16 and UTF-32."""
        with self.opened() as raw:
            head = raw.read(4)
            rest = _Joined(head, raw)
            encoding = _marked(head)
            if encoding is None:
                if head.startswith(codecs.BOM_UTF8):
                    rest = _Joined(head[3:], raw)
                yield io.BufferedReader(rest, 1 << 20)
            else:
                yield io.BufferedReader(_Recoded(rest, encoding), 1 << 20)


def _marked(head: bytes) -> str | None:
    """The encoding that a mark at the beginning tells, or that NUL bytes give away."""
    if head.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "utf-32"
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if len(head) == 4 and head[1] == head[3] == 0 and head[0] and head[2]:
        return "utf-16-le"
    if len(head) == 4 and head[0] == head[2] == 0 and head[1] and head[3]:
        return "utf-16-be"
    return None


class _Joined(io.RawIOBase):
    """Bytes that were read already, and then the rest of the stream."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self._head, self._rest = head, rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        found = self._head[: len(buffer)] or self._rest.read(len(buffer))
        self._head = self._head[len(found) :] if self._head else b""
        buffer[: len(found)] = found
        return len(found)


class _Recoded(io.RawIOBase):
    """A stream in another encoding, as UTF-8; what can't be read becomes U+FFFD."""

    def __init__(self, raw: _Joined, encoding: str) -> None:
        self._raw, self._decoder, self._ready, self._over = (
            raw,
            codecs.getincrementaldecoder(encoding)(errors="replace"),
            b"",
            False,
        )

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        while not self._ready and not self._over:
            piece = self._raw.read(1 << 16) or b""
            self._over = not piece
            self._ready = self._decoder.decode(piece, final=self._over).encode("utf-8", "replace")
        found = self._ready[: len(buffer)]
        self._ready = self._ready[len(found) :]
        buffer[: len(found)] = found
        return len(found)


class _Guarded(io.RawIOBase):
    """A file in an archive that may not unpack to more than its packed size allows."""

    def __init__(self, raw: BinaryIO, packed: int, name: str) -> None:
        self._raw, self._packed, self._name, self._read = raw, max(1, packed), name, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        found = self._raw.read(len(buffer))
        self._read += len(found)
        if self._read > _MAX_UNPACKED or (
            self._read > _RATIO_COUNTS_FROM and self._read / self._packed > _MAX_RATIO
        ):
            raise TooMuch
        buffer[: len(found)] = found
        return len(found)

    def close(self) -> None:
        self._raw.close()
        super().close()


def name_of(path: Path, root: Path) -> str:
    """A file's name as it is told: below the folder that was given, or its own."""
    return path.name if path == root else path.relative_to(root).as_posix()


def find_files(root: Path) -> Iterator[Original | Left]:
    """The files to import, in the order of their names.

    Args:
        root: A file, an archive, or a folder, which is searched to its ends. Links in it are not followed.

    Raises:
        NotFound: There is nothing of this name.
        StorageError: It can't be read.
    """
    try:
        kind = root.stat()
    except FileNotFoundError:
        raise NotFound(f"There is no file or folder {str(root)!r} to import.") from None
    except (OSError, ValueError) as error:
        raise StorageError(f"{root} can't be read: {error}. Nothing was imported.") from error
    if not stat.S_ISDIR(kind.st_mode):
        if not stat.S_ISREG(kind.st_mode):
            raise StorageError(f"{root} is neither a file nor a folder. Nothing was imported.")
        yield from _file(root, root, kind)
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
                continue  # it went away meanwhile
            if stat.S_ISLNK(found.st_mode):
                yield Left(reason="a link, which is not followed", where=name_of(path, root), expected=True)
            elif stat.S_ISREG(found.st_mode):
                yield from _file(path, root, found)


def _file(path: Path, root: Path, found: os.stat_result) -> Iterator[Original | Left]:
    name = name_of(path, root)
    modified = datetime.fromtimestamp(found.st_mtime, UTC).astimezone()
    if path.suffix.lower() == ".zip":
        yield from _members(path, name)
        return
    yield Original(
        name=name, size=found.st_size, modified_at=modified, opened=lambda: path.open("rb", buffering=0)
    )


def _members(path: Path, name: str) -> Iterator[Original | Left]:
    """The files in an archive that may hold memories."""
    # Imported when used: few imports need it, and it loads all of the compressors.
    import zipfile  # noqa: PLC0415

    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, OSError, NotImplementedError, ValueError) as error:
        yield Left(reason="no archive that can be read", where=f"{name}: {error}")
        return
    if len(members) > _MAX_MEMBERS:
        yield Left(reason=f"an archive of more than {_MAX_MEMBERS:,} files", where=name)
        return
    for member in sorted(members, key=lambda one: one.filename):
        if member.is_dir() or not member.filename.lower().endswith(_SUFFIXES[:-2] + _SUFFIXES[-1:]):
            continue
        inner = f"{name}/{member.filename}"
        if member.flag_bits & 1:
            yield Left(reason="locked with a password", where=inner)
            continue
        try:
            modified = datetime(*member.date_time).astimezone()
        except (ValueError, OverflowError):
            modified = datetime.fromtimestamp(path.stat().st_mtime, UTC).astimezone()

        def opened(inside: str = member.filename, packed: int = member.compress_size) -> BinaryIO:
            archive = zipfile.ZipFile(path)
            try:
                return io.BufferedReader(_Guarded(archive.open(inside), packed, inside))  # type: ignore[arg-type]
            finally:
                archive.close()  # the member keeps the file open for itself

        yield Original(name=inner, size=member.compress_size, modified_at=modified, opened=opened)
