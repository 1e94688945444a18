"""The ASGI application: the routes over one open Satchel, behind the gate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import anyio
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from satchel.errors import SatchelError
from satchel.runtime import Satchel
from satchel.runtime.browsers import Browsers
from satchel.runtime.elsewhere import Elsewhere
from satchel.runtime.other_agents.capturing import AgentsQueue
from satchel.runtime.plugins import plugin_routers
from satchel.server.binding import Hosts
from satchel.server.browser_access import BrowserAccess
from satchel.server.gate import RequestGate, log_defect
from satchel.server.json_answers import JsonAnswer
from satchel.server.mcp.http import McpEndpoint
from satchel.server.metrics import Metrics
from satchel.server.open_sessions import OpenSessions
from satchel.server.page_import import PageImport
from satchel.server.pages import capabilities as capabilities_page
from satchel.server.pages import capability as capability_page
from satchel.server.pages import chat as chat_page
from satchel.server.pages import doctor as doctor_page
from satchel.server.pages import documents as documents_page
from satchel.server.pages import login, standing_page
from satchel.server.pages import memories as memories_page
from satchel.server.pages import memory as memory_page
from satchel.server.pages import projects as projects_page
from satchel.server.pages import rules as rules_page
from satchel.server.pages import search as search_page
from satchel.server.pages import servers as servers_page
from satchel.server.pages import sessions as session_pages
from satchel.server.pages import settings as settings_page
from satchel.server.pages import setup as setup_page
from satchel.server.pages import spaces as spaces_page
from satchel.server.pages import usage as usage_page
from satchel.server.pages.kept import Kept
from satchel.server.pages.rendering import error_page, wants_page
from satchel.server.pages.site import PageState
from satchel.server.passing_on import PassingOn, passing_on_of
from satchel.server.problems import (
    DEFECT,
    PROBLEM_TYPE,
    invalid_detail,
    problem_fields,
    problem_of,
    retry_after,
)
from satchel.server.proxy.proxy import MemoryProxy
from satchel.server.routes import (
    capabilities,
    chat,
    completions,
    documents,
    memories,
    messages,
    program,
    projects,
    sessions,
    spaces,
)
from satchel.server.routes.documented import ERROR_SCHEMAS, EVENT_SCHEMA, PROBLEMS
from satchel.server.service import Service
from satchel.server.streams import EVENT_STREAM, Stopping
from satchel.server.v1_errors import V1Failure, has_v1_form, v1_fields
from satchel.version import __version__

_PAGES: Final = (
    login,
    chat_page,
    search_page,
    session_pages,
    memories_page,
    documents_page,
    projects_page,
    spaces_page,
    standing_page,
    memory_page,
    capabilities_page,
    capability_page,
    usage_page,
    rules_page,
    servers_page,
    settings_page,
    setup_page,
    doctor_page,
)
"""The routers of the web pages."""
_ROUTERS: Final = (
    chat,
    sessions,
    projects,
    documents,
    memories,
    spaces,
    capabilities,
    program,
    messages,
    completions,
    *_PAGES,
)
_DESCRIPTION: Final = (
    "An agent that remembers its user and makes its own tools. Every request but those for /healthz and /readyz needs "
    "the token of the home: `Authorization: Bearer TOKEN`. Errors are problem JSON (RFC 9457); below /v1 they have the "
    "form that clients of OpenAI and Anthropic read. Not described here: /mcp, which speaks the Model Context "
    "Protocol, and the pages for browsers."
)
_LAST_WORDS_S: Final = 0.3
"""Sending the end of a turn takes a few milliseconds."""


class _Api(FastAPI):
    def openapi(self) -> dict[str, Any]:
        """The description of the interface (OpenAPI), with the token and with the media type of problems."""
        if self.openapi_schema is None:
            described = get_openapi(
                title=self.title,
                version=self.version,
                description=_DESCRIPTION,
                routes=self.routes,
            )
            schemas = described["components"]["schemas"] | ERROR_SCHEMAS
            described["components"]["schemas"] = dict(sorted(schemas.items()))
            described["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            described["security"] = [{"token": []}]
            for path, methods in described["paths"].items():
                for operation in methods.values():
                    if path in ("/healthz", "/readyz"):
                        operation["security"] = []
                    for answer in operation["responses"].values():
                        content = answer.get("content", {})
                        if EVENT_STREAM in content:
                            content[EVENT_STREAM] = {**content[EVENT_STREAM], "schema": EVENT_SCHEMA}
            self.openapi_schema = described
        return self.openapi_schema


@dataclass(frozen=True, slots=True, eq=False)
class App:
    """The application, with its orderly stop.

    Attributes:
        gate: The ASGI application.
        service: What the routes use.
        api: The routes, without the gate.
        browsers: Which browsers are logged in.
        passing_on: Carries out what other servers of the database were asked.
    """

    api: FastAPI
    gate: RequestGate
    service: Service
    browsers: Browsers
    passing_on: PassingOn

    async def stop(self) -> None:
        """Take no more work, interrupt the running turns, wait until each has ended validly, and end the streams.

        Builds and distilling continue in their own processes, or at the next start.
        """
        self.service.stopping.begin()
        if await self.service.sessions.stop_turns():
            # Readers get the ends of these turns; a slow reader resumes at the next server.
            await anyio.sleep(_LAST_WORDS_S)
        self.service.stopping.end_streams()

    async def aclose(self) -> None:
        """Close the connections to providers."""
        await self.service.proxy.aclose()


def create_app(satchel: Satchel, *, token: str) -> App:
    """Make the application.

    Args:
        satchel: Stays open while the application runs.
        token: The token that clients must send.
    """
    settings = satchel.settings.server
    metrics = Metrics()
    browsers = _browsers(satchel, token)
    service = Service(
        satchel=satchel,
        sessions=OpenSessions(satchel, metrics),
        elsewhere=Elsewhere(satchel.sessions),
        metrics=metrics,
        stopping=Stopping(),
        proxy=MemoryProxy(satchel, holds_token=browsers.holds_token, metrics=metrics),
        queue=AgentsQueue(satchel),
        importing=PageImport(satchel),
    )
    access = BrowserAccess(browsers)
    # FastAPI's documentation pages are off: they load scripts from other sites.
    api = _Api(
        title="Satchel",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        default_response_class=JsonAnswer,
        responses=PROBLEMS,
        redirect_slashes=False,
    )
    api.state.service = service
    api.state.pages = PageState(access=access)
    plugged = plugin_routers(satchel.settings.home)
    own = tuple(module.router for module in _ROUTERS)
    api.state.routers = (*own, *plugged)
    api.router.routes += [route for router in own for route in router.routes]
    for router in plugged:
        api.include_router(router)
    api.router.routes.append(Route("/mcp", McpEndpoint(satchel, service.stopping)))
    api.state.passing_on = PassingOn(service, api)
    api.state.kept = Kept.of(satchel)
    api.router.routes += messages.others.routes
    api.add_exception_handler(SatchelError, _failed)
    api.add_exception_handler(V1Failure, _unfit)
    api.add_exception_handler(Exception, _defective)
    api.add_exception_handler(RequestValidationError, _invalid)
    api.add_exception_handler(HTTPException, _refused)
    gate = RequestGate(
        api,
        access=access,
        hosts=Hosts(settings.host, settings.allowed_hosts),
        requests_per_s=settings.requests_per_s,
        clock=satchel.clock,
        metrics=metrics,
    )
    return App(api, gate, service, browsers, api.state.passing_on)


def _browsers(satchel: Satchel, token: str) -> Browsers:
    home, server, clock = satchel.settings.home, satchel.home.server, satchel.clock
    if server is None:
        return Browsers(home, token=token, clock=clock)
    from satchel.runtime.shared_browsers import SharedBrowsers  # noqa: PLC0415 - most homes have a file

    key = satchel.home.shared_key("browsers")
    return SharedBrowsers(home, server, token=token, key=key, clock=clock)


async def _failed(request: Request, error: Exception) -> Response:
    assert isinstance(error, SatchelError)
    try:
        if (passed := await passing_on_of(request).answer(request, error)) is not None:
            return passed
    except SatchelError as failed:
        error = failed
    wait_s = retry_after(error)
    headers = {"retry-after": str(wait_s)} if wait_s is not None else {}
    return _answer(request, problem_of(error), headers)


async def _unfit(_: Request, error: Exception) -> Response:
    assert isinstance(error, V1Failure)
    return JsonAnswer(error.fields, status_code=error.status)


async def _defective(request: Request, error: Exception) -> Response:
    log_defect(request.scope, error)
    return _answer(request, problem_fields(500, DEFECT))


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    # The official clients have one exception class for an invalid request, with the status 400.
    status = 400 if has_v1_form(request.url.path) else 422
    return _answer(request, problem_fields(status, invalid_detail(error.errors())))


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    methods = _methods_at(request) if error.status_code in (404, 405) else ()
    if methods:
        allowed = ", ".join(methods)
        detail = f"This path has no method {request.method[:20]}. It has: {allowed}."
        return _answer(request, problem_fields(405, detail), {"allow": allowed})
    detail = str(error.detail)
    if error.status_code == 404 and detail == HTTPStatus.NOT_FOUND.phrase:
        detail = (
            "No page has this address."
            if wants_page(request.scope)
            else "There is no such path. GET /openapi.json lists them."
        )
    return _answer(request, problem_fields(error.status_code, detail), error.headers)


def _methods_at(request: Request) -> list[str]:
    """The methods that a path has, in all routers: each of Starlette's routes knows only its own."""
    path = request.url.path
    routers = request.app.state.routers
    routes = [route for router in routers for route in router.routes if isinstance(route, Route)]
    exact = [route for route in routes if route.path == path]
    found = exact or [route for route in routes if route.path_regex.match(path)]
    return sorted({method for route in found for method in route.methods or ()})


def _answer(
    request: Request, problem: Mapping[str, Any], headers: Mapping[str, str] | None = None
) -> Response:
    """A problem: as a page for a person, as JSON for a program, in the form that its client reads."""
    answer: Response
    if wants_page(request.scope):
        answer = error_page(request.scope, problem["status"], problem["detail"])
    elif has_v1_form(request.url.path):
        fields = v1_fields(problem["status"], problem["detail"])
        answer = JsonAnswer(fields, status_code=problem["status"])
    else:
        answer = JsonAnswer(problem, status_code=problem["status"], media_type=PROBLEM_TYPE)
    answer.headers.update(headers or {})
    return answer
