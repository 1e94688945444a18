"""`/projects`: the projects, and one with its instructions, conversations and memories."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from satchel.errors import UsageError
from satchel.runtime.projects import Project, what_goes
from satchel.server.pages.documents import sent_file
from satchel.server.pages.rendering import Form, Saying, form_of
from satchel.server.pages.site import page, see_other
from satchel.server.service import Serves, Service
from satchel.sessions.branches import folded

router = APIRouter(include_in_schema=False)

_MOST_MEMORIES: Final = 50


@router.get("/projects")
async def projects(request: Request, service: Serves, archived: bool = False) -> Response:
    """The projects by name, with a form to make one; or the archived ones."""
    return await _list(request, service, archived=archived)


async def _list(
    request: Request,
    service: Service,
    *,
    archived: bool = False,
    given: Form | None = None,
    problem: str = "",
) -> Response:
    home = service.satchel.home
    found = [(one, len(folded(await home.sessions_in(one.id)))) for one in home.projects.all()]
    return await page(
        request,
        "projects.html",
        title="Projects",
        status=422 if problem else 200,
        projects=[(one, count) for one, count in found if one.archived == archived],
        others=sum(one.archived != archived for one, _ in found),
        archived=archived,
        given=given,
        problem=problem,
    )


@router.post("/projects")
async def create(request: Request, service: Serves) -> Response:
    """Make a project."""
    form = await form_of(request)
    try:
        project = service.satchel.home.projects.create(
            form.get("name"),
            instructions=form.get("instructions"),
            own_memory_only=form.has("own_memory_only"),
        )
    except UsageError as error:
        return await _list(request, service, given=form, problem=str(error))
    return see_other(request, f"/projects/{project.id}", say=Saying(text=f"Made: {project.name}."))


@router.get("/projects/{id}")
async def show(request: Request, service: Serves, id: str) -> Response:
    """One project."""
    return await _show(request, service, service.satchel.home.projects.find(id))


async def _show(
    request: Request, service: Service, project: Project, *, given: Form | None = None, problem: str = ""
) -> Response:
    infos = folded(await service.satchel.home.sessions_in(project.id))
    memory = await service.project_memory(project) if service.satchel.memory is not None else None
    count = await memory.count() if memory is not None else 0
    documents = await memory.documents() if memory is not None else ()
    passages = sum(one.passages for one in documents)
    listed = (
        await memory.list(limit=_MOST_MEMORIES + passages, facts_first=True, folded=True)
        if memory is not None
        else ()
    )
    return await page(
        request,
        "project.html",
        title=project.name,
        current="/projects",
        status=422 if problem else 200,
        project=project,
        sessions=infos,
        memories=[one for one in listed if not one.source.document][:_MOST_MEMORIES],
        memory_count=count - passages,
        documents=documents,
        sent=[one.path for one in documents if sent_file(service, one)],
        what_goes=what_goes(project, conversations=len(infos), memories=count, documents=documents),
        given=given,
        problem=problem,
    )


@router.post("/projects/{id}")
async def change(request: Request, service: Serves, id: str) -> Response:
    """Change its name, instructions and switch."""
    form = await form_of(request)
    project = service.satchel.home.projects.find(id)
    try:
        await service.satchel.change_project(
            project,
            name=form.get("name"),
            instructions=form.get("instructions"),
            own_memory_only=form.has("own_memory_only"),
        )
    except UsageError as error:
        return await _show(request, service, project, given=form, problem=str(error))
    say = Saying(text="Saved. Open conversations follow it from their next turn on.")
    return see_other(request, f"/projects/{project.id}", say=say)


@router.post("/projects/{id}/archive")
async def archive(request: Request, service: Serves, id: str) -> Response:
    """Archive it, or take it out of the archive."""
    project = service.satchel.home.projects.find(id)
    changed = await service.satchel.change_project(project, archived=not project.archived)
    text = "Archived." if changed.archived else "Taken out of the archive."
    say = Saying(text=text, action=f"/projects/{project.id}/archive")
    return see_other(request, f"/projects/{project.id}", say=say)


@router.post("/projects/{id}/delete")
async def delete(request: Request, service: Serves, id: str) -> Response:
    """Delete it; its page has said what goes."""
    project = service.satchel.home.projects.find(id)
    await service.delete_project(project)
    return see_other(request, "/projects", say=Saying(text=f"Deleted: {project.name}."))
