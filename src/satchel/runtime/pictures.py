"""The files of pictures that the user sent, and that memory knows."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio.to_thread

from satchel.errors import SatchelError
from satchel.events import Event, Observation
from satchel.memory import MemoryRecord
from satchel.memory.records import PICTURE
from satchel.messages import FileBlock
from satchel.runtime.documents import digest_of
from satchel.sessions import SessionStore
from satchel.tools.kept import FOLDER, kept_path

_MOST_SHOWN: Final = 5_000_000
"""Characters of base64 of a result's pictures that editors are sent; the conversation has larger ones."""


async def pictures_in(
    event: Event, read: Callable[[FileBlock], Awaitable[bytes]], *, most: int = _MOST_SHOWN
) -> list[tuple[FileBlock, str]]:
    """The pictures of a result that editors and front ends are sent, in base64; none of any other event. `most` are the
    characters of all together. A picture that would be too much is left out, and so is one that `read` can't (it may
    have been forgotten meanwhile).

    Returns:
        Each with what it is: its smaller copy where it has one.
    """
    found = []
    for file in event.files if isinstance(event, Observation) else ():
        for shown in (file.small_twin, file) if file.is_picture else ():
            with suppress(SatchelError, OSError):
                data = base64.b64encode(await read(shown)).decode("ascii")
                if shown.is_image and 0 < len(data) <= most:  # beside what is no picture, the copy is empty
                    most -= len(data)
                    found.append((shown, data))
                break
    return found


async def content_of(sessions: SessionStore, session_id: str, file: FileBlock) -> bytes:
    """The bytes of a file that is attached to a conversation, or belongs to a result in it.

    Raises:
        NotFound: There is no such conversation.
        OSError: They are gone.
        StorageError: They can't be read from the server.
    """
    folder = await sessions.folder_of(await sessions.info(session_id), f"{FOLDER}/{file.file_name}")
    return await anyio.to_thread.run_sync(kept_path(folder, file).read_bytes)


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
