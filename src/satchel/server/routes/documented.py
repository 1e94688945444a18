"""The routers of the HTTP interface, and what the description of each route says of its errors, streams and lists."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from satchel.server.json_answers import JsonAnswer
from satchel.server.problems import PROBLEM_TYPE, Problem
from satchel.server.streams import EVENT_STREAM
from satchel.server.v1_errors import V1Error

_ABOUT: Final = {
    400: "The request is not valid for the thing that it names.",
    401: "The token is missing or wrong.",
    403: "A permission rule, a budget or the sandbox refused it, or the request came from another site's page.",
    404: "What the request names does not exist.",
    405: "The path has no such method.",
    408: "The body took too long to arrive.",
    409: "The request conflicts with something in progress.",
    413: "The body is too long.",
    421: "The server is not known by the name in the Host header.",
    422: "The request doesn't have the expected form.",
    429: "There were too many requests.",
    431: "The headers are too long.",
    500: "An internal error.",
    502: "A language model refused the request, or its key is missing.",
    503: "Something that is needed is unavailable (the database, a model, the sandbox), or the server is stopping.",
    507: "The disk is full or can't be written.",
}


def _answers(media_type: str, model: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    # FastAPI would compile a `model` anew for each status of each route.
    content = {media_type: {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}}}
    return {status: {"description": about, "content": content} for status, about in _ABOUT.items()}


PROBLEMS: Final = _answers(PROBLEM_TYPE, Problem)
"""Every request may end with one of these."""
V1_ERRORS: Final = _answers("application/json", V1Error)
"""The same below /v1."""
ERROR_SCHEMAS: Final[dict[str, Any]] = models_json_schema(
    [(Problem, "serialization"), (V1Error, "serialization")], ref_template="#/components/schemas/{model}"
)[1]["$defs"]
"""What they refer to."""
UPSTREAM_ERRORS: Final[dict[int | str, dict[str, Any]]] = {
    status: {"description": about, "content": {"application/json": {}}}
    for status, about in {
        **_ABOUT,
        502: "Satchel can't reach the provider, or the provider answered so.",
        504: "The provider doesn't answer in time.",
    }.items()
}
"""The same where another server's errors are passed on, in whatever form."""
STREAMS: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "Events, each with an id from which a client resumes with Last-Event-ID.",
        "content": {EVENT_STREAM: {}},
    }
}
EVENT_SCHEMA: Final[dict[str, Any]] = {
    "title": "Event",
    "description": "One event of the stream. `data` is JSON; streams that name no events have `data` only.",
    "type": "object",
    "properties": {"id": {"type": "string"}, "event": {"type": "string"}, "data": {"type": "string"}},
}
"""Of each event of a stream. OpenAPI 3.1 has no word for it; client generators read the media type's schema so."""


def api_router(*, responses: dict[int | str, dict[str, Any]] = PROBLEMS, **options: Any) -> APIRouter:
    """Make a router whose routes answer in JSON, and say which errors they may end with.

    The routes serve as they are: `FastAPI.include_router`, which would give them that, builds each of them a second
    time at the first request to an application.
    """
    return APIRouter(responses=responses, default_response_class=JsonAnswer, **options)
