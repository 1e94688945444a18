"""A version's files as a zip archive: always the same bytes for the same files, and read without trust."""

from __future__ import annotations

import io
import stat
import zipfile
import zlib
from collections.abc import Mapping
from typing import Final

from satchel.capabilities.package import LINK, SKILL
from satchel.errors import UsageError

_MAX_ENTRIES: Final = 200
_MAX_FILE: Final = 1_000_000
_MAX_TOTAL: Final = 4_000_000
"""Bytes when unpacked; the limits of a package."""
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip archive can hold."""
_UNIX: Final = 3


def pack(files: Mapping[str, bytes], *, folder: str = "") -> bytes:
    """The files as a zip archive. In the archive they are in `folder`; "" puts them at its top."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path in sorted(files):
            entry = zipfile.ZipInfo(f"{folder}/{path}" if folder else path, date_time=_EPOCH)
            entry.create_system = _UNIX
            entry.external_attr = (stat.S_IFREG | 0o644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, files[path])
    return buffer.getvalue()


def unpack(content: bytes) -> dict[str, bytes]:
    """The regular files of a zip archive, without the one folder that may contain them all.

    The sizes are counted while the files are unpacked, because what the archive says about them may be wrong. A link
    named `RUN.md` to `SKILL.md` is left out.

    Raises:
        UsageError: It is not a zip archive, or contains what no capability does: links, paths that lead out of it,
            more or larger files than a capability may have.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = archive.infolist()
            if len(entries) > _MAX_ENTRIES:
                raise UsageError(
                    f"The archive has {len(entries):,} entries; at most {_MAX_ENTRIES} are allowed."
                )
            files: dict[str, bytes] = {}
            left = _MAX_TOTAL
            for entry in entries:
                if entry.is_dir() or _is_own_link(archive, entry):
                    continue
                path = _safe(entry)
                if path in files:
                    raise UsageError(f"The archive contains {path!r} twice.")
                files[path] = _content(archive, entry, min(left, _MAX_FILE))
                left -= len(files[path])
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        NotImplementedError,
        RuntimeError,
        ValueError,
        OSError,
    ) as error:
        raise UsageError(f"The zip archive can't be read ({error}).") from None
    return _without_folder(files)


def _is_own_link(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bool:
    is_link = stat.S_ISLNK(entry.external_attr >> 16)
    named = entry.filename.rpartition("/")[2] == LINK
    return is_link and named and entry.file_size == len(SKILL) and archive.read(entry) == SKILL.encode()


def _safe(entry: zipfile.ZipInfo) -> str:
    path = entry.filename
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if kind not in (0, stat.S_IFREG):
        raise UsageError(f"The archive contains {path[:80]!r}, which is a link or another special file.")
    parts = path.split("/")
    if "\\" in path or "\0" in path or path.startswith("/") or any(part in ("", ".", "..") for part in parts):
        raise UsageError(f"The archive contains {path[:80]!r}, a path that may lead out of it.")
    if entry.flag_bits & 0x1:
        raise UsageError("The archive is encrypted.")
    return path


def _content(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, limit: int) -> bytes:
    with archive.open(entry) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise UsageError(
            f"The files in the archive are larger than a capability may have ({entry.filename[:80]!r})."
        )
    return content


def _without_folder(files: Mapping[str, bytes]) -> dict[str, bytes]:
    first = {path.partition("/")[0] for path in files}
    if len(first) == 1 and all("/" in path for path in files):
        return {path.partition("/")[2]: content for path, content in files.items()}
    return dict(files)
