"""The program itself: whether it serves, what it counts, which tools there are, and what was spent."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import Query
from starlette.responses import PlainTextResponse, Response

from satchel.errors import NotFound, StorageError
from satchel.plain import as_json
from satchel.runtime.background_models import spent_to_json
from satchel.runtime.tooling import ToolEntry
from satchel.server import shapes
from satchel.server.json_answers import JsonAnswer
from satchel.server.metrics import METRICS_TYPE
from satchel.server.pages.search import ResultGroup, find_everything
from satchel.server.routes.documented import api_router
from satchel.server.service import Serves, Service
from satchel.tools import Registry

router = api_router(tags=["program"])


@router.get("/healthz", response_model=shapes.CheckedResponse, summary="Whether the server answers")
async def healthz() -> Response:
    """Report that the server runs. Needs no token."""
    return JsonAnswer({"status": "ok"})


@router.get("/readyz", response_model=shapes.ReadinessResponse, summary="Whether requests can be served")
async def readyz(service: Serves) -> Response:
    """Report whether the database works and the server is not stopping. Needs no token. The status is 503 if not."""
    ready = await _is_ready(service)
    return JsonAnswer({"ready": ready}, status_code=200 if ready else 503)


async def _is_ready(service: Service) -> bool:
    if service.stopping.has_begun or service.satchel.home.database is None:
        return False
    try:
        await service.satchel.sessions.inbox.version()
    except StorageError:
        return False
    return True


@router.get("/metrics", response_class=PlainTextResponse, summary="Figures for Prometheus")
async def metrics(service: Serves) -> Response:
    """Show counts and times of requests, turns and streams in the text format of Prometheus."""
    gauges = {
        "satchel_streams": ("Event streams that are open.", float(service.metrics.streams)),
        "satchel_turns_running": ("Turns that run now.", float(service.sessions.running)),
    }
    return Response(service.metrics.text(gauges=gauges), media_type=METRICS_TYPE)


@router.get("/api/search", response_model=list[ResultGroup], summary="Search everything")
async def search(
    service: Serves, q: Annotated[str, Query(min_length=1, max_length=1000, examples=["router"])]
) -> Response:
    """Search conversations, memories, documents, capabilities and settings: the best six of each kind."""
    return JsonAnswer([asdict(group) for group in await find_everything(service.satchel, q)])


@router.get("/api/tools", response_model=list[shapes.ToolResponse], summary="List tools")
async def list_tools(service: Serves) -> Response:
    """List all tools, including those that can't be used, with the reason."""
    registry = await service.satchel.tools()
    return JsonAnswer([_tool(entry, registry) for entry in await service.satchel.tooling.entries()])


@router.get("/api/tools/{name}", response_model=shapes.ToolResponse, summary="Show a tool")
async def show_tool(service: Serves, name: str) -> Response:
    """Show a tool with the schema of its input."""
    registry = await service.satchel.tools()
    for entry in await service.satchel.tooling.entries():
        if entry.name == name:
            return JsonAnswer(_tool(entry, registry))
    raise NotFound(f"There is no tool {name!r}. GET /api/tools lists them.")


def _tool(entry: ToolEntry, registry: Registry) -> dict[str, object]:
    found = registry.get(entry.name)
    schema = dict(found.spec.input_schema) if found is not None else None
    return {**as_json(entry), "input_schema": schema}


@router.get(
    "/api/usage",
    response_model=list[shapes.SpentResponse],
    summary="Tokens and cost by day, model and purpose",
)
async def usage(service: Serves, days: Annotated[int, Query(ge=1, le=10_000)] = 30) -> Response:
    """Show what the models cost on the most recent days with any use."""
    return JsonAnswer(spent_to_json(await service.satchel.usage(), days=days))
