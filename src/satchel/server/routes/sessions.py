"""`/api/sessions`: read conversations, follow them, answer their questions, stop their turns."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Final

import anyio
from fastapi import APIRouter, Header, HTTPException, Query
from starlette.responses import Response

from satchel.errors import StorageLocked, UsageError
from satchel.events import Record, event_to_json, record_to_json
from satchel.runtime import RunningTurn, Session
from satchel.server import shapes
from satchel.server.json_answers import JsonAnswer
from satchel.server.routes.documented import STREAMS
from satchel.server.service import Serves, Service
from satchel.server.streams import EventStream, ServerEvent
from satchel.sessions import info_to_json

__all__ = ["router"]

router = APIRouter(prefix="/api/sessions", tags=["conversations"])

_LOOK_S: Final = 1.0
_MOST_SEQ: Final = 10**15
Limit = Annotated[int, Query(ge=1, le=1000)]
After = Annotated[int, Query(ge=0, le=_MOST_SEQ)]


@router.get("", response_model=list[shapes.Session], summary="List conversations")
async def list_sessions(
    service: Serves, limit: Limit = 50, offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0
) -> Response:
    """List the conversations, the most recent first. The header X-Total-Count says how many there are."""
    infos = await service.satchel.sessions.list()
    shown = [info_to_json(info) for info in infos[offset : offset + limit]]
    return JsonAnswer(shown, headers={"x-total-count": str(len(infos))})


@router.get("/search", response_model=list[shapes.SessionHit], summary="Search conversations")
async def search(
    service: Serves, q: Annotated[str, Query(min_length=1, max_length=1000)], limit: Limit = 20
) -> Response:
    """Search what was said and what tools got and gave. Every word must occur, each as the beginning of a word."""
    hits = await service.satchel.sessions.search(q, limit=limit)
    return JsonAnswer(
        [
            {
                "session": hit.session_id,
                "title": hit.title,
                "seq": hit.seq,
                "turn": hit.turn,
                "kind": hit.kind,
                "at": hit.at,
                "snippet": hit.snippet,
            }
            for hit in hits
        ]
    )


@router.get("/{id}", response_model=shapes.SessionShown, summary="Show a conversation")
async def show(service: Serves, id: str, after: After = 0, limit: Limit = 1000) -> Response:
    """Show a conversation with a page of its events, those with numbers above `after`."""
    store = service.satchel.sessions
    info = await store.info(id)
    records = await store.records(info.id, after_seq=after, limit=limit)
    running = service.sessions.turns_of(info.id)
    open_here = service.sessions.kept_session(info.id)
    questions = [*open_here.open_questions, *open_here.build_questions] if open_here is not None else []
    return JsonAnswer(
        {
            **info_to_json(info),
            "running": bool(running),
            "last_seq": records[-1].seq if records else after,
            "questions": [event_to_json(question) for question in questions],
            "events": [record_to_json(record) for record in records],
        }
    )


@router.delete("/{id}", response_model=shapes.Posted, summary="Delete a conversation")
async def delete(service: Serves, id: str) -> Response:
    """Delete the log of a conversation. Memories of it stay; `DELETE /api/memories/{id}` forgets those."""
    info = await service.satchel.sessions.info(id)
    if service.sessions.turns_of(info.id):
        raise HTTPException(409, f"A turn is running in session {info.id}. Cancel it first.")
    await service.sessions.close(info.id)
    return JsonAnswer({"id": await service.satchel.sessions.delete(info.id)})


@router.get(
    "/{id}/events",
    response_class=EventStream,
    status_code=200,
    responses=STREAMS,
    summary="Follow a conversation",
)
async def events(
    service: Serves,
    id: str,
    after: Annotated[
        int | None,
        Query(
            ge=0,
            le=_MOST_SEQ,
            description="The number of the last event that the client has; none: what comes now.",
        ),
    ] = None,
    interactive: Annotated[bool, Query(description="The client answers questions.")] = False,
    last_event_id: Annotated[
        str | None, Header(description="Instead of `after`, after a reconnection.")
    ] = None,
) -> Response:
    """Stream every event of a conversation, with its number as id: turns, questions, posts, notices.

    An event that is not logged (`text_delta`, `tool_progress`, …) has the number of the one before it. The stream ends
    with the session.
    """
    after_seq = _number(last_event_id) if last_event_id is not None else after
    info = await service.satchel.sessions.info(id)
    following = _followed(service, info.id, after_seq, interactive)
    # The first step opens the session, so that its errors are answers and no ends of streams.
    await anext(following)
    return EventStream(following, stopping=service.stopping, metrics=service.metrics)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise UsageError("The Last-Event-ID is not the number of an event.")
    return int(text)


_OPENED: Final = ServerEvent(name="opened", data={})


async def _followed(
    service: Service, id: str, after: int | None, interactive: bool
) -> AsyncGenerator[ServerEvent, None]:
    """First `_OPENED`, then the events of a session, here or in another process."""
    try:
        async with service.sessions.used(id, interactive=interactive) as session:
            subscription = session.subscribe(after)
            try:
                yield _OPENED
                async for record in subscription:
                    yield _event(record)
            finally:
                await subscription.aclose()
    except StorageLocked:
        async with aclosing(_read_from_log(service, id, after)) as elsewhere:
            async for event in elsewhere:
                yield event


async def _read_from_log(service: Service, id: str, after: int | None) -> AsyncGenerator[ServerEvent, None]:
    """The events of a session that is open in another process, as it writes them."""
    store = service.satchel.sessions
    seq = after if after is not None else (await store.load(id, visit=lambda _: None)).last_seq
    yield _OPENED
    while True:
        for record in await store.records(id, after_seq=seq):
            seq = record.seq
            yield _event(record)
        await anyio.sleep(_LOOK_S)


def _event(record: Record) -> ServerEvent:
    return ServerEvent(name=record.event.type, data=record_to_json(record), id=str(record.seq))


@router.post("/{id}/answer", response_model=shapes.Answered, summary="Answer a question")
async def answer(service: Serves, id: str, request: shapes.Answer) -> Response:
    """Answer an open question: of a tool, for permission, or of a build. If several clients answer, the first holds."""
    async with service.sessions.used(id) as session:
        running = await session.answer(
            request.id, request.text, consent=request.consent, words=request.words, by=request.by
        )
        return _begun(service, session, running)


@router.post("/{id}/resume", response_model=shapes.Answered, summary="Go on with an interrupted turn")
async def resume(service: Serves, id: str) -> Response:
    """Go on with the turn that a program which was killed left unfinished. Calls that had started are not repeated."""
    async with service.sessions.used(id) as session:
        if session.running is not None:
            raise HTTPException(409, f"A turn is running in session {session.id}.")
        return _begun(service, session, await session.resume())


def _begun(service: Service, session: Session, running: RunningTurn | None) -> JsonAnswer:
    if running is not None:
        service.sessions.follow_turn(session, running, interactive=True)
    return JsonAnswer({"turn": running.number if running is not None else None})


@router.post("/{id}/cancel", response_model=shapes.Cancelled, summary="Interrupt the running turn")
async def cancel(service: Serves, id: str) -> Response:
    """Interrupt the running turn. It ends with the status "cancelled" and a valid history."""
    info = await service.satchel.sessions.info(id)
    found = service.sessions.kept_session(info.id)
    running = found.running if found is not None else None
    if running is not None:
        running.cancel()
    return JsonAnswer({"cancelled": running is not None})


@router.post("/{id}/post", response_model=shapes.Posted, status_code=201, summary="Post into a conversation")
async def post(service: Serves, id: str, request: shapes.Post) -> Response:
    """Post a text into a conversation: its clients see it at once, and the next message delivers it to the model."""
    info = await service.satchel.sessions.info(id)
    posted = await service.satchel.post(
        info.id, request.text, source=request.source, untrusted=request.untrusted
    )
    return JsonAnswer({"id": posted}, status_code=201)
