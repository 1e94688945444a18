"""`/setup`: which model answers. It is tried, kept and used at once."""

from __future__ import annotations

import anyio.to_thread
from fastapi import APIRouter, Request
from starlette.responses import Response

from satchel.config.keys import place_of_new_keys
from satchel.errors import SatchelError
from satchel.runtime.model_setup import ModelWish, find_models, set_up_model
from satchel.server.pages.rendering import Saying, form_of
from satchel.server.pages.settings import settings_now
from satchel.server.pages.site import page, see_other
from satchel.server.service import Serves, Service

router = APIRouter(include_in_schema=False)


@router.get("/setup")
async def setup(request: Request, service: Serves) -> Response:
    """What was found, and fields for a key and an address."""
    return await _page(request, service)


async def _page(
    request: Request, service: Service, *, problem: str = "", given: ModelWish | None = None
) -> Response:
    settings = await settings_now(service.satchel.settings)
    source = settings.sources.get("model", "")
    return await page(
        request,
        "setup.html",
        title="Set up a model",
        status=422 if problem else 200,
        found=await find_models(settings),
        keys_go_to=await anyio.to_thread.run_sync(place_of_new_keys),
        problem=problem,
        given=given,
        fixed_by=source if source in ("the command line", "SATCHEL_MODEL") else "",
    )


@router.post("/setup")
async def use(request: Request, service: Serves) -> Response:
    """Try a model, keep it, and use it from the next message on."""
    form = await form_of(request)
    provider, _, model = (
        form.get("model").partition(":") if form.has("found") else (form.get("provider"), "", "")
    )
    wish = ModelWish(
        provider=provider,
        model=model or form.get("name"),
        key=form.get("key"),
        base_url=form.get("base_url"),
        kind="anthropic" if form.get("kind") == "anthropic" else "openai",
    )
    satchel = service.satchel
    try:
        settings, name = await set_up_model(await settings_now(satchel.settings), wish, clock=satchel.clock)
        await satchel.use_models(settings)
    except SatchelError as error:
        return await _page(request, service, problem=str(error), given=wish)
    return see_other(request, "/", say=Saying(text=f"{name} answers from now on."))
