"""`/memories/documents`: the documents that are remembered; sent, read at a place, and forgotten."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import quote

from anyio.to_thread import run_sync
from fastapi import APIRouter, Request
from starlette.responses import Response

from satchel.errors import NotFound, UsageError
from satchel.memory import Memory, StoredDocument
from satchel.runtime.documents import kept_document
from satchel.runtime.lines import counted
from satchel.runtime.projects import project_of
from satchel.runtime.watching import folder_line, unwatch, watch, watched
from satchel.server.pages.queries import FieldReader, part_of
from satchel.server.pages.rendering import Saying, form_of
from satchel.server.pages.site import page, see_other
from satchel.server.service import Serves, Service

router = APIRouter(include_in_schema=False)

_PAGE: Final = 50


@router.get("/memories/documents")
async def documents(request: Request, service: Serves) -> Response:
    """All of them, with a field to send one."""
    asked = FieldReader.of(request)
    part = part_of(asked, "/memories/documents", _PAGE, await service.memory.documents())
    return await page(
        request,
        "documents.html",
        title="Documents",
        status=asked.status,
        part=part,
        folders=await watched(service.satchel.home, service.memory),
        folder_line=folder_line,
        sent=[one.path for one in part.shown if sent_file(service, one)],
    )


@router.get("/memories/documents/read")
async def read(request: Request, service: Serves) -> Response:
    """The passages of one in order. Each has its memory's id as its anchor."""
    asked = FieldReader.of(request)
    memory, document = await _document(service, asked.text("source"))
    passages = await memory.list(session=document.source, limit=document.passages)
    ordered = sorted(passages, key=lambda one: one.source.position or 0)
    at_id = asked.text("at")
    place = next((at for at, one in enumerate(ordered) if one.id == at_id), 0)
    asked.values = {"source": document.source, "page": asked.text("page") or str(place // _PAGE + 1)}
    part = part_of(asked, "/memories/documents/read", _PAGE, ordered)
    return await page(
        request,
        "document.html",
        title=document.title,
        status=asked.status,
        document=document,
        part=part,
        at_id=at_id,
        is_kept=sent_file(service, document) is not None,
        project=service.satchel.home.projects.get(project_of(memory.scope)),
    )


@router.get("/memories/documents/file")
async def file(service: Serves, source: str) -> Response:
    """The bytes of one that was sent, as a download: a browser runs nothing of it."""
    _, document = await _document(service, source)
    kept = sent_file(service, document)
    if kept is None:
        raise NotFound("Satchel has only the words of this document.")
    return Response(
        await run_sync(kept.read_bytes),
        media_type="application/octet-stream",
        headers={
            "content-security-policy": "default-src 'none'; sandbox",
            "cache-control": "private, no-store",
            "content-disposition": f"attachment; filename*=UTF-8''{quote(kept.name, safe='')}",
        },
    )


@router.post("/memories/documents/forget")
async def forget(request: Request, service: Serves) -> Response:
    """Forget one: its passages, their words elsewhere, and the file if it was sent."""
    memory, document = await _document(service, (await form_of(request)).get("source"))
    receipt = await service.satchel.forget(session=document.source)
    text = f"Forgotten: “{document.title}”, {counted(len(receipt.store.forgotten), 'passage')}."
    project = project_of(memory.scope)
    back = f"/projects/{project}" if project else "/memories/documents"
    return see_other(request, back, say=Saying(text=text))


@router.post("/memories/documents/watch")
async def watch_folder(request: Request, service: Serves) -> Response:
    """Watch a folder of the server's machine, or stop that."""
    form = await form_of(request)
    path = form.get("folder").strip()
    if form.get("stop"):
        removed = await unwatch(service.satchel.home, service.memory, path, remove=bool(form.get("remove")))
        text = (
            f"{path} is not watched any more. {counted(removed, 'document was', 'documents were')} removed."
        )
    else:
        if not path.startswith("/"):
            raise UsageError(
                "Give the whole path of a folder of the server's machine, beginning with a slash."
            )
        await run_sync(watch, service.satchel.home, Path(path))
        service.satchel.watching.wake()
        text = f"{path} is watched. Its documents are read in the background."
    return see_other(request, "/memories/documents", say=Saying(text=text))


async def _document(service: Service, source: str) -> tuple[Memory, StoredDocument]:
    """A document with the memory that has it: the user's own, or that of a project."""
    for memory in await service.satchel.home.memories():
        for one in await memory.documents():
            if one.source == source:
                return memory, one
    raise NotFound("This document is not remembered, or it was replaced by a newer version.")


def sent_file(service: Service, document: StoredDocument) -> Path | None:
    """Where the bytes of a document are that was sent; None for one of the user's own folders."""
    path = kept_document(service.satchel.settings.home, document.path)
    return path if path is not None and path.is_file() else None
