"""`POST /api/agui`: the agent for front ends that speak AG-UI."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from fastapi import APIRouter, HTTPException, Request
from starlette.responses import Response

from satchel.addons.agui.runs import (
    NAMESPACE,
    ResumeEntry,
    RunAgentInput,
    asked_of,
    consent_in,
    run_events,
    text_in,
)
from satchel.errors import NotFound
from satchel.events import AskUser, QuestionAsked
from satchel.runtime import RunningTurn, Session
from satchel.runtime.pictures import content_of
from satchel.server.client_turns import StartedTurn, begin, session_of_thread
from satchel.server.passing_on import passing_on_of
from satchel.server.service import Serves, Service
from satchel.server.streams import EVENT_STREAM, EventStream

router = APIRouter(tags=["conversations"])

_STREAM: Final[dict[int | str, Any]] = {
    200: {"description": "The events of the run.", "content": {EVENT_STREAM: {}}}
}


@router.post(
    "/api/agui",
    response_class=EventStream,
    status_code=200,
    responses=_STREAM,
    summary="Run the agent (AG-UI)",
)
async def run(service: Serves, request: RunAgentInput, sent: Request) -> Response:
    """Run the agent in a thread and stream the events of AG-UI 1.0.

    A run that ends with the outcome `interrupt` waits for a permission or an answer: the next run of the thread gives
    it in `resume`. Calls of the front end's tools have no result in the stream; the next run's messages have it.
    """
    if service.stopping.has_begun:
        raise HTTPException(503, "The server is stopping.")
    start = (
        partial(_resumed, service, request, request.resume)
        if request.resume
        else partial(begin, service, asked_of(request))
    )
    begun = await passing_on_of(sent).begin(sent, start)
    if isinstance(begun, Response):
        return begun
    events = run_events(
        begun.records,
        request=request,
        session_id=begun.session_id,
        read_file=partial(content_of, service.satchel.sessions, begun.session_id),
        goes_on=begun.goes_on,
        waiting=begun.waiting,
    )
    return service.stream(events, resumes=False)


async def _resumed(service: Service, request: RunAgentInput, entries: Sequence[ResumeEntry]) -> StartedTurn:
    session_id = await session_of_thread(service, NAMESPACE, request.threadId)
    async with service.sessions.used(session_id, interactive=True) as session:
        running, after = None, session.last_seq
        for entry in entries:
            begun = await _answer(session, entry)
            if begun is not None:
                running = begun
                service.sessions.follow_turn(session, begun, interactive=True)
        is_new, running = running is not None, running or session.running
        if running is None:
            raise NotFound(f"No run of thread {request.threadId!r} waits for an answer.")
        return StartedTurn(
            session_id=session_id,
            records=running.records(None if is_new else after),
            after=running.after_seq if is_new else after,
            goes_on=0 if is_new else running.number,
            waiting=session.open_questions,
        )


async def _answer(session: Session, entry: ResumeEntry) -> RunningTurn | None:
    """Answer one question. Returns the turn that this begins, if it begins one."""
    id = entry.interruptId
    for question in session.open_questions:
        match question:
            case QuestionAsked(id=known, kind="permission") if known == id:
                return await session.answer(id, consent=consent_in(entry), by="ag-ui")
            case QuestionAsked(id=known) if known == id:
                return await session.answer(id, text_in(entry), by="ag-ui")
            case AskUser(call_id=known) if known == id:
                return await session.answer(id, text_in(entry) or "I'd rather not say.", by="ag-ui")
            case _:
                pass
    raise NotFound(f"No interrupt {id!r} is open.")
