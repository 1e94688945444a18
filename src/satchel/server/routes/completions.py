"""The agent as a model for clients of OpenAI: chat completions, responses, embeddings, models."""

from __future__ import annotations

from functools import partial
from typing import Annotated, TypeAlias

from fastapi import Header, Request
from starlette.responses import Response

from satchel.errors import ConfigError, NotFound
from satchel.server import responses
from satchel.server.client_turns import ClientRequest, StartedTurn, begin, drop_response
from satchel.server.completions import (
    ChatCompletion,
    CompletionRequest,
    ModelCard,
    ModelCards,
    asked_of,
    chunks,
    completion,
)
from satchel.server.embeddings import EmbeddingList, EmbeddingRequest, embeddings
from satchel.server.json_answers import JsonAnswer
from satchel.server.passing_on import passing_on_of
from satchel.server.responses import DeletedResponse, ResponseObject, ResponseRequest
from satchel.server.routes.documented import V1_ERRORS, api_router
from satchel.server.routes.messages import passes_on
from satchel.server.service import Serves, Service
from satchel.server.streams import EVENT_STREAM
from satchel.server.v1_errors import V1Failure
from satchel.server.v1_requests import EPHEMERAL_MODEL, HOME_MODEL, check_options, unsupported

router = api_router(tags=["openai"], responses=V1_ERRORS)

RetryCount: TypeAlias = Annotated[
    str | None, Header(description="Sent by the official clients: a request that is sent again.")
]


@router.post(
    "/v1/chat/completions",
    response_model=ChatCompletion,
    responses={200: {"content": {EVENT_STREAM: {}}}},
    summary="Complete a chat",
)
async def complete(
    service: Serves,
    request: CompletionRequest,
    sent: Request,
    x_stainless_retry_count: RetryCount = None,
) -> Response:
    """Answer the last message of a conversation, as OpenAI's endpoint does; with `stream`, as a stream of chunks.

    The model also has Satchel's memory and tools. Calls of the client's own tools are returned. A conversation that was
    held here before is continued, and only what is new in it is captured.
    """
    asked = asked_of(request, is_retry=_is_retry(x_stainless_retry_count))
    begun = await _begun(service, sent, asked)
    if isinstance(begun, Response):
        return begun
    headers = _headers(asked, begun)
    if not request.stream:
        answer = await completion(service, asked, begun, model=request.model)
        return JsonAnswer(answer, headers=headers)
    usage = request.stream_options is not None and request.stream_options.include_usage
    events = chunks(service, asked, begun, model=request.model, include_usage=usage)
    return service.stream(events, resumes=False, headers=headers)


@router.post(
    "/v1/responses",
    response_model=ResponseObject,
    responses={200: {"content": {EVENT_STREAM: {}}}},
    summary="Create a response",
)
async def respond(
    service: Serves, request: ResponseRequest, sent: Request, x_stainless_retry_count: RetryCount = None
) -> Response:
    """Answer as OpenAI's endpoint does; with `stream`, as a stream of named events.

    A conversation is continued by `previous_response_id`, or by all its items.
    """
    request = await responses.resolved(service, request)
    asked = responses.asked_of(request, is_retry=_is_retry(x_stainless_retry_count))
    begun = await _begun(service, sent, asked)
    if isinstance(begun, Response):
        return begun
    headers = _headers(asked, begun)
    if not request.stream:
        return JsonAnswer(await responses.response(service, asked, begun, request), headers=headers)
    events = responses.events(service, asked, begun, request)
    return service.stream(events, resumes=False, headers=headers)


@router.get("/v1/responses/{id}", response_model=ResponseObject, summary="Show a response")
async def show_response(service: Serves, id: str, stream: bool = False) -> Response:
    """Show an earlier response with its items. Instructions, tools and parameters of its request are not kept."""
    if stream:
        raise unsupported("stream", stream, "A response that is complete is not streamed again")
    return JsonAnswer(await responses.stored(service, id))


@router.delete("/v1/responses/{id}", response_model=DeletedResponse, summary="Delete a response")
async def delete_response(service: Serves, id: str) -> Response:
    """Let nobody show a response or continue from it any more. The conversation stays in Satchel, with its memories:
    `DELETE /api/sessions/{id}` and forgetting remove those.
    """
    await drop_response(service, id)
    return JsonAnswer(DeletedResponse(id=id).model_dump())


@router.post("/v1/embeddings", response_model=EmbeddingList, summary="Embed texts")
async def embed(service: Serves, request: EmbeddingRequest) -> Response:
    """Embed texts with the embedder of memory (`memory.embedder`). Nothing of them is kept."""
    return JsonAnswer(await embeddings(service, request))


async def _begun(service: Service, sent: Request, asked: ClientRequest) -> StartedTurn | Response:
    """The turn of a request, or another answer; see `PassingOn.begin`."""
    service.check_running()
    try:
        await check_options(service, asked)
        return await passing_on_of(sent).begin(sent, partial(begin, service, asked))
    except (ConfigError, NotFound) as error:
        raise V1Failure(404, str(error), param="model", code="model_not_found") from error


def _headers(asked: ClientRequest, begun: StartedTurn) -> dict[str, str]:
    named = {"x-satchel-session": begun.session_id, "x-satchel-instead-of": begun.instead_of}
    return {name: id for name, id in named.items() if id and asked.is_kept}


def _is_retry(count: str | None) -> bool:
    return (count or "0") not in ("", "0")


@router.get("/v1/models", response_model=ModelCards, summary="List the models")
async def models(service: Serves, sent: Request) -> Response:
    """List names for `model`. Any other PROVIDER:MODEL of the settings works, too.

    A client of Anthropic (header `anthropic-version`) gets its provider's list.
    """
    if passes_on(sent):
        return await service.proxy.other(sent, stopping=service.stopping)
    cards = [ModelCard(id=name).model_dump() for name in await _names(service)]
    return JsonAnswer({"object": "list", "data": cards})


@router.get("/v1/models/{id:path}", response_model=ModelCard, summary="Show a model")
async def model(service: Serves, id: str, sent: Request) -> Response:
    """Show one of these models."""
    if passes_on(sent):
        return await service.proxy.other(sent, stopping=service.stopping)
    if id not in await _names(service):
        raise V1Failure(404, f"There is no model {id[:200]!r}.", param="model", code="model_not_found")
    return JsonAnswer(ModelCard(id=id).model_dump())


async def _names(service: Service) -> list[str]:
    answering = await service.satchel.model()
    return [HOME_MODEL, EPHEMERAL_MODEL, f"{answering.provider}:{answering.model}"]
