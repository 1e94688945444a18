"""The files of pictures that the user sent, and that memory knows."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from satchel.memory import MemoryRecord
from satchel.memory.records import PICTURE
from satchel.runtime.documents import digest_of
from satchel.tools.kept import FOLDER

__all__ = ["files_beside", "files_of_picture", "picture_file"]


def picture_file(home: Path, record: MemoryRecord) -> Path | None:
    """Where the file of a picture is, of what is remembered of it; None if it is no picture, or the file is gone.

    Blocks.
    """
    for path in files_beside(home, record):
        with suppress(OSError):  # it was forgotten meanwhile
            # The others are its description and a smaller copy, which have its hash in their names.
            if path.name.startswith(digest_of(path)[0][:16]):
                return path
    return None


def files_beside(home: Path, record: MemoryRecord) -> list[Path]:
    """Its copies and its descriptions in the conversation that it was sent in, of what is remembered of it. Blocks."""
    hashes = [tag.partition(":")[2] for tag in record.tags if tag.startswith(f"{PICTURE}:")]
    session = record.source.session
    if record.source.position is None or session is None or not hashes:
        return []
    return files_of_picture(home, hashes[0], session=session)


def files_of_picture(home: Path, sha: str, *, session: str = "") -> list[Path]:
    """Its copies and its descriptions, by the first 16 digits of its hash, in one conversation or in all. Blocks."""
    if not sha.isalnum() or not session.replace("-", "a").replace(":", "a").isalnum() and session:
        return []
    return sorted((home / "sessions").glob(f"*/*{session}.spill/{FOLDER}/{sha}-*"))
