"""The sessions: a list that can be searched, one as a file; renaming, pinning, archiving and deleting them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from tempfile import TemporaryFile
from typing import Annotated, Final, Literal
from urllib.parse import quote

from fastapi import APIRouter, HTTPException, Query, Request
from starlette.background import BackgroundTask
from starlette.responses import Response, StreamingResponse

from satchel.errors import SatchelError, UsageError
from satchel.runtime.lines import FILING, counted
from satchel.server.pages.rendering import Form, Saying, form_of
from satchel.server.pages.shared import shared_file
from satchel.server.pages.site import page, rail_sessions, see_other, session_groups
from satchel.server.service import Serves, Service
from satchel.sessions import SessionInfo
from satchel.sessions.branches import as_listed

router = APIRouter(include_in_schema=False)

_ON_PAGE: Final = 30
_MOST_HITS: Final = 60
_FORMS: Final = {
    "markdown": ("text/markdown; charset=utf-8", "md"),
    "json": ("application/json", "json"),
    "html": ("text/html; charset=utf-8", "html"),
    "zip": ("application/zip", "zip"),
}


@router.get("/sessions")
async def sessions(
    request: Request,
    service: Serves,
    q: Annotated[str, Query(max_length=1000)] = "",
    number: Annotated[int, Query(ge=1, le=100_000, alias="page")] = 1,
    archived: bool = False,
    chosen: bool = False,
) -> Response:
    """The sessions, pinned ones and then the newest first, or the archived ones; with `q`, where its words were said.

    With `chosen`, the boxes of those on the page are ticked.
    """
    now = service.satchel.clock.now()
    store = service.satchel.sessions
    part = await store.part(archived=archived, first=(number - 1) * _ON_PAGE, most=_ON_PAGE)
    shown = await rail_sessions(service, part.infos)
    return await page(
        request,
        "sessions.html",
        title="Conversations",
        q=q.strip(),
        hits=await store.search(q, limit=_MOST_HITS) if q.strip() else (),
        groups=[(words, list(group)) for words, group in session_groups(shown, now)],
        total=part.total,
        others=part.others,
        archived=archived,
        chosen=chosen,
        projects=[one for one in service.satchel.home.projects.all() if not one.archived],
        number=number,
        pages=max(1, -(-part.total // _ON_PAGE)),
        own_folder=service.satchel.settings.environ.get("HOME", ""),
    )


@router.get("/sessions/{id}/export")
async def export(
    service: Serves, id: str, form: Literal["markdown", "json", "html", "zip"] = "markdown"
) -> Response:
    """A session as a file."""
    store = service.satchel.sessions
    info = await store.info(id)
    media_type, suffix = _FORMS[form]
    name = quote(f"{(info.title or info.id)[:80]}.{suffix}", safe="")
    headers = {"content-disposition": f"attachment; filename*=UTF-8''{name}"}
    if form == "zip":
        # Without a name, so that nothing is left of it. In the home, which is as private as what it holds.
        file = TemporaryFile(dir=service.satchel.settings.home)  # noqa: SIM115  the response closes it
        await store.export_with_files(info.id, file)
        file.seek(0)
        pieces = iter(partial(file.read, 1 << 20), b"")
        return StreamingResponse(
            pieces, media_type=media_type, headers=headers, background=BackgroundTask(file.close)
        )
    text = await (shared_file(store, info.id) if form == "html" else store.export(info.id, form=form))
    return Response(text.encode("utf-8", "replace"), media_type=media_type, headers=headers)


@router.post("/sessions/{id}/rename")
async def rename(request: Request, service: Serves, id: str) -> Response:
    """Give a session a title."""
    form = await form_of(request)
    info = await service.satchel.sessions.info(id)
    await service.satchel.rename(info.id, form.get("title"))
    back = f"/chat/{info.id}" if form.has("in_chat") else "/sessions"
    return see_other(request, back, say=Saying(text="Renamed."))


@router.post("/sessions")
async def change(request: Request, service: Serves) -> Response:
    """Pin, archive, move or delete sessions. What can't be done with one is told, and is done with the others."""
    form = await form_of(request)
    ids = list(dict.fromkeys([*form.all("id"), *form.get("ids").split()]))
    do = form.get("do")
    back = "/sessions?archived=true" if form.has("archived") else "/sessions"
    if form.has("in_chat") and len(ids) == 1:
        back = f"/chat/{ids[0]}"
    if do not in (*FILING, "move", "delete"):
        raise UsageError(f"A conversation can't be {do!r}.")
    if not ids:
        return see_other(
            request, back, say=Saying(text="Tick the boxes of the conversations first.", state="off")
        )
    store = service.satchel.sessions
    found = [await store.info(id) for id in ids]
    infos = [as_listed(info, await store.branches(info)) for info in found]
    what = _named(infos)
    if do == "delete" and not form.has("confirmed"):
        question = f"Delete {what} for good? What was learnt from {_them(infos)} stays remembered."
        fields = {"ids": " ".join(info.id for info in infos), "do": "delete", "confirmed": "1"}
        fields |= {"archived": "1"} if form.has("archived") else {}
        say = Saying(text=question, state="warn", action="/sessions", label="Delete for good", fields=fields)
        return see_other(request, back, say=say)
    failed: list[str] = []
    done: list[SessionInfo] = []
    for info in infos:
        try:
            if do == "delete":
                await service.sessions.delete_branches(info.id)
            elif do == "move":
                await service.satchel.move(info.id, form.get("project"))
            else:
                await service.satchel.file(info.id, **FILING[do].change)
            done.append(info)
        except (SatchelError, HTTPException) as error:
            if len(infos) == 1:
                raise
            failed.append(f"{info.title or info.id}: {getattr(error, 'detail', error)}")
    if failed:
        raw = "\n".join(failed)
        text = f"{counted(len(done), 'conversation')} of {len(infos)} done. The others stay as they were."
        return see_other(request, back, say=Saying(text=text, state="failed", raw=raw))
    if do == "delete":
        text = f"Deleted: {what}. What was learnt from {_them(infos)} is still remembered."
        return see_other(request, back, say=Saying(text=text, link="/memories", link_label="Memories"))
    return see_other(request, back, say=_changed(service, form, do, done))


def _changed(service: Service, form: Form, do: str, done: Sequence[SessionInfo]) -> Saying:
    """What was done, with its undoing; `done` are as they were before. Those of several projects are not moved back."""
    fields = {"ids": " ".join(info.id for info in done), "do": _UNDO[do]}
    fields |= {name: "1" for name in ("archived", "in_chat") if form.has(name)}
    if do != "move":
        text = f"{FILING[do].done.capitalize()}: {_named(done)}."
        return Saying(text=text, action="/sessions", fields=fields)
    to = service.satchel.home.projects.find(form.get("project")) if form.get("project") else None
    place = f"In the project {to.name} now" if to is not None else "In no project now"
    before, *others = dict.fromkeys(info.project for info in done)
    return Saying(
        text=f"{place}, with what was learnt: {_named(done)}.",
        action="" if others else "/sessions",
        fields={**fields, "project": before},
    )


_UNDO: Final = {
    "pin": "unpin", "unpin": "pin", "archive": "unarchive", "unarchive": "archive", "move": "move"
}  # fmt: skip


def _named(infos: Sequence[SessionInfo]) -> str:
    branches = sum(len(info.branches) for info in infos)
    with_all = f" with {counted(branches, 'branch', 'branches')}" if branches else ""
    if len(infos) == 1:
        return f"“{infos[0].title or infos[0].id}”{with_all}"
    return f"{counted(len(infos), 'conversation')}{with_all}"


def _them(infos: Sequence[SessionInfo]) -> str:
    return "it" if len(infos) == 1 else "them"
