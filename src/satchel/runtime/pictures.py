"""The files of pictures that the user sent, and that memory knows."""

from __future__ import annotations

from pathlib import Path

from satchel.memory import MemoryRecord
from satchel.memory.records import PICTURE
from satchel.tools.kept import FOLDER

__all__ = ["files_of_picture", "picture_file"]


def picture_file(home: Path, record: MemoryRecord) -> Path | None:
    """Where the file of a picture is, of what is remembered of it; None if it is no picture, or the file is gone."""
    hashes = [tag.partition(":")[2] for tag in record.tags if tag.startswith(f"{PICTURE}:")]
    session = record.source.session
    if record.source.position is None or session is None or not hashes:
        return None
    found = files_of_picture(home, hashes[0], session=session)
    return next((path for path in found if path.suffix != ".txt"), None)


def files_of_picture(home: Path, sha: str, *, session: str = "") -> list[Path]:
    """Its copies and its descriptions, by the first 16 digits of its hash, in one conversation or in all. Blocks."""
    if not sha.isalnum() or not session.replace("-", "a").isalnum() and session:
        return []
    return sorted((home / "sessions").glob(f"*/*{session}.spill/{FOLDER}/{sha}-*"))
