"""The sessions: a list that can be searched, one as a file, renaming and deleting one."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from satchel.server.pages.rendering import Saying, form_of
from satchel.server.pages.site import RailSession, page, see_other, session_groups, state_of
from satchel.server.service import Serves

__all__ = ["router"]

router = APIRouter(include_in_schema=False)

_ON_PAGE: Final = 50
_MOST_HITS: Final = 60
_FORMS: Final = {
    "markdown": ("text/markdown; charset=utf-8", "md"),
    "json": ("application/json", "json"),
}


@router.get("/sessions")
async def sessions(
    request: Request,
    service: Serves,
    q: Annotated[str, Query(max_length=1000)] = "",
    number: Annotated[int, Query(ge=1, le=100_000, alias="page")] = 1,
) -> Response:
    """All sessions, the newest first; with `q`, where its words were said."""
    now = service.satchel.clock.now()
    infos = [info for info in await service.satchel.sessions.list() if info.turns]
    first = (number - 1) * _ON_PAGE
    shown = [
        RailSession(info=info, state=state_of(service, info.id)) for info in infos[first : first + _ON_PAGE]
    ]
    return await page(
        request,
        "sessions.html",
        title="Sessions",
        q=q.strip(),
        hits=await service.satchel.sessions.search(q, limit=_MOST_HITS) if q.strip() else (),
        groups=[(words, list(group)) for words, group in session_groups(shown, now)],
        total=len(infos),
        number=number,
        pages=max(1, -(-len(infos) // _ON_PAGE)),
        own_folder=service.satchel.settings.environ.get("HOME", ""),
    )


@router.get("/sessions/{id}/export")
async def export(service: Serves, id: str, form: Literal["markdown", "json"] = "markdown") -> Response:
    """A session as a file."""
    info = await service.satchel.sessions.info(id)
    media_type, suffix = _FORMS[form]
    text = await service.satchel.sessions.export(info.id, form=form)
    headers = {"content-disposition": f'attachment; filename="satchel-{info.id}.{suffix}"'}
    return Response(text.encode("utf-8", "replace"), media_type=media_type, headers=headers)


@router.post("/sessions/{id}/rename")
async def rename(request: Request, service: Serves, id: str) -> Response:
    """Give a session a title."""
    form = await form_of(request)
    info = await service.satchel.sessions.info(id)
    await service.satchel.rename(info.id, form.get("title"))
    back = f"/chat/{info.id}" if form.has("in_chat") else "/sessions"
    return see_other(request, back, say=Saying(text="Renamed."))


@router.post("/sessions/{id}/delete")
async def delete(request: Request, service: Serves, id: str) -> Response:
    """Delete the log of a session. What was learnt from it stays."""
    info = await service.satchel.sessions.info(id)
    await service.sessions.delete(info.id)
    return see_other(
        request,
        "/sessions",
        say=Saying(
            text=f"“{info.title or info.id}” is deleted. What was learnt from it is still remembered.",
            link="/memories",
            link_label="Memories",
        ),
    )
