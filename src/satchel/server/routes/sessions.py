"""`/api/sessions`: read conversations, follow them, answer their questions, stop their turns."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final

import anyio
from fastapi import Header, HTTPException, Query, Request
from starlette.responses import Response

from satchel.errors import NotFound, SatchelError, StorageLocked, UsageError
from satchel.events import Record, event_to_json, fields_to_json, record_to_json
from satchel.runtime import RunningTurn, Session
from satchel.runtime.commands import completions, find_command
from satchel.runtime.hosting import last_exchanges, said_before
from satchel.runtime.lines import counted
from satchel.runtime.recap import MOST_SAID, Exchange
from satchel.runtime.rewinding import files_since, rewind
from satchel.runtime.session_state import state_of
from satchel.server import shapes
from satchel.server.command_run import CommandRun
from satchel.server.json_answers import JsonAnswer
from satchel.server.passing_on import passed_after
from satchel.server.routes.documented import STREAMS, api_router
from satchel.server.service import Serves, Service
from satchel.server.streams import EventStream, ServerEvent
from satchel.sessions import hit_to_json, info_to_json

router = api_router(prefix="/api/sessions", tags=["conversations"])

_LOOK_S: Final = 1.0
_MOST_SEQ: Final = 10**15
Limit = Annotated[int, Query(ge=1, le=1000)]
After = Annotated[int, Query(ge=0, le=_MOST_SEQ)]


@router.get("", response_model=list[shapes.SessionResponse], summary="List conversations")
async def list_sessions(
    service: Serves,
    limit: Limit = 50,
    offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
    archived: Annotated[bool, Query(description="List the archived ones instead of the others.")] = False,
) -> Response:
    """List the conversations: pinned ones, then the most recent first. The header X-Total-Count has their number.

    A conversation and its branches are one entry, that of the branch used last. The Builder's own are left out.
    """
    infos = await service.satchel.sessions.listed(archived=archived)
    shown = [info_to_json(info) for info in infos[offset : offset + limit]]
    return JsonAnswer(shown, headers={"x-total-count": str(len(infos))})


@router.get("/search", response_model=list[shapes.SessionHitResponse], summary="Search conversations")
async def search(
    service: Serves,
    q: Annotated[str, Query(min_length=1, max_length=1000, examples=["router"])],
    limit: Limit = 20,
) -> Response:
    """Search messages and the input and output of tools. Every word must occur, each as the beginning of a word."""
    hits = await service.satchel.sessions.search(q, limit=limit)
    return JsonAnswer([hit_to_json(hit) for hit in hits])


@router.get("/said", response_model=list[str], summary="What the user said lately")
async def said(service: Serves, limit: Annotated[int, Query(ge=1, le=MOST_SAID)] = MOST_SAID) -> Response:
    """List the user's newest messages in all conversations, each once, the newest first."""
    found = [text async for text in said_before(service.satchel)]
    return JsonAnswer(found[:limit])


@router.post("", response_model=shapes.SessionStateResponse, summary="Open a conversation")
async def open_session(service: Serves, request: shapes.Opening) -> Response:
    """Open or start a conversation, and return its state. One without any message leaves no log.

    A conversation that is already open keeps its working directory.
    """
    service.check_running()
    satchel = service.satchel
    cwd = _folder(request.cwd) if request.cwd is not None else satchel.settings.cwd
    id = request.session_id
    if id is None and request.last:
        project = satchel.home.projects.find(request.project).id if request.project else ""
        newest = await satchel.sessions.last(cwd, project=project)
        id = newest.id if newest is not None else None
    if id is None:
        async with service.sessions.used(
            cwd=cwd,
            model=request.model,
            mode=request.mode,
            private=request.private,
            project=request.project or "",
            keeps_empty=True,
        ) as session:
            return _state(service, session)
    if request.private:
        raise UsageError("Only a new conversation can be private. Leave out session_id and last.")
    if request.project and not request.last:
        raise UsageError(
            "Only a new conversation is begun in a project. PATCH /api/sessions/{id} moves another one."
        )
    id = await _full_id(service, id)
    is_open = satchel.has_open(id)
    async with service.sessions.used(
        id, model=None if is_open else request.model, mode=None if is_open else request.mode, keeps_empty=True
    ) as session:
        if is_open and request.model is not None:
            session.use_model(await satchel.model(request.model))
        if is_open and request.mode is not None:
            session.mode = request.mode
        return _state(service, session)


def _folder(text: str) -> Path:
    # Not Path.is_dir: it raises where a name is too long.
    if not text.startswith("/") or not os.path.isdir(text):  # noqa: PTH112
        raise UsageError("cwd must be the absolute path of a folder on this machine.")
    return Path(text)


async def _full_id(service: Service, id: str) -> str:
    """The full id of a session, which may be open without a log, because nothing was said in it yet."""
    if service.satchel.has_open(id):
        return id
    return (await service.satchel.sessions.info(id)).id


def _state(service: Service, session: Session) -> JsonAnswer:
    failed_turn, failure = service.sessions.failure_of(session.id)
    settings = service.satchel.settings
    folder = str(settings.project) if settings.project is not None and settings.project_trusted else ""
    found = state_of(session, failed_turn=failed_turn, failure=failure, folder=folder)
    return JsonAnswer(fields_to_json(found))


@router.get("/{id}/state", response_model=shapes.SessionStateResponse, summary="Show a conversation's state")
async def state(service: Serves, id: str) -> Response:
    """Show the running turn, the open questions and the model."""
    async with service.sessions.used(await _full_id(service, id), keeps_empty=True) as session:
        await session.catch_up()
        return _state(service, session)


@router.get("/{id}", response_model=shapes.SessionShownResponse, summary="Show a conversation")
async def show(service: Serves, id: str, after: After = 0, limit: Limit = 1000) -> Response:
    """Show a conversation with a page of its events, those with numbers above `after`."""
    store = service.satchel.sessions
    info = await store.info(id)
    records = await store.records(info.id, after_seq=after, limit=limit)
    running = bool(service.sessions.turns_of(info.id))
    open_here = service.sessions.kept_session(info.id)
    questions = [*open_here.open_questions, *open_here.build_questions] if open_here is not None else []
    if (there := (await service.elsewhere.seen([info.id])).get(info.id)) is not None:
        running, questions = there.is_running, list(there.questions)
    return JsonAnswer(
        {
            **info_to_json(info),
            "running": running,
            "last_seq": records[-1].seq if records else after,
            "questions": [event_to_json(question) for question in questions],
            "events": [record_to_json(record) for record in records],
        }
    )


@router.patch(
    "/{id}", response_model=shapes.SessionResponse, summary="Rename, pin, archive or move a conversation"
)
async def change(service: Serves, id: str, request: shapes.Listing) -> Response:
    """Change what lists show of a conversation with its branches: its title, whether it stands first, whether it is in
    the archive.

    Moved into a project, or out of one, it takes with it what was learnt from it. A message in an archived conversation
    takes it out of the archive.
    """
    if request.title is not None:
        await service.satchel.rename(id, request.title)
    if request.project is not None:
        await service.satchel.move(id, request.project)
    if request.pinned is not None or request.archived is not None:
        await service.satchel.file(id, pinned=request.pinned, archived=request.archived)
    return JsonAnswer(info_to_json(await service.satchel.sessions.info(id)))


@router.post(
    "/{id}/branches", response_model=shapes.SessionResponse, status_code=201, summary="Branch a conversation"
)
async def branch(service: Serves, id: str, request: shapes.Branching) -> Response:
    """Make a conversation that repeats this one up to a turn, to go on otherwise from there. This one stays."""
    store, full = service.satchel.sessions, await _full_id(service, id)
    if request.files:
        async with service.sessions.used(full) as session:
            new = (await rewind(service.satchel, session, request.turn, files=True)).session_id
    else:
        new = await store.branch(full, request.turn)
    return JsonAnswer(info_to_json(await store.info(new)), status_code=201)


@router.get("/{id}/files", response_model=shapes.FilesSinceResponse, summary="List files that tools changed")
async def files(
    service: Serves, id: str, turn: Annotated[int, Query(ge=1, description="The first turn that counts.")]
) -> Response:
    """List the files that a branch with `files` would put back."""
    async with service.sessions.used(await _full_id(service, id)) as session:
        found = await files_since(service.satchel, session, turn, only_looks=True)
    return JsonAnswer(
        {"files": list(found.names) if found else [], "conflicts": list(found.conflicts) if found else []}
    )


@router.delete("/{id}", response_model=shapes.PostedResponse, summary="Delete a conversation")
async def delete(
    service: Serves, id: str, only: Annotated[bool, Query(description="Keep the other branches.")] = False
) -> Response:
    """Delete the logs of a conversation and its branches. Memories of it stay; `DELETE /api/memories/{id}` forgets
    those.
    """
    info = await service.satchel.sessions.info(id)
    await (service.sessions.delete(info.id) if only else service.sessions.delete_branches(info.id))
    return JsonAnswer({"id": info.id})


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
            description="The number of the last event that the client has. Without it, only new events.",
        ),
    ] = None,
    interactive: Annotated[bool, Query(description="The client answers questions.")] = False,
    last_event_id: Annotated[
        str | None, Header(description="Takes the place of `after` when a client reconnects.")
    ] = None,
) -> Response:
    """Stream every event of a conversation, with its number as id: turns, questions, posts, notices.

    An event that is not logged (`text_delta`, `tool_progress`, …) has the number of the one before it. While
    another process has the conversation open, those that are logged come a second later.
    """
    after_seq = _number(last_event_id) if last_event_id is not None else after
    following = _followed(service, await _full_id(service, id), after_seq, interactive)
    # The first step opens the session, so that its errors are answers and no ends of streams.
    await anext(following)
    return service.stream(following)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise UsageError("The Last-Event-ID is not the number of an event.")
    return int(text)


_OPENED: Final = ServerEvent(name="opened", data={})


async def _followed(
    service: Service, id: str, after: int | None, interactive: bool
) -> AsyncGenerator[ServerEvent, None]:
    """First `_OPENED`, then the events of a session. While another process has it open, those that it writes."""
    satchel, store = service.satchel, service.satchel.sessions
    is_first = True
    try:
        while True:
            with suppress(StorageLocked):
                # A log in files can't be asked for: once another process had it, it is only read.
                opens = is_first or store.is_shared
                if satchel.has_open(id) or (opens and await store.writer(id) is None):
                    async with service.sessions.used(
                        id, interactive=interactive, keeps_empty=True, follows=True
                    ) as session:
                        after = session.last_seq if after is None else after
                        subscription = session.subscribe(after)
                        try:
                            if is_first:
                                yield _OPENED
                            is_first = False
                            async for record in subscription:
                                after = record.seq
                                yield _event(record)
                        finally:
                            await subscription.aclose()
            if after is None:
                after = (await store.load(id, visit=lambda _: None)).last_seq
            if is_first:
                yield _OPENED
            is_first = False
            for record in await store.records(id, after_seq=after):
                after = record.seq
                yield _event(record)
            await anyio.sleep(_LOOK_S)
    except SatchelError:  # it was deleted, or can't be read: a client that comes back is told
        if is_first:
            raise


def _event(record: Record) -> ServerEvent:
    return ServerEvent(name=record.event.type, data=record_to_json(record), id=str(record.seq))


@router.post("/{id}/turns", response_model=shapes.BegunTurnResponse, status_code=201, summary="Begin a turn")
async def begin_turn(service: Serves, id: str, request: shapes.TurnRequest) -> Response:
    """Send a message. `GET /api/sessions/{id}/events` streams its turn, which also runs without a reader.

    It goes to the model, whatever a build asks: answers go to `/answer`, and `POST /api/chat` tells them apart.

    While another turn runs, the message waits in line, at most ten of them (429). It is on disk. `/back`, sent as a
    command, takes the newest one back.
    """
    service.check_running()
    async with service.sessions.used(await _full_id(service, id), keeps_empty=True) as session:
        if request.turn is not None and session.turns + 1 != request.turn:
            raise HTTPException(
                409,
                f"Session {session.id} has {counted(session.turns, 'turn')}, so the next one is not number "
                f"{request.turn}.",
            )
        running = await session.start(
            request.text,
            memory=request.memory,
            attached=request.attached,
            files=[file.block() for file in request.files],
        )
        service.sessions.follow_turn(session, running, interactive=request.interactive)
        begun = {"turn": running.number, "after_seq": running.after_seq, "waiting": ""}
        if running.waits:
            begun = {"turn": 0, "after_seq": running.after_seq, "waiting": running.waited}
        return JsonAnswer(begun, status_code=201)


@router.get("/{id}/exchanges", response_model=list[Exchange], summary="The last exchanges")
async def exchanges(service: Serves, id: str, limit: Annotated[int, Query(ge=1, le=100)] = 3) -> Response:
    """Show the newest exchanges, oldest first."""
    if service.satchel.has_open(id) and not await _is_logged(service, id):
        return JsonAnswer([])
    return JsonAnswer(list(map(fields_to_json, await last_exchanges(service.satchel, id, limit))))


async def _is_logged(service: Service, id: str) -> bool:
    try:
        await service.satchel.sessions.info(id)
    except NotFound:
        return False
    return True


@router.get(
    "/{id}/completions", response_model=list[shapes.CompletionResponse], summary="Complete what is typed"
)
async def complete(
    service: Serves, id: str, text: Annotated[str, Query(max_length=10_000, examples=["/mem"])]
) -> Response:
    """List completions for the last word of a message or a `/` command."""
    async with service.sessions.used(await _full_id(service, id), keeps_empty=True) as session:
        found = await completions(text, service.satchel, session)
    return JsonAnswer([{"word": word, "help": about} for word, about in found])


@router.post(
    "/{id}/command", response_class=EventStream, status_code=200, responses=STREAMS, summary="Run a / command"
)
async def command(service: Serves, id: str, request: shapes.Command) -> Response:
    """Run a `/` command of the terminal.

    The stream has `tell` {text} and `event` (an event of a tool that it runs) while it runs. At the end comes `result`
    {lines, events, confirm, change, message, resumes, leaves}, or `error` with a problem. With `confirm`, nothing was
    done yet: it is a question to the user; after a yes, send the command again with `confirmed`. A client that leaves
    interrupts the command.
    """
    service.check_running()
    found = find_command(request.text.strip())
    if found is None:
        raise UsageError(
            "A command begins with / and a word. GET /api/sessions/{id}/completions?text=/ lists them."
        )
    async with service.sessions.used(await _full_id(service, id), keeps_empty=True) as session:
        run = CommandRun(service, session.id, *found, confirmed=request.confirmed)
    return service.stream(run.events())


@router.post("/{id}/answer", response_model=shapes.AnsweredResponse, summary="Answer a question")
async def answer(service: Serves, id: str, request: shapes.Answer) -> Response:
    """Answer an open question of a tool, of a build, or for permission. The first answer is used."""
    id = await _full_id(service, id)
    await service.check_here(id)
    async with service.sessions.used(id) as session:
        running = await session.answer(
            request.id, request.text, consent=request.consent, words=request.words, by=request.by
        )
        return _begun(service, session, running)


@router.post("/{id}/resume", response_model=shapes.AnsweredResponse, summary="Resume an interrupted turn")
async def resume(service: Serves, id: str) -> Response:
    """Resume the turn that was unfinished when Satchel was killed. Calls that had started are not repeated."""
    async with service.sessions.used(id) as session:
        if session.running is not None:
            raise HTTPException(409, f"A turn is running in session {session.id}.")
        return _begun(service, session, await session.resume())


def _begun(service: Service, session: Session, running: RunningTurn | None) -> JsonAnswer:
    if running is not None:
        service.sessions.follow_turn(session, running, interactive=True)
    return JsonAnswer({"turn": running.number if running is not None else None})


@router.post("/{id}/cancel", response_model=shapes.CancelledResponse, summary="Interrupt the running turn")
async def cancel(request: Request, service: Serves, id: str) -> Response:
    """Interrupt the running turn. It ends with the status "cancelled" and a valid history."""
    id = await _full_id(service, id)
    await service.check_here(id)
    running = service.sessions.to_stop(id, passed_after(request.scope))
    if running is not None:
        running.cancel()
    return JsonAnswer({"cancelled": running is not None})


@router.post(
    "/{id}/post", response_model=shapes.PostedResponse, status_code=201, summary="Post into a conversation"
)
async def post(service: Serves, id: str, request: shapes.Post) -> Response:
    """Post a text into a conversation: its clients see it at once, and the next message delivers it to the model."""
    info = await service.satchel.sessions.info(id)
    posted = await service.satchel.post(
        info.id, request.text, source=request.source, untrusted=request.untrusted
    )
    return JsonAnswer({"id": posted}, status_code=201)
