"""Logging a browser in and out, its theme, and the files that pages need."""

from __future__ import annotations

import re
from typing import Final

import anyio.to_thread
from fastapi import APIRouter, HTTPException, Request
from starlette.responses import RedirectResponse, Response

from satchel.server.browser_access import browser_of, place_for
from satchel.server.pages.assets import asset_answer, asset_url
from satchel.server.pages.rendering import THEME_COOKIE, THEMES, form_of, rendered
from satchel.server.pages.site import PageState
from satchel.server.rates import client_of
from satchel.server.service import Serves

router = APIRouter(include_in_schema=False)

_LOCAL: Final = re.compile(r"/(?![/\\])[!-\[\]-~]*")
"""A path on this server: not `//host`, and without characters that browsers read as a slash."""
_THEME_LASTS_S: Final = 365 * 24 * 3600
_WRONG_LINK: Final = "This link has been used, or is older than ten minutes. Log in with the token."
_WRONG_TOKEN: Final = "That is not the token of this home."


@router.get("/login")
async def ask(request: Request, next: str = "/", code: str = "") -> Response:
    """The login page; with the code of a link, log in."""
    pages = _pages(request)
    if browser_of(request.scope) is not None:
        return RedirectResponse(local_path(next), 303)
    if code:
        lets_in = await anyio.to_thread.run_sync(pages.access.browsers.use_code, code)
        if lets_in:
            return await _logged_in(request, next)
    return login_page(request, next, error=_WRONG_LINK if code else "", status=403 if code else 200)


@router.post("/login")
async def log_in(request: Request, service: Serves) -> Response:
    """Log in with the token."""
    pages, form = _pages(request), await form_of(request)
    wait_s = pages.login_tries.take(client_of(request.scope), service.satchel.clock.monotonic_s())
    if wait_s:
        headers = {"retry-after": str(max(1, round(wait_s)))}
        raise HTTPException(429, "Too many attempts to log in. Try again later.", headers)
    if not pages.access.browsers.is_token(form.get("token")):
        return login_page(request, form.get("next", "/"), error=_WRONG_TOKEN, status=403)
    return await _logged_in(request, form.get("next", "/"))


async def _logged_in(request: Request, next: str) -> Response:
    access = _pages(request).access
    value = await anyio.to_thread.run_sync(access.browsers.log_in)
    answer = RedirectResponse(place_for(value) + local_path(next), 303)
    access.set_cookie(request.scope, answer, value)
    return answer


def login_page(
    request: Request,
    next: str,
    *,
    error: str = "",
    status: int = 200,
    people: bool = False,
    passkeys: bool = False,
) -> Response:
    """The page that asks for the token, or, with `people`, for a name and its password or a passkey."""
    return rendered(
        request.scope,
        "login.html",
        status=status,
        title="Log in",
        next=local_path(next),
        error=error,
        people=people,
        passkeys=passkeys,
    )


@router.post("/logout")
async def log_out(request: Request) -> Response:
    """Log this browser out."""
    access, browser = _pages(request).access, browser_of(request.scope)
    if browser is not None:
        await anyio.to_thread.run_sync(access.browsers.log_out, browser)
    return _logged_out(request)


@router.post("/logout/everywhere")
async def log_out_everywhere(request: Request) -> Response:
    """Log every browser out."""
    await anyio.to_thread.run_sync(_pages(request).access.browsers.log_out_all)
    return _logged_out(request)


def _logged_out(request: Request) -> Response:
    answer = RedirectResponse("/login?ended=1", 303)
    _pages(request).access.set_cookie(request.scope, answer, "")
    return answer


@router.post("/login/link")
async def make_link(request: Request) -> dict[str, str]:
    """A path that logs in one browser; for programs that have the token."""
    code = await anyio.to_thread.run_sync(_pages(request).access.browsers.make_code)
    return {"path": f"/login?code={code}"}


@router.post("/theme")
async def choose_theme(request: Request) -> Response:
    """Show pages light, dark, or as the system does, in this browser."""
    form = await form_of(request)
    answer = RedirectResponse(local_path(form.get("next", "/")), 303)
    if form.get("theme") in THEMES:
        answer.set_cookie(
            THEME_COOKIE, form.get("theme"), max_age=_THEME_LASTS_S, httponly=True, samesite="strict"
        )
    else:
        answer.delete_cookie(THEME_COOKIE, httponly=True, samesite="strict")
    return answer


@router.get("/static/{version}/{name}")
async def asset(request: Request, version: str, name: str) -> Response:
    """A script, a style sheet or a drawing."""
    return await asset_answer(version, name, request.headers)


@router.get("/favicon.ico")
async def icon() -> Response:
    """The icon that browsers request without being told to."""
    return RedirectResponse(asset_url("icon.svg"), 301)


def _pages(request: Request) -> PageState:
    found: PageState = request.app.state.pages
    return found


def local_path(path: str) -> str:
    """The path if it leads to this server, otherwise the first page."""
    return path if _LOCAL.fullmatch(path) else "/"
