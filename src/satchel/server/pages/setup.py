"""`/setup`: which model answers. It is tried, kept and used at once."""

from __future__ import annotations

from collections.abc import Mapping

import anyio.to_thread
from fastapi import APIRouter, Request
from starlette.responses import Response

from satchel.config import mask_address
from satchel.config.keys import place_of_new_keys
from satchel.errors import NotFound, SatchelError
from satchel.runtime.model_setup import (
    ModelWish,
    ProviderChange,
    change_provider,
    changeable,
    find_models,
    set_up_model,
)
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
    found = await find_models(settings)
    return await page(
        request,
        "setup.html",
        title="Set up a model",
        status=422 if problem else 200,
        found=found,
        keys_go_to=await anyio.to_thread.run_sync(place_of_new_keys),
        problem=problem,
        given=given,
        providers=[(one, mask_address(one.base_url)) for one in changeable(settings, found)],
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


@router.get("/setup/{name}")
async def provider(request: Request, service: Serves, name: str) -> Response:
    """A provider that is set up, and what can be changed of it."""
    return await _provider(request, service, name)


async def _provider(
    request: Request, service: Service, name: str, *, problem: str = "", typed: Mapping[str, str] = {}
) -> Response:
    settings = await settings_now(service.satchel.settings)
    found = settings.providers.get(name)
    if found is None or found.kind in ("none", "gguf"):
        raise NotFound(f"There is no provider {name[:80]!r}.")
    window = "" if found.context_window is None else str(found.context_window)
    has_key = bool(found.env_api_key and settings.secret(found.env_api_key))
    return await page(
        request,
        "provider.html",
        title=found.name,
        current="/settings",
        status=422 if problem else 200,
        provider=found,
        problem=problem,
        has_key=has_key,
        key_place=settings.stored.get(found.env_api_key, ""),
        keys_go_to=await anyio.to_thread.run_sync(place_of_new_keys),
        # An address may have a password in it; it is typed anew.
        typed={
            "base_url": "" if mask_address(found.base_url) != found.base_url else found.base_url,
            "context_window": window,
            **typed,
        },
    )


@router.post("/setup/{name}")
async def change(request: Request, service: Serves, name: str) -> Response:
    """Change it, and use it from the next message on."""
    form = await form_of(request)
    satchel = service.satchel
    settings = await settings_now(satchel.settings)
    before = settings.providers.get(name)
    address, window = form.get("base_url").strip(), form.get("context_window").strip()
    known = "" if before is None or before.context_window is None else str(before.context_window)
    wish = ProviderChange(
        base_url=address if before is not None and address not in ("", before.base_url) else None,
        key="" if form.has("remove_key") else form.get("key") or None,
        context_window=window if window != known else None,
    )
    try:
        await change_provider(settings, name, wish)
        await satchel.use_models(await settings_now(satchel.settings))
    except NotFound:
        raise
    except SatchelError as error:
        typed = {"base_url": address, "context_window": window}
        return await _provider(request, service, name, problem=str(error), typed=typed)
    text = (
        f"{name} was changed, and is used so from now on."
        if wish != ProviderChange()
        else "Nothing was changed."
    )
    return see_other(request, f"/setup/{name}", say=Saying(text=text))
