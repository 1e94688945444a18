"""Files of a session that models may be shown: attached by the user, or returned by a tool. They are beside its log."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from mimetypes import guess_extension
from pathlib import Path
from typing import Final

from satchel.config.home import replacing
from satchel.messages import MOST_TEXT, FileBlock, clean_text
from satchel.wording import cut_text

FOLDER: Final = "attached"
"""Below the folder of the session's long results, with which the files are deleted, backed up and shown."""

_MAGIC: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"OggS", "audio/ogg"),
    (b"ID3", "audio/mpeg"),
    (b"fLaC", "audio/flac"),
    (b"II*\0", "image/tiff"),
    (b"MM\0*", "image/tiff"),
)
_RIFF: Final = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}
_FTYP: Final = {b"avif": "image/avif", b"heic": "image/heic", b"heix": "image/heic", b"mif1": "image/heif"}
"""The brands of pictures in ISO's container of media, which phones write; other brands are films."""
HEIF: Final = frozenset({"image/heic", "image/heif"})
"""Pictures that Pillow reads with pillow-heif only."""

_OPEN: Final = "application/vnd.oasis.opendocument"
_OFFICE: Final = "application/vnd.openxmlformats-officedocument"
_SUFFIXES: Final = {
    "application/epub+zip": ".epub",
    "text/markdown": ".md",
    f"{_OPEN}.presentation": ".odp",
    f"{_OPEN}.spreadsheet": ".ods",
    f"{_OPEN}.text": ".odt",
    f"{_OFFICE}.presentationml.presentation": ".pptx",
    f"{_OFFICE}.spreadsheetml.sheet": ".xlsx",
    f"{_OFFICE}.wordprocessingml.document": ".docx",
}
"""The documents that Python's own table lacks, which is the only one where the system has no mime.types."""


def media_type_of(content: bytes) -> str:
    """What bytes are, by the bytes alone: a type that is shown, "text/plain", or "application/octet-stream"."""
    for start, media_type in _MAGIC:
        if content.startswith(start):
            return media_type
    if content[:4] == b"RIFF" and content[8:12] in _RIFF:
        return _RIFF[content[8:12]]
    if content[4:8] == b"ftyp" and content[8:12] in _FTYP:
        return _FTYP[content[8:12]]
    if content[:2] == b"BM" and content[6:10] == b"\0\0\0\0":
        return "image/bmp"
    if b"\0" not in content:
        with suppress(UnicodeDecodeError):
            content.decode()
            return "text/plain"
    return "application/octet-stream"


def suffix_of(media_type: str) -> str:
    """The suffix, with its dot, that files of a type have; "" for an unknown type."""
    kind = media_type.partition(";")[0].strip().lower()
    return _SUFFIXES.get(kind) or guess_extension(kind) or ""


def kept_path(spill_dir: Path, file: FileBlock) -> Path:
    """Where the copy of a file is that belongs to a session."""
    return spill_dir / FOLDER / file.file_name


class SharedFiles:
    """The files beside all logs of a home, by their bytes. A file that several conversations have is on the disk once,
    under a name for each (a hard link), so it is gone with the last of them, and nothing else counts them.
    """

    def __init__(self, sessions: Path) -> None:
        """Take the folder of the logs. It is looked through before the first file is written."""
        self._sessions = sessions
        self._known: dict[tuple[str, int], Path] | None = None

    def write(self, path: Path, content: bytes) -> None:
        """Write a copy as `write_kept` does, or give the file that has these bytes another name. Blocks.

        Raises:
            OSError: It can't be written.
        """
        if self._known is None:
            self._known = {}
            for file in self._sessions.glob(f"*/*.spill/{FOLDER}/*"):
                with suppress(OSError):  # its conversation is just being deleted
                    self._known[_key(file, file.stat().st_size)] = file
        key = _key(path, len(content))
        for known in (path, self._known.get(key)):
            with suppress(OSError):
                if known is not None and known.read_bytes() == content:
                    if known != path:
                        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                        os.link(known, path)
                    break
        else:
            write_kept(path, content)
        self._known[key] = path


def _key(path: Path, size: int) -> tuple[str, int]:
    """What names the bytes of a copy: the beginning of their hash, which begins its name, and their number."""
    return path.name.partition("-")[0], size


def keep(
    spill_dir: Path,
    name: str,
    content: bytes,
    *,
    text: str = "",
    write: Callable[[Path, bytes], None] | None = None,
) -> FileBlock:
    """Keep a file that belongs to a tool's result. Blocks. `text` is what a model gets that takes no documents; `write`
    writes it (`write_kept`).

    Raises:
        OSError: It can't be written.
    """
    digest = hashlib.sha256(content).hexdigest()
    file = FileBlock(
        sha256=digest,
        media_type=media_type_of(content),
        # A copy that is opened again keeps its name.
        name=name.removeprefix(f"{digest[:16]}-"),
        size=len(content),
    )
    (write or write_kept)(kept_path(spill_dir, file), content)
    if text:
        write_text(spill_dir, file, text)
    return with_text_size(spill_dir, file)


def keep_seen(
    spill_dir: Path, contents: Mapping[str, bytes], *, others: bool = False
) -> tuple[FileBlock, ...]:
    """Keep those of the files that models can be shown, by their paths, and with `others` the rest; see `keep`."""
    return tuple(
        keep(spill_dir, Path(path).name, content)
        for path, content in contents.items()
        if others or media_type_of(content).startswith(("image/", "application/pdf"))
    )


def with_text_size(spill_dir: Path, file: FileBlock) -> FileBlock:
    """The file with the size of the text that is beside it. Blocks."""
    with suppress(OSError):
        return replace(file, text_size=kept_path(spill_dir, file.text_twin).stat().st_size)
    return file


def write_kept(path: Path, content: bytes) -> None:
    """Write a copy that only its owner can read. It is on the disk before the log can name it. Blocks.

    Raises:
        OSError: It can't be written.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with replacing(path) as copy:
        copy.write(content)


def write_text(spill_dir: Path, file: FileBlock, text: str) -> None:
    """Write the text of a document beside it: as much as models are ever sent, and how much is left out. Blocks.

    Raises:
        OSError: It can't be written.
    """
    sent = cut_text(text, MOST_TEXT - 100, what="more characters; a tool can read them")
    write_kept(kept_path(spill_dir, file.text_twin), clean_text(sent).encode())
