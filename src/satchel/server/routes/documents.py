"""`/api/memory/documents`: documents as memories."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from anyio.to_thread import run_sync
from fastapi import Query, Request
from starlette.responses import Response

from satchel.memory import StoredDocument
from satchel.runtime.documents import DocumentOutcome, add_documents, document_named
from satchel.runtime.watching import WatchedFolder, unwatch, watch, watched
from satchel.server import shapes
from satchel.server.json_answers import JsonAnswer
from satchel.server.routes.documented import api_router
from satchel.server.service import InProject, Serves

router = api_router(tags=["memory"])


@router.get("/api/memory/documents", response_model=list[StoredDocument], summary="List documents")
async def list_documents(service: Serves, project: InProject = "") -> Response:
    """List the documents that are remembered."""
    memory = await service.memory_named(project)
    return JsonAnswer([asdict(one) for one in await memory.documents()])


@router.post("/api/memory/documents", response_model=list[DocumentOutcome], summary="Remember documents")
async def add(service: Serves, request: shapes.NewDocuments) -> Response:
    """Remember files and folders of the server's machine. It answers when all are read; a file that could not be read
    has the outcome "failed", and the reason.
    """
    paths = [Path(path) for path in request.paths]
    sandboxes = service.satchel.parts.sandboxes
    outcomes = await add_documents(paths, memory=service.memory, sandboxes=sandboxes)
    return JsonAnswer([asdict(one) for one in outcomes])


@router.post("/api/memory/documents/sent", response_model=DocumentOutcome, summary="Send a document")
async def send(
    service: Serves,
    request: Request,
    filename: Annotated[str, Query(max_length=1_000, description="Its ending says what kind it is.")],
    project: InProject = "",
) -> Response:
    """Remember the body, at most 15 MB. Satchel keeps it until a passage of it is forgotten."""
    content = await request.body()
    return JsonAnswer(asdict(await service.remember(content, filename, project=project)))


@router.delete("/api/memory/documents", response_model=shapes.ReceiptResponse, summary="Forget a document")
async def forget(service: Serves, document: str, project: InProject = "") -> Response:
    """Forget the document with this path, file name or title: its passages, and their words in the session logs."""
    memory = await service.memory_named(project)
    source = document_named(document, await memory.documents()).source
    receipt = await service.satchel.forget(session=source)
    return JsonAnswer({"receipt": receipt.to_json()})


@router.get("/api/memory/folders", response_model=list[WatchedFolder], summary="List watched folders")
async def folders(service: Serves) -> Response:
    """List the folders of the server's machine that are watched."""
    return JsonAnswer([asdict(one) for one in await watched(service.satchel.home, service.memory)])


@router.post("/api/memory/folders", response_model=list[WatchedFolder], summary="Watch a folder")
async def watch_folder(service: Serves, request: shapes.NewFolder) -> Response:
    """Remember the documents below a folder of the server's machine, now and whenever they change. It answers at once
    with all watched folders; the files are read in the background.
    """
    await run_sync(watch, service.satchel.home, Path(request.path))
    service.satchel.watching.wake()
    return await folders(service)


@router.delete("/api/memory/folders", response_model=list[WatchedFolder], summary="Stop watching a folder")
async def unwatch_folder(
    service: Serves,
    path: str,
    remove: Annotated[bool, Query(description="Remove its documents from memory, too.")] = False,
) -> Response:
    """Stop watching a folder. The answer has the others."""
    await unwatch(service.satchel.home, service.memory, path, remove=remove)
    return await folders(service)
