"""Documents in the store: passages with a common source, which come and go together."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

from sqlalchemy import func, select

from satchel.errors import NotFound
from satchel.memory.records import Moment, StoredDocument, document_path, document_source
from satchel.memory.store import forgetting, repository
from satchel.memory.store.capture import Capture
from satchel.memory.store.micros import to_micros
from satchel.memory.store.tables import memories

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from satchel.memory.store.space import Space


def documents(connection: Connection, space: int) -> list[StoredDocument]:
    """The documents that are remembered, by their paths."""
    name = memories.c.source_session
    rows = connection.execute(
        select(name, func.min(memories.c.speaker), func.count())
        # A range, so that the index serves: ";" follows ":".
        .where(memories.c.space_id == space, name >= "document:", name < "document;")
        .group_by(name)
    )
    found = [
        StoredDocument(path=path, source=source, digest=source.split(":")[2], title=title, passages=count)
        for source, title, count in rows
        if (path := document_path(source))
    ]
    return sorted(found, key=lambda one: one.path)


async def put(
    space: Space,
    path: str,
    passages: Sequence[tuple[int | None, str, str]],
    *,
    title: str,
    digest: str,
    written_at: Moment,
    again: bool,
) -> int:
    """Store a document in place of what was stored from this path; see `Memory.put_document`."""
    is_paged = any(page is not None for page, _, _ in passages)
    source = document_source(path, digest, secrets.token_hex(4), is_paged=is_paged)
    capture = Capture(space)
    name = PurePath(path).name
    drafts = []
    part, last = 0, ""
    for at, (page, heading, text) in enumerate(passages):
        part += heading != last or at == 0
        last = heading
        where = (
            heading if heading.startswith(title) else " › ".join(each for each in (title, heading) if each)
        )
        head = f"{where} ({name}, page {page})" if page is not None else f"{where} ({name})"
        draft = await capture.draft(
            f"{head}\n{text}",
            speaker=title,
            said_at=written_at,
            session=source,
            turn=page if page is not None else part,
            position=at,
            trust="outside",
        )
        if draft is not None:
            drafts.append(draft)
    now = to_micros(space.clock.now())

    def replace(connection: Connection, id: int) -> int:
        old = _sources(connection, id, path)
        if again and not old:
            raise NotFound(f"{path} was forgotten while it was read.")
        forgetting.drop_sources(connection, id, old, at=now, hasher=space.hasher)
        return len(repository.insert_drafts(connection, id, drafts, fresh=True))

    return await space.write_durably(replace)


async def remove(space: Space, sources: Sequence[str]) -> None:
    """Remove documents; see `Memory.remove_documents`."""
    now = to_micros(space.clock.now())
    await space.write_durably(
        lambda connection, id: forgetting.drop_sources(connection, id, sources, at=now, hasher=space.hasher)
    )


def _sources(connection: Connection, space: int, path: str) -> list[str]:
    """The sources of the document at a path: one, or none.

    `documents` has them as well, but counts all passages: among ten thousand documents, 30 ms of a processor for each.
    """
    name = memories.c.source_session
    rows = connection.execute(
        select(name)
        .distinct()
        .where(
            memories.c.space_id == space,
            name >= "document:",
            name < "document;",
            name.endswith(f":{path}", autoescape=True),
        )
    )
    return [source for (source,) in rows if document_path(source) == path]
