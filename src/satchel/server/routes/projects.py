"""`/api/projects`: conversations that share instructions and a memory of their own."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from satchel.memory import MemoryRecord, hit_to_json, record_to_json
from satchel.server import shapes
from satchel.server.json_answers import JsonAnswer
from satchel.server.routes.documented import api_router
from satchel.server.service import Serves
from satchel.sessions import info_to_json
from satchel.sessions.branches import folded

router = api_router(prefix="/api/projects", tags=["conversations"])
Limit = Annotated[int, Query(ge=1, le=1000)]


@router.get("", response_model=list[shapes.ProjectResponse], summary="List projects")
async def list_projects(service: Serves, archived: bool = False) -> Response:
    """List the projects by name, or the archived ones."""
    found = [one for one in service.satchel.home.projects.all() if one.archived == archived]
    return JsonAnswer([await service.project_to_json(project) for project in found])


@router.post("", response_model=shapes.ProjectResponse, status_code=201, summary="Make a project")
async def create(service: Serves, request: shapes.NewProject) -> Response:
    """Make a project. `project` of POST /api/sessions and POST /api/chat begins a conversation in it."""
    projects = service.satchel.home.projects
    project = projects.create(
        request.name,
        instructions=request.instructions or "",
        own_memory_only=bool(request.own_memory_only),
    )
    return JsonAnswer(await service.project_to_json(project), status_code=201)


@router.get("/{id}", response_model=shapes.ProjectResponse, summary="Show a project")
async def show(service: Serves, id: str) -> Response:
    """Show the project with this id or name."""
    return JsonAnswer(await service.project_to_json(service.satchel.home.projects.find(id)))


@router.patch("/{id}", response_model=shapes.ProjectResponse, summary="Change a project")
async def change(service: Serves, id: str, request: shapes.ProjectFields) -> Response:
    """Change a project. Its open conversations follow new instructions from their next turn on."""
    satchel = service.satchel
    fields = request.model_dump(exclude_none=True)
    project = await satchel.change_project(satchel.home.projects.find(id), **fields)
    return JsonAnswer(await service.project_to_json(project))


@router.delete("/{id}", response_model=shapes.ProjectResponse, summary="Delete a project")
async def delete(service: Serves, id: str) -> Response:
    """Delete a project for good: its instructions, its conversations and its memories. The answer is what it was."""
    project = service.satchel.home.projects.find(id)
    was = await service.project_to_json(project)
    await service.delete_project(project)
    return JsonAnswer(was)


@router.get(
    "/{id}/sessions", response_model=list[shapes.SessionResponse], summary="List a project's conversations"
)
async def sessions(service: Serves, id: str, limit: Limit = 50) -> Response:
    """List the conversations of a project, the most recent first."""
    home = service.satchel.home
    infos = folded(await home.sessions_in(home.projects.find(id).id))
    return JsonAnswer([info_to_json(info) for info in infos[:limit]])


@router.get("/{id}/memories", response_model=list[MemoryRecord], summary="List a project's memories")
async def memories(service: Serves, id: str, limit: Limit = 50) -> Response:
    """List what the conversations of a project left, the newest first. DELETE /api/memories/{id} forgets one."""
    memory = await service.project_memory(service.satchel.home.projects.find(id))
    return JsonAnswer([record_to_json(record) for record in await memory.list(limit=limit)])


@router.get(
    "/{id}/memories/search", response_model=list[shapes.HitResponse], summary="Search a project's memories"
)
async def search(
    service: Serves, id: str, q: Annotated[str, Query(min_length=1, max_length=1000)], limit: Limit = 10
) -> Response:
    """Find memories of a project, best first."""
    memory = await service.project_memory(service.satchel.home.projects.find(id))
    return JsonAnswer([hit_to_json(hit) for hit in await memory.search(q, limit=limit, relevant_only=True)])
