"""A turn as the events of `POST /api/chat`: the names and shapes of seed-0, each with an id to resume from."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final, assert_never

import anyio

from satchel.errors import SatchelError, UsageError
from satchel.events import (
    AskUser,
    BuildPosted,
    Compaction,
    Failure,
    MemorySurfaced,
    MessageTakenBack,
    MessageWaiting,
    Notice,
    Posted,
    QuestionAnswered,
    QuestionAsked,
    Record,
    SessionStart,
    ThinkingDelta,
    TurnEnd,
    TurnResumed,
    TurnStart,
    is_transient,
)
from satchel.plain import as_json
from satchel.runtime import Satchel, Session
from satchel.runtime.build_answers import Heard
from satchel.runtime.turns import RunningTurn, memories_to_json
from satchel.server.problems import problem_of
from satchel.server.service import Service
from satchel.server.streams import ServerEvent
from satchel.sessions.view import LastWords, Part, Said, SessionView, ToolCall

_PAGE: Final = 500
_LOOK_S: Final = 1.0
_PLACE: Final = re.compile(r"([A-Za-z0-9:-]{1,64})\.(\d{1,15})\.(\d{1,15})\.(\d{1,15})")
_INTERRUPTED: Final = (
    "The server stopped during this turn. To resume it: POST /api/sessions/ID/resume"
    " - or send the next message."
)

_TAKEN_BACK: Final = "The message was taken back."


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnPosition:
    """A place in a turn, which the id of an event names.

    Attributes:
        session_id: The session.
        first: The number of the record before the turn's first one.
        seq: The number of the last logged record that came.
        chars: How many characters of the answer that is being written came after it.
    """

    session_id: str
    first: int
    seq: int
    chars: int = 0

    @classmethod
    def parse(cls, text: str) -> TurnPosition:
        """The place that an id names.

        Raises:
            UsageError: It is no id of an event of a turn.
        """
        found = _PLACE.fullmatch(text.strip())
        if found is None:
            raise UsageError("The Last-Event-ID is not the id of an event of POST /api/chat.")
        first, seq, chars = (int(part) for part in found.groups()[1:])
        if seq < first:
            raise UsageError("The Last-Event-ID points to a place before its turn.")
        return cls(session_id=found[1], first=first, seq=seq, chars=chars)

    def __str__(self) -> str:
        return f"{self.session_id}.{self.first}.{self.seq}.{self.chars}"


async def begun_events(
    session_id: str, running: RunningTurn, *, note: str = ""
) -> AsyncGenerator[ServerEvent, None]:
    """The events of a turn from its beginning, which it may wait for; `note` is what the user is told first, or ""."""
    if note:
        yield _noted(note)
    if running.waits:
        yield ServerEvent(name="waiting", data={"sessionId": session_id, "id": running.waited})
        await running.begun()
    start = TurnPosition(session_id=session_id, first=running.after_seq, seq=running.after_seq)
    result = running.result_or_none
    if running.number or result is None:
        async with aclosing(turn_events(running.records(), start=start)) as events:
            async for event in events:
                yield event
    else:
        yield _Translator(start).response(result.status, _TAKEN_BACK)


def _noted(text: str) -> ServerEvent:
    return ServerEvent(name="notice", data={"part": "capabilities", "text": text})


async def begun_elsewhere(
    service: Service, session_id: str, after: int, waited: str, note: str
) -> AsyncGenerator[ServerEvent, None]:
    """The same for a turn that another server has begun, from the log.

    Args:
        service: Has the log.
        session_id: The full id.
        after: The number of a record before its first one.
        waited: The id of the message that waits in line; "" if it doesn't.
        note: As of `begun_events`.
    """
    if note:
        yield _noted(note)
    if waited:
        yield ServerEvent(name="waiting", data={"sessionId": session_id, "id": waited})
    first = await _first_of(service.satchel, session_id, after, waited)
    seq = first.seq - 1 if first is not None else after
    start = TurnPosition(session_id=session_id, first=seq, seq=seq)
    match first:
        case Record(event=TurnStart(turn=turn)):
            async with aclosing(resumed_events(service, start, turn)) as events:
                async for event in events:
                    yield event
        case Record():
            yield _Translator(start).response("cancelled", _TAKEN_BACK)
        case None:
            yield _Translator(start).response("interrupted", _INTERRUPTED)


async def records_elsewhere(
    service: Service, session_id: str, after: int, waited: str
) -> AsyncGenerator[Record, None]:
    """The records of such a turn, none if it didn't begin; see `begun_elsewhere`."""
    first = await _first_of(service.satchel, session_id, after, waited)
    if first is not None and isinstance(first.event, TurnStart):
        start = TurnPosition(session_id=session_id, first=first.seq - 1, seq=first.seq - 1)
        async with aclosing(_resumed(service, start, first.event.turn)) as records:
            async for record in records:
                yield record


async def _first_of(satchel: Satchel, session_id: str, after: int, waited: str) -> Record | None:
    """The record with which such a turn begins, once it is written, or with which its message was taken back; None if
    nobody writes it any more.
    """
    async with aclosing(written(satchel, session_id, after)) as records:
        async for record in records:
            match record.event:
                case TurnStart(inbox=inbox) if not waited or waited in inbox:
                    return record
                case MessageTakenBack(id=id) if id == waited:
                    return record
                case _:
                    pass
    return None


async def heard_events(session: Session, heard: Heard) -> AsyncGenerator[ServerEvent, None]:
    """The one event of a message that is no turn, because it was the answer to a build's question or may be."""
    place = TurnPosition(session_id=session.id, first=session.last_seq, seq=session.last_seq)
    told = f"The Builder of {heard.answered.capability} has your answer." if heard.answered else ""
    yield _Translator(place).response("done", heard.note or told)


async def turn_events(
    records: AsyncGenerator[Record, None], *, start: TurnPosition
) -> AsyncGenerator[ServerEvent, None]:
    """Turn the records of a turn, from its first one, into the events after a place.

    Args:
        records: The turn's; closed at the end.
        start: Where the client is: `first` and `seq` are the same for one that has nothing yet.
    """
    translator = _Translator(start)
    async with aclosing(records):
        try:
            async for record in records:
                for event in translator.feed(record):
                    yield event
        except SatchelError as error:
            yield ServerEvent(name="error", data=problem_of(error), id=str(translator.place))
            return
    if not translator.has_ended and translator.view.turn.number:
        yield translator.response("interrupted", _INTERRUPTED)


def resumed_events(
    service: Service, place: TurnPosition, turn: int | None
) -> AsyncGenerator[ServerEvent, None]:
    """The events of a turn after a place, wherever it runs or ran. Errors as of `logged_turn`."""
    return turn_events(_resumed(service, place, turn), start=place)


def _resumed(service: Service, place: TurnPosition, turn: int | None) -> AsyncGenerator[Record, None]:
    for running in service.sessions.turns_of(place.session_id):
        if running.number == turn:
            return running.records(place.first)
    return logged_turn(service.satchel, place)


async def logged_turn(satchel: Satchel, place: TurnPosition) -> AsyncGenerator[Record, None]:
    """The records of a turn that doesn't run here, from the log. One that another process runs is followed there.

    Raises:
        NotFound: There is no such session.
        StorageError: The log can't be read.
    """
    seq, turn, store, id = place.first, 0, satchel.sessions, place.session_id
    is_in_it = False  # as far as was read, whoever writes the log is in the turn
    while True:
        is_over = satchel.has_open(id) or await store.writer(id) is None
        page = await store.records(id, after_seq=seq, limit=_PAGE)
        if not page and (is_over or not is_in_it):
            return
        if not page:
            await anyio.sleep(_LOOK_S)
        for record in page:
            seq = record.seq
            if isinstance(record.event, TurnStart):
                if turn:
                    return  # the next turn: this one has no end
                turn = record.event.turn
            if isinstance(record.event, TurnStart | TurnResumed):
                is_in_it = True
            elif isinstance(record.event, SessionStart):  # its process ended in the middle of it
                is_in_it = False
            if turn:
                yield record
            if isinstance(record.event, TurnEnd) and turn:
                return


async def written(satchel: Satchel, id: str, after: int) -> AsyncGenerator[Record, None]:
    """The records of a session after one, as they are written, as long as somebody has it open."""
    while True:
        is_open = await satchel.sessions.writer(id) is not None
        page = await satchel.sessions.records(id, after_seq=after, limit=_PAGE)
        for record in page:
            after = record.seq
            yield record
        if not page:
            if not is_open:
                return
            await anyio.sleep(_LOOK_S)


@dataclass(slots=True)
class _Translator:
    """Turns the records of one turn into the events that a client at `start` does not have yet."""

    start: TurnPosition
    view: SessionView = field(default_factory=SessionView)
    has_ended: bool = False
    seq: int = 0
    chars: int = 0
    skip: int = 0

    def __post_init__(self) -> None:
        self.seq = self.start.first
        self.skip = self.start.chars

    @property
    def place(self) -> TurnPosition:
        """After everything that was read."""
        return TurnPosition(
            session_id=self.start.session_id,
            first=self.start.first,
            seq=max(self.seq, self.start.seq),
            chars=self.chars,
        )

    def feed(self, record: Record) -> Iterator[ServerEvent]:
        part = self.view(record)
        if isinstance(part, Said) and part.answer is None:
            yield from self._said(part.added)
            return
        if is_transient(record.event):
            if isinstance(part, ToolCall):
                data = {"name": part.tool, "data": dict(part.progress or {}), "callId": part.id}
                yield self._event("tool_progress", data)
            return
        is_new = record.seq > self.start.seq
        if is_new and isinstance(part, Said):
            # Text that was not streamed: the model doesn't stream, or this client came later.
            yield from self._said(part.added)
        if is_new and isinstance(part, ToolCall) and part.result is not None and not part.is_begun:
            # A call that never ran: refused, unknown or invalid. Its start comes with the id of what was before.
            yield self._started(part)
        self.seq = max(self.seq, record.seq)
        if isinstance(part, Said):
            self.chars = 0
            if is_new:
                self.skip = 0
        shown = self._shown(part)
        if is_new and shown is not None:
            yield shown

    def _said(self, text: str) -> Iterator[ServerEvent]:
        fresh = text[max(0, self.skip - self.chars) :]
        self.chars += len(text)
        if fresh:
            yield self._event("text_delta", {"text": fresh})

    def _shown(self, part: Part | None) -> ServerEvent | None:
        match part:
            case TurnStart():
                return self._event("start", {"sessionId": self.start.session_id, "turn": part.turn})
            case MemorySurfaced():
                memories = memories_to_json(part.memories)
                return self._event("memory", {"memories": memories, "standing": part.standing})
            case ToolCall(result=result) if result is not None:
                return self._event(
                    "tool_result",
                    {
                        "name": part.tool,
                        "result": result.text,
                        "isError": result.is_error,
                        "callId": part.id,
                    },
                )
            case ToolCall(state="running"):
                return self._started(part)
            case QuestionAsked():
                return self._event("question", _question(part))
            case QuestionAnswered():
                return self._event("answered", {"id": part.id, "by": part.by})
            case BuildPosted():
                return self._event("build", _build(part))
            case Notice():
                return self._event("notice", {"part": part.part, "text": part.text})
            case TurnResumed():
                # Text that was streamed before the program ended is not part of the next answer.
                self.chars = self.skip = 0
                return self._event("resumed", {"turn": part.turn})
            case TurnEnd():
                self.has_ended = True
                closing = self.view.turn.closing
                text = closing.final.text if closing is not None else ""
                return self.response(part.status, text, usage=as_json(part.usage))
            case (
                None
                | Said()
                | ThinkingDelta()
                | ToolCall()
                | AskUser()
                | Compaction()
                | Posted()
                | MessageWaiting()
                | MessageTakenBack()
                | Failure()
                | LastWords()
            ):
                return None
            case _:
                assert_never(part)

    def _started(self, call: ToolCall) -> ServerEvent:
        return self._event("tool_start", {"name": call.tool, "input": dict(call.input), "callId": call.id})

    def response(self, status: str, text: str, *, usage: Mapping[str, Any] | None = None) -> ServerEvent:
        """The last event."""
        turn = self.view.turn
        return self._event(
            "response",
            {
                "text": text,
                "buildId": turn.build_id,
                "pendingQuestion": next((asked.question for asked in turn.of(AskUser)), None),
                "toolCalls": [
                    {
                        "name": call.tool,
                        "input": dict(call.input),
                        "result": call.result.text if call.result is not None else None,
                        "isError": call.state in ("failed", "refused"),
                    }
                    for call in turn.of(ToolCall)
                    if call.state != "asked"
                ],
                "sessionId": self.start.session_id,
                "turn": turn.number,
                "status": status,
                "usage": usage,
            },
        )

    def _event(self, name: str, data: Mapping[str, Any]) -> ServerEvent:
        return ServerEvent(name=name, data=data, id=str(self.place))


def _question(event: QuestionAsked) -> dict[str, Any]:
    calls = [
        {"name": call.tool, **_camel(call, "call_id", "input", "key", "rules", "reason")}
        for call in event.calls
    ]
    return {**_camel(event, "id", "kind", "text", "options", "is_secret"), "calls": calls}


def _build(event: BuildPosted) -> dict[str, Any]:
    return _camel(event, "id", "build_id", "capability", "kind", "text", "question_id", "options", "status")


def _camel(record: object, *names: str) -> dict[str, Any]:
    """Fields of a record, with names as seed-0 writes them: `callId` for `call_id`."""
    return {
        re.sub(r"_(.)", lambda found: found[1].upper(), name): as_json(getattr(record, name))
        for name in names
    }
