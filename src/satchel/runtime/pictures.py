"""The files of pictures that the user sent, and that memory knows."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import anyio.to_thread

from satchel.memory import MemoryRecord
from satchel.memory.records import PICTURE
from satchel.runtime.documents import digest_of
from satchel.sessions import SessionStore
from satchel.tools.kept import FOLDER

__all__ = ["files_beside", "files_of_picture", "picture_file"]


async def picture_file(sessions: SessionStore, record: MemoryRecord) -> Path | None:
    """Where the file of a picture is, of what is remembered of it; None if it is no picture, or the file is gone.

    Raises:
        StorageError: It can't be read from the server.
    """
    return await anyio.to_thread.run_sync(_picture_of, await files_beside(sessions, record))


def _picture_of(paths: Sequence[Path]) -> Path | None:
    for path in paths:
        with suppress(OSError):  # it was forgotten meanwhile
            # The others are its description and a smaller copy, which have its hash in their names.
            if path.name.startswith(digest_of(path)[0][:16]):
                return path
    return None


async def files_beside(sessions: SessionStore, record: MemoryRecord) -> list[Path]:
    """Its copies and its descriptions in the conversation that it was sent in, of what is remembered of it."""
    hashes = [tag.partition(":")[2] for tag in record.tags if tag.startswith(f"{PICTURE}:")]
    session = record.source.session
    if record.source.position is None or session is None or not hashes:
        return []
    return await files_of_picture(sessions, hashes[0], session=session, fetches=True)


async def files_of_picture(
    sessions: SessionStore, sha: str, *, session: str = "", fetches: bool = False
) -> list[Path]:
    """Its copies and its descriptions, by the first 16 digits of its hash, in one conversation or in all."""
    if not sha.isalnum() or not session.replace("-", "a").replace(":", "a").isalnum() and session:
        return []
    return await sessions.files_beside(f"{FOLDER}/{sha}-", session, fetches=fetches)
