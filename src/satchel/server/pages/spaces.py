"""`/spaces`: what the user shares with other people of the server, and with whom."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from satchel.errors import NotFound, Refused, StorageUnwritable, UsageError
from satchel.server.pages.rendering import Form, Saying, form_of
from satchel.server.pages.site import page, see_other
from satchel.server.service import Serves, Service

router = APIRouter(include_in_schema=False)

_MOST_SHOWN: Final = 500


@router.get("/spaces")
async def spaces(request: Request, service: Serves) -> Response:
    """The invitations, and each space with who is in it and what is shared there."""
    asked = service.spaces
    found, shared = await asked.all(), await asked.list(limit=_MOST_SHOWN)
    return await page(
        request,
        "spaces.html",
        title="Shared",
        invitations=[one for one in found if one.you == "invited"],
        spaces=[one for one in found if one.you != "invited"],
        shared=[hit.memory for hit in shared.hits],
        away=shared.away,
        me=asked.me,
    )


@router.post("/spaces")
async def change(request: Request, service: Serves) -> Response:
    """Do what a form of the page says."""
    try:
        saying = Saying(text=await _done(service, await form_of(request)))
    except (NotFound, Refused, UsageError, StorageUnwritable) as error:
        saying = Saying(text=str(error), state="warn")
    return see_other(request, "/spaces", say=saying)


async def _done(service: Service, form: Form) -> str:
    spaces, name, who = service.spaces, form.get("space"), form.get("who").strip().lower()
    match form.get("do"):
        case "make":
            await spaces.make(name)
            return f"Made: {name}. Invite somebody."
        case "delete":
            await spaces.delete(name)
            return f"Deleted: {name}."
        case "invite":
            return await spaces.invite(name, who)
        case "accept":
            return await spaces.accept(name)
        case "leave":
            return await spaces.take_out(name)
        case "remove":
            return await spaces.take_out(name, who)
        case "share":
            await spaces.add(name, form.get("content"))
            return f"Shared in {name}."
        case "forget":
            await service.satchel.home.forget_shared(form.get("id"))
            return "Forgotten for everybody. Conversations of others that were shown it keep it."
        case _:
            raise UsageError("There is nothing to do.")
