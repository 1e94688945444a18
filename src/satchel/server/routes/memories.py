"""`/api/memories`, `/api/observe`, `/api/context` and `/api/profile`: memory for programs of any kind."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Query
from starlette.responses import Response

from satchel.errors import NotFound
from satchel.memory import (
    Change,
    Discretion,
    Episode,
    Filters,
    Hit,
    Kind,
    MemoryRecord,
    MemoryType,
    Mode,
    Related,
    Stats,
    Tier,
    Trust,
    hit_to_json,
    record_to_json,
    version_to_json,
)
from satchel.memory.show.page.editing import as_text
from satchel.plain import as_json
from satchel.server import shapes
from satchel.server.json_answers import JsonAnswer
from satchel.server.routes.documented import api_router
from satchel.server.service import InProject, Serves, Service

router = api_router(tags=["memory"])

Limit = Annotated[int, Query(ge=1, le=1000)]
Word = Annotated[str | None, Query(max_length=200)]
Time = Annotated[shapes.Moment | None, Query()]

_TRUST: dict[str, Trust] = {"user": "user", "assistant": "agent", "other": "outside"}


def _filters(
    kind: Kind | None = None,
    tier: Tier | None = None,
    memory_type: MemoryType | None = None,
    tag: Annotated[list[str] | None, Query(max_length=20)] = None,
    speaker: Word = None,
    session: Word = None,
    since: Time = None,
    until: Time = None,
    as_of: Time = None,
    faded: bool | None = None,
    folded: Annotated[
        bool,
        Query(
            description="A fact and the turns that it rests on as one: they are named in its `evidence` and left out. "
            "Lists leave out what models said, too."
        ),
    ] = False,
    discretion: Discretion | None = None,
) -> Filters:
    return Filters(
        folded=folded,
        kind=kind,
        tier=tier,
        memory_type=memory_type,
        tags=tag or (),
        speaker=speaker,
        session=session,
        since=since,
        until=until,
        as_of=as_of,
        faded=faded,
        discretion=discretion,
    )


Wanted = Annotated[Filters, Depends(_filters)]


@router.get("/api/memories", response_model=list[MemoryRecord], summary="List memories")
async def list_memories(
    service: Serves,
    wanted: Wanted,
    limit: Limit = 50,
    offset: Annotated[int, Query(ge=0, le=1_000_000_000)] = 0,
) -> Response:
    """List the memories that fit every filter, the latest first. The header X-Total-Count has their number."""
    records = await service.memory.list(limit=limit, offset=offset, **wanted)
    total = await service.memory.count(**wanted)
    evidence = await service.memory.evidence([one.id for one in records]) if wanted["folded"] else {}
    return JsonAnswer(
        [record_to_json(record, evidence.get(record.id, ())) for record in records],
        headers={"x-total-count": str(total)},
    )


@router.post("/api/memories", response_model=MemoryRecord, status_code=201, summary="Add a memory")
async def add(service: Serves, request: shapes.NewMemory) -> Response:
    """Store a memory, word for word. It is on disk when this answers."""
    id = await service.memory.add(**request.model_dump())
    return JsonAnswer(record_to_json(await service.memory.get(id)), status_code=201)


@router.get("/api/memories/search", response_model=list[shapes.HitResponse], summary="Search memories")
async def search(
    service: Serves,
    wanted: Wanted,
    q: Annotated[
        str,
        Query(
            max_length=10_000, description="A question, or words to look for.", examples=["router password"]
        ),
    ],
    limit: Limit = 10,
    mode: Mode = "hybrid",
    superseded: Annotated[bool, Query(description="Include memories that no longer hold.")] = False,
    threshold: Annotated[float | None, Query(ge=-10, le=10)] = None,
    relevant_only: Annotated[
        bool, Query(description="Leave out what is found only because something always is nearest.")
    ] = False,
) -> Response:
    """Search memories, best first, each with its score and the signals that make it up."""
    hits = await service.memory.search(
        q,
        limit=limit,
        mode=mode,
        include_superseded=superseded,
        threshold=threshold,
        relevant_only=relevant_only,
        **wanted,
    )
    evidence = await service.memory.evidence([hit.memory.id for hit in hits]) if wanted["folded"] else {}
    return JsonAnswer([hit_to_json(hit, evidence.get(hit.memory.id, ())) for hit in hits])


@router.get("/api/memories/stats", response_model=Stats, summary="Count memories")
async def stats(service: Serves) -> Response:
    """Count what is in the store."""
    return JsonAnswer(as_json(await service.memory.stats()))


@router.get("/api/memories/{id}", response_model=MemoryRecord, summary="Show a memory")
async def show(service: Serves, id: str) -> Response:
    """Show a memory, with where it comes from."""
    return JsonAnswer(record_to_json(await (await service.memory_with(id)).get(id)))


@router.patch("/api/memories/{id}", response_model=MemoryRecord, summary="Change a memory")
async def edit(service: Serves, id: str, request: shapes.MemoryEdit) -> Response:
    """Change a memory. Its history keeps the old version, which `undo` restores."""
    memory = await service.memory_with(id)
    await memory.edit(id, **request.model_dump(exclude_unset=True))
    return JsonAnswer(record_to_json(await memory.get(id)))


@router.delete("/api/memories/{id}", response_model=shapes.ReceiptResponse, summary="Forget a memory")
async def forget(service: Serves, id: str) -> Response:
    """Forget a memory for good: its words, vectors and edges, the facts that have no other source, and its words in the
    session logs. The receipt says what was removed; the same source can't bring it back.
    """
    memory = await service.memory_with(id)
    receipt = await service.satchel.forget([(await memory.get(id)).id])
    if receipt.is_empty:
        raise NotFound(f"There is no memory {id!r}.")
    return JsonAnswer({"receipt": receipt.to_json()})


@router.get("/api/memories/{id}/related", response_model=list[Related], summary="Follow a memory's edges")
async def related(
    service: Serves,
    id: str,
    depth: Annotated[int, Query(ge=1, le=20)] = 2,
    limit: Limit = 100,
    relation: Annotated[list[str] | None, Query(max_length=20)] = None,
) -> Response:
    """List the memories that a memory is linked to, nearest first."""
    found = await (await service.memory_with(id)).related(id, depth, relation, limit=limit)
    return JsonAnswer(as_json(found))


@router.get("/api/memories/{id}/history", response_model=list[Change], summary="Show a memory's changes")
async def history(service: Serves, id: str) -> Response:
    """List every change of a memory, oldest first. For a forgotten memory, the list has only the forgetting."""
    return JsonAnswer(as_json(await (await service.memory_with(id)).history(id)))


@router.post(
    "/api/memories/changes/{id}/undo", response_model=shapes.ChangedResponse, summary="Undo a change"
)
async def undo(service: Serves, id: str) -> Response:
    """Undo a change of a memory. Undoing that restores the change."""
    return JsonAnswer({"change": await service.undo(id)})


@router.post("/api/memories/{id}/pin", response_model=shapes.ChangedResponse, summary="Pin a memory")
async def pin(service: Serves, id: str) -> Response:
    """Pin a memory to the profile."""
    return JsonAnswer({"change": await (await service.memory_with(id)).pin(id)})


@router.delete("/api/memories/{id}/pin", response_model=shapes.ChangedResponse, summary="Unpin a memory")
async def unpin(service: Serves, id: str) -> Response:
    """Unpin a memory."""
    return JsonAnswer({"change": await (await service.memory_with(id)).unpin(id)})


@router.get("/api/profile", response_model=shapes.ProfileResponse, summary="Show the profile and the agenda")
async def profile(
    service: Serves,
    agent: Annotated[bool, Query(description="Only what connected agents are granted.")] = False,
) -> Response:
    """Show what is always true of the user (the page, or the profile where there is none), and what happens in the next
    seven days. Every session's model is shown both.
    """
    settings = service.satchel.settings.memory
    found = await service.memory.standing(
        page_tokens=settings.page_tokens,
        profile_tokens=settings.profile_tokens,
        granted=settings.agent_spheres if agent else (),
    )
    agenda = await service.memory.agenda(
        budget_tokens=settings.agenda_tokens, granted=settings.agent_spheres if agent else ()
    )
    return JsonAnswer({**found.to_json(), "agenda": agenda.to_json()})


@router.get("/api/page", response_model=shapes.PageResponse, summary="Show the page")
async def page(service: Serves, project: InProject = "") -> Response:
    """Show the page that every session's model is shown, also one that the user has not accepted yet; its `edited` is
    the text to edit.
    """
    return JsonAnswer(await _page(service, project))


async def _page(service: Service, project: str) -> dict[str, Any]:
    memory = await service.memory_named(project)
    budget = service.satchel.settings.memory.page_tokens
    found = await memory.page(budget_tokens=budget, proposed=True)
    newest = await memory.page_versions(limit=1)
    shown = {"number": 0, "text": "", "tokens": 0, "lines": []} if found is None else found.to_json()
    return {**shown, "edited": as_text(newest[0].lines) if newest else ""}


@router.get(
    "/api/page/versions", response_model=list[shapes.PageVersionResponse], summary="List the page's versions"
)
async def page_versions(service: Serves, limit: Limit = 20, project: InProject = "") -> Response:
    """List what the page was, the newest version first."""
    memory = await service.memory_named(project)
    return JsonAnswer([version_to_json(one) for one in await memory.page_versions(limit=limit)])


@router.patch("/api/page", response_model=shapes.PageResponse, summary="Edit the page")
async def edit_page(service: Serves, request: shapes.PageEdit, project: InProject = "") -> Response:
    """Replace the page's text. Lines that are new become the user's own; what is gone stays off the page."""
    await (await service.memory_named(project)).edit_page(request.text, base=request.number)
    return JsonAnswer(await _page(service, project))


@router.post("/api/page/accept", response_model=shapes.PageResponse, summary="Accept the first page")
async def accept_page(service: Serves, project: InProject = "") -> Response:
    """Let models see a page that was only proposed."""
    if not await (await service.memory_named(project)).accept_page():
        raise NotFound("No page waits to be accepted.")
    return JsonAnswer(await _page(service, project))


@router.post("/api/page/restore", response_model=shapes.PageResponse, summary="Restore a version of the page")
async def restore_page(service: Serves, request: shapes.PageRestore, project: InProject = "") -> Response:
    """Make an earlier version the page again; without a number, the one before the newest."""
    await (await service.memory_named(project)).restore_page(request.number)
    return JsonAnswer(await _page(service, project))


@router.post(
    "/api/observe", response_model=shapes.ObservedResponse, summary="Capture a piece of a conversation"
)
async def observe(service: Serves, request: shapes.ObserveRequest) -> Response:
    """Capture a part of a conversation that runs in another program. Facts are extracted from it later.

    Secrets, `<private>` parts and text that Satchel injected are left out.
    """
    memory = service.memory
    turn = request.turn
    if turn is None:
        newest = [record.source.turn or 0 for record in await memory.list(limit=100, session=request.session)]
        turn = max(newest, default=0) + 1
    if not service.satchel.settings.keeps_memory:
        return JsonAnswer({"turn": turn, "ids": []})
    ids = await memory.add_episodes(
        Episode(
            session=request.session,
            turn=turn,
            speaker=piece.speaker or piece.role,
            text=piece.content,
            said_at=piece.said_at,
            position=position,
            trust=_TRUST[piece.role],
        )
        for position, piece in enumerate(request.messages)
    )
    service.satchel.distilling.notify()
    return JsonAnswer({"turn": turn, "ids": list(ids)})


@router.post(
    "/api/observe/queued",
    response_model=shapes.QueueTakenResponse,
    status_code=202,
    summary="Capture what hooks have queued",
)
async def observe_queued(service: Serves) -> Response:
    """Capture what hooks of other agents have put into this home's queue, in the background."""
    service.queue.notify()
    return JsonAnswer({"accepted": True}, status_code=202)


@router.post("/api/context", response_model=shapes.ContextResponse, summary="Get relevant memory")
async def context(service: Serves, request: shapes.ContextRequest) -> Response:
    """Get memories relevant to the last messages: a marked block of at most `budget_tokens`, or an empty text."""
    settings = service.satchel.settings.memory
    found = await service.memory.surface(
        [{"role": message.role, "content": message.content} for message in request.messages],
        budget_tokens=request.budget_tokens or settings.budget_tokens,
        limit=request.limit or settings.limit,
        threshold=settings.surface_threshold,
        exclude=request.exclude,
        exclude_session=request.session,
        spheres=request.spheres,
        granted=settings.agent_spheres if request.agent else (),
    )
    shown = [_shown(hit) for hit in found.memories]
    return JsonAnswer({"text": found.text, "tokens": found.tokens, "memories": shown})


def _shown(hit: Hit) -> dict[str, Any]:
    return {
        "id": hit.memory.id,
        "content": hit.memory.content,
        "score": round(hit.score, 4),
        "source": {"session": hit.memory.source.session, "turn": hit.memory.source.turn},
    }
