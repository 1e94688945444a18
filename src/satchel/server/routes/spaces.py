"""`/api/spaces`: what the user shares with other people of the server."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from satchel.memory import MemoryRecord, hit_to_json, record_to_json
from satchel.plain import as_json
from satchel.server import shapes
from satchel.server.json_answers import JsonAnswer
from satchel.server.routes.documented import api_router
from satchel.server.service import Serves, Service

router = api_router(tags=["memory"])


@router.get("/api/spaces", response_model=list[shapes.SpaceResponse], summary="List shared spaces")
async def list_spaces(service: Serves) -> Response:
    """List the spaces that the user is in or is invited to."""
    return await _list(service)


async def _list(service: Service, status: int = 200) -> Response:
    return JsonAnswer([as_json(one) for one in await service.spaces.all()], status_code=status)


@router.post(
    "/api/spaces", response_model=list[shapes.SpaceResponse], status_code=201, summary="Make a shared space"
)
async def make(service: Serves, request: shapes.NewSpace) -> Response:
    """Make a space, which the user owns. The answer lists the user's spaces, as those of the routes that follow."""
    await service.spaces.make(request.name)
    return await _list(service, 201)


@router.delete(
    "/api/spaces/{name}", response_model=list[shapes.SpaceResponse], summary="Delete a shared space"
)
async def delete(service: Serves, name: str) -> Response:
    """Delete a space that the user owns, with all that is in it. A backup stays with the server's administrator."""
    await service.spaces.delete(name)
    return await _list(service)


@router.post(
    "/api/spaces/{name}/accept", response_model=list[shapes.SpaceResponse], summary="Accept an invitation"
)
async def accept(service: Serves, name: str) -> Response:
    """Accept the invitation to a space."""
    await service.spaces.accept(name)
    return await _list(service)


@router.post(
    "/api/spaces/{name}/members", response_model=list[shapes.SpaceResponse], summary="Invite somebody"
)
async def invite(service: Serves, name: str, request: shapes.NewMember) -> Response:
    """Invite somebody to a space that the user owns. They see nothing of it before they accept."""
    await service.spaces.invite(name, request.name)
    return await _list(service)


@router.delete(
    "/api/spaces/{name}/members/{who}",
    response_model=list[shapes.SpaceResponse],
    summary="Leave, decline, or remove somebody",
)
async def take_out(service: Serves, name: str, who: str) -> Response:
    """Leave a space or decline an invitation, with one's own name; or remove somebody from a space that the user owns.
    What they shared stays.
    """
    await service.spaces.take_out(name, who)
    return await _list(service)


@router.get(
    "/api/spaces/memories", response_model=list[shapes.HitResponse], summary="List or search what is shared"
)
async def shared(
    service: Serves,
    q: Annotated[
        str | None, Query(max_length=10_000, description="Without it, the newest are listed.")
    ] = None,
    space: Annotated[str | None, Query(max_length=200)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
) -> Response:
    """List or search what is shared in the user's spaces, or in one. Ids are SPACE/ID, and `speaker` says who shared
    it. The header X-Away names spaces that can't be asked now.
    """
    spaces = service.spaces
    found = await (
        spaces.list(space=space, limit=limit) if q is None else spaces.search(q, space=space, limit=limit)
    )
    return JsonAnswer([hit_to_json(hit) for hit in found.hits], headers={"x-away": ",".join(found.away)})


@router.post(
    "/api/spaces/{name}/memories", response_model=MemoryRecord, status_code=201, summary="Share something"
)
async def share(service: Serves, name: str, request: shapes.NewShared) -> Response:
    """Share something in a space: everybody in it is shown it where it fits."""
    return JsonAnswer(record_to_json(await service.spaces.add(name, request.content)), status_code=201)


@router.delete(
    "/api/spaces/{name}/memories/{id}", response_model=MemoryRecord, summary="Forget what is shared"
)
async def forget(service: Serves, name: str, id: str) -> Response:
    """Forget something that the user shared, or anything in a space that the user owns. The answer is what it was."""
    return JsonAnswer(record_to_json(await service.satchel.home.forget_shared(f"{name}/{id}")))
