"""`POST /api/chat`: one message, and its turn as a stream of events."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Header, HTTPException, Query, Request
from starlette.responses import Response

from satchel.errors import NotFound, UsageError
from satchel.events import TurnStart
from satchel.messages import block_to_json
from satchel.runtime import Session
from satchel.runtime.build_answers import hear_line
from satchel.runtime.turns import is_busy
from satchel.server.json_answers import JsonAnswer
from satchel.server.passing_on import BEGUN, is_passed_on
from satchel.server.routes.documented import STREAMS, api_router
from satchel.server.service import Serves, Service
from satchel.server.shapes import AttachmentResponse, ChatRequest
from satchel.server.streams import EventStream
from satchel.server.turn_stream import TurnPosition, begun_events, heard_events, resumed_events

router = api_router(tags=["conversations"])

_FIRST: Final = 20
"""A turn begins within this many records after the previous one; notices may come between."""


@router.post(
    "/api/chat", response_class=EventStream, status_code=200, responses=STREAMS, summary="Send a message"
)
async def chat(
    service: Serves,
    request: ChatRequest,
    asked: Request,
    last_event_id: Annotated[
        str | None, Header(description="Resumes the stream of a turn after this event, and begins none.")
    ] = None,
) -> Response:
    """Begin a turn and stream its events.

    `start`, then any number of `tool_start` {name, input}, `tool_progress` {name, data}, `tool_result` {name, result,
    isError}, `text_delta` {text}, `memory` {memories}, `question`, `answered`, `notice`, `build` and `resumed`; at the
    end `response` {text, buildId, pendingQuestion, toolCalls, status, usage}, or `error` with a problem.

    While another turn runs, the message waits in line: the first event is `waiting` {sessionId, id}, and `start` comes
    when its turn begins. The 11th message that waits is refused (429).

    A message that answers a question of a build that this session asked for goes to that build, and the one event is
    `response`, which says so. It also says where a message looks like an answer, and nothing asks, or several builds.
    A message that is no answer while a build asks goes to the model, and a `notice` shows the question once more.

    The turn goes on when the client leaves. To get the rest, send the request again with the `Last-Event-ID`.
    """
    if last_event_id is not None:
        return await _resumed(service, TurnPosition.parse(last_event_id))
    service.check_running()
    known = request.session_id is not None
    async with service.sessions.used(
        request.session_id,
        interactive=request.interactive,
        model=None if known else request.model,
        mode=None if known else request.mode,
        private=False if known else request.private,
        project="" if known else request.project or "",
    ) as session:
        if known:
            await _check_known(service, session, request)
        note = ""
        if known and not request.attachments:
            heard = await hear_line(session, request.message, by="a program")
            if not heard.is_message:
                return service.stream(heard_events(session, heard))
            note = heard.note
        running = await session.start(
            request.message,
            memory=request.memory,
            files=[file.block() for file in request.attachments],
        )
        service.sessions.follow_turn(session, running, interactive=request.interactive)
    if is_passed_on(asked.scope):  # the other server follows it in the log
        waited = running.waited if running.waits else ""
        begun = {"session_id": session.id, "after": running.after_seq, "waited": waited, "note": note}
        return JsonAnswer(begun, status_code=BEGUN)
    return service.stream(begun_events(session.id, running, note=note))


@router.post(
    "/api/attachments",
    response_model=AttachmentResponse,
    status_code=201,
    summary="Send a file for a message",
)
async def attach(
    service: Serves,
    request: Request,
    filename: Annotated[str, Query(max_length=1_000, description="What the user calls it.")] = "",
) -> Response:
    """Store the body as a file that waits for its message, for a day. `attachments` of POST /api/chat names it.

    At most 15 MB. What it is is judged by its bytes.
    """
    return JsonAnswer(block_to_json(await service.uploaded(await request.body(), filename)), status_code=201)


async def _check_known(service: Service, session: Session, request: ChatRequest) -> None:
    if request.mode is not None or request.private or request.project:
        raise UsageError(
            "mode, private and project are for a new session. Leave them out, or leave out session_id."
        )
    if request.model is not None:
        if await is_busy(session.running):
            raise HTTPException(
                409,
                f"A turn is running in session {session.id}. Wait until it ends, or leave out the model.",
            )
        session.use_model(await service.satchel.model(request.model))


async def _resumed(service: Service, place: TurnPosition) -> Response:
    # Before the stream begins, so that an unknown session is a 404.
    first = await service.satchel.sessions.records(place.session_id, after_seq=place.first, limit=_FIRST)
    if not first:
        raise NotFound(f"Session {place.session_id} has no event after {place.first}.")
    turn = next((record.event.turn for record in first if isinstance(record.event, TurnStart)), None)
    return service.stream(resumed_events(service, place, turn))
