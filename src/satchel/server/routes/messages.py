"""`POST /v1/messages` and what belongs to it: the memory proxy for clients of Anthropic."""

from __future__ import annotations

from typing import Any, Final

from fastapi import HTTPException, Request
from starlette.responses import Response

from satchel.server.routes.documented import UPSTREAM_ERRORS, api_router
from satchel.server.service import Serves
from satchel.server.streams import EVENT_STREAM
from satchel.server.v1_errors import V1Failure

router = api_router(tags=["anthropic"], responses=UPSTREAM_ERRORS)

_BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {"type": "object", "additionalProperties": True},
                "example": {
                    "model": "claude-sonnet-5-5",
                    "max_tokens": 1000,
                    "messages": [{"role": "user", "content": "What did I say about the router?"}],
                },
            }
        },
    }
}
_ANSWER: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "The provider's answer, unchanged.",
        "content": {"application/json": {}, EVENT_STREAM: {}},
    },
    "default": {"description": "Whatever the provider answers, unchanged."},
}


@router.post(
    "/v1/messages",
    response_class=Response,
    responses=_ANSWER,
    openapi_extra=_BODY,
    summary="Ask the provider, with memory",
)
async def messages(service: Serves, request: Request) -> Response:
    """Pass a request on to the provider, byte for byte, with a block of memory after the user's newest message if there
    is any. What the user and the model say is captured.
    """
    service.check_running()
    return await service.proxy.messages(request, stopping=service.stopping)


@router.post(
    "/v1/messages/count_tokens",
    response_class=Response,
    responses=_ANSWER,
    openapi_extra=_BODY,
    summary="Count tokens",
)
async def count_tokens(service: Serves, request: Request) -> Response:
    """Pass the request on, with the memory that was added to the conversation."""
    return await service.proxy.count(request, stopping=service.stopping)


others = api_router(include_in_schema=False)
"""Comes after all other routes."""


@others.api_route("/v1/{path:path}", methods=["GET", "POST", "PUT", "PATCH", "DELETE"])
async def other(service: Serves, request: Request) -> Response:
    """Pass other requests of Anthropic clients on unchanged."""
    if not passes_on(request) and request.url.path.startswith("/v1/audio/"):
        raise V1Failure(
            404,
            f"{request.url.path[:100]}: Satchel neither speaks nor listens. Give your client another provider for "
            "audio.",
            code="unsupported_endpoint",
        )
    if not passes_on(request):
        raise HTTPException(
            404,
            "There is no such path. Clients of OpenAI find /v1/chat/completions, /v1/responses, /v1/embeddings and "
            "/v1/models here; those of Anthropic say their version in the header anthropic-version, and what they ask "
            "is passed on.",
        )
    return await service.proxy.other(request, stopping=service.stopping)


def passes_on(request: Request) -> bool:
    """Whether a client of Anthropic sent this, to a path that others use too."""
    return "anthropic-version" in request.headers
