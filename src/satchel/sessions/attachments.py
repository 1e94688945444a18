"""Files that the user attaches to messages: sent first, then kept beside the log of their session."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final
from uuid import uuid4

from satchel.errors import NotFound, StorageCorrupt, StorageUnwritable, UsageError
from satchel.messages import FileBlock
from satchel.tools.kept import kept_path, media_type_of, write_kept

MOST_BYTES: Final = 15 << 20
"""Of one file. Anthropic takes requests of 32 MB, and base64 makes four bytes of three."""
MOST_FILES: Final = 20
"""Of one message."""

KEPT: Final = timedelta(days=1)
"""How long a file waits for its message."""
_MOST_NAME: Final = 120


class Uploads:
    """Files that were sent and are in no message yet, by the hash of their bytes. All methods block.

    One that was sent twice is there twice, so that whoever drops theirs takes nobody else's away.
    """

    def __init__(self, home: Path) -> None:
        """Take the home; the folder is created with the first file."""
        self._folder = uploads_folder(home)

    def add(self, pieces: Iterable[bytes], *, name: str, now: datetime) -> FileBlock:
        """Keep a file until its message comes, for a day at most. Not more than one piece is in memory. A `name` that
        is a path loses its folders.

        Raises:
            UsageError: It is empty, or longer than `MOST_BYTES`; nothing is kept.
            StorageUnwritable: It can't be stored; nothing is kept.
        """
        digest, size = hashlib.sha256(), 0
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._sweep(now)
            handle, temporary = tempfile.mkstemp(dir=self._folder, prefix=".")
            try:
                with os.fdopen(handle, "wb") as file:
                    for piece in pieces:
                        size += len(piece)
                        if size > MOST_BYTES:
                            raise UsageError(f"A file may have {MOST_BYTES >> 20} MB at most.")
                        digest.update(piece)
                        file.write(piece)
                if not size:
                    raise UsageError("The file is empty.")
                media_type = media_type_of(Path(temporary).read_bytes())
                Path(temporary).replace(self._folder / upload_key(digest.hexdigest()))
            except BaseException:
                Path(temporary).unlink(missing_ok=True)
                raise
        except OSError as error:
            raise StorageUnwritable(
                f"The file can't be stored in {self._folder}: {error.strerror}."
            ) from error
        return FileBlock(sha256=digest.hexdigest(), media_type=media_type, name=plain_name(name), size=size)

    def take(self, files: Iterable[FileBlock], spill_dir: Path) -> list[FileBlock]:
        """Copy files to a session, and return them as they are: size and type are never what a client says.

        Raises:
            NotFound: One was never sent, or has waited too long.
            StorageCorrupt: One is not what was sent.
            StorageUnwritable: It can't be copied.
        """
        taken = []
        for file in files:
            content = self._content(file) if _has_hash(file) else None
            if content is None:
                raise NotFound(f"The file {file.name[:80]!r} isn't here any more. Send it again.")
            if hashlib.sha256(content).hexdigest() != file.sha256:
                raise StorageCorrupt(f"The file {file.name[:80]!r} isn't what was sent. Send it again.")
            true = FileBlock(
                sha256=file.sha256,
                media_type=media_type_of(content),
                name=plain_name(file.name),
                size=len(content),
            )
            try:
                write_kept(kept_path(spill_dir, true), content)
            except OSError as error:
                raise StorageUnwritable(f"{true.name} can't be stored: {error.strerror}.") from error
            taken.append(true)
        return taken

    def drop(self, files: Iterable[FileBlock]) -> None:
        """Forget files whose message is on its way: the session has copies."""
        for file in filter(_has_hash, files):
            self._drop(file)

    def _drop(self, file: FileBlock) -> bool:
        """Forget one that was sent; whether there was one."""
        for place in self._places(file):
            with suppress(OSError):
                place.unlink()
                return True
        return False

    def _content(self, file: FileBlock) -> bytes | None:
        for place in self._places(file):
            with suppress(FileNotFoundError):  # another message has just taken that one
                return place.read_bytes()
        return None

    def _places(self, file: FileBlock) -> Iterator[Path]:
        """Where those that were sent are."""
        return self._folder.glob(f"{file.sha256}*")

    def _sweep(self, now: datetime) -> None:
        for path in self._folder.iterdir():
            with suppress(OSError):
                if now.timestamp() - path.stat().st_mtime > KEPT.total_seconds():
                    path.unlink()


def _has_hash(file: FileBlock) -> bool:
    """Whether what a client calls the hash can be one, and not a pattern or a path."""
    return len(file.sha256) == hashlib.sha256().digest_size * 2 and file.sha256.isalnum()


def upload_key(sha256: str) -> str:
    """The name of what was sent now."""
    return f"{sha256}-{uuid4().hex}"


def uploads_folder(home: Path) -> Path:
    """Where files wait. What is older than a day is removed when the next one comes."""
    return home / "uploads"


def plain_name(name: str) -> str:
    """The last part of a path, on one line."""
    last = name.replace("\\", "/").rstrip("/").rpartition("/")[2]
    return "".join(c for c in last if c.isprintable())[-_MOST_NAME:].strip() or "file"
