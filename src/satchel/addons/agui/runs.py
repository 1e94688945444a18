"""AG-UI 1.0: the request to run the agent, and a turn as the events of that protocol."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal, TypeAlias, assert_never, get_args

from pydantic import BaseModel, ConfigDict, Field

from satchel.errors import SatchelError, UsageError
from satchel.events import (
    AskUser,
    BuildPosted,
    Compaction,
    Consent,
    Failure,
    MemorySurfaced,
    MessageTakenBack,
    MessageWaiting,
    Notice,
    Posted,
    QuestionAnswered,
    QuestionAsked,
    Record,
    ThinkingDelta,
    TurnEnd,
    TurnResumed,
    TurnStart,
)
from satchel.messages import FileBlock, Usage
from satchel.runtime.pictures import pictures_in
from satchel.runtime.turns import memories_to_json
from satchel.server.client_turns import ClientCall, ClientFile, ClientMessage, ClientRequest, ClientTool
from satchel.server.problems import problem_of
from satchel.server.streams import DataEvent
from satchel.sessions.view import LastWords, Said, SessionView, ToolCall
from satchel.tools.kept import suffix_of

NAMESPACE: Final = "agui"
_VERSION: Final = "1.0"
_MOST_MESSAGES: Final = 10_000
_MOST_PICTURES: Final = 1_500_000
"""Characters of base64 of a run's pictures, one of the smaller copies: front ends send the whole thread each time."""
_MOST_IN_THREAD: Final = 32_000_000
"""Characters of base64 of a thread, beyond which runs add no pictures: half of the longest request, so that a thread
never outgrows it by what it was sent."""

Question: TypeAlias = QuestionAsked | AskUser


class _FromFrontEnd(BaseModel):
    """The protocol keeps unknown fields, so that newer front ends are understood."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False)


class FrontEndTool(_FromFrontEnd):
    """A tool that the front end runs."""

    name: Annotated[str, Field(min_length=1, max_length=64)]
    description: str = ""
    parameters: dict[str, Any] | None = None


class ContextEntry(_FromFrontEnd):
    """What the front end knows."""

    description: str = ""
    value: str = ""


class ResumeEntry(_FromFrontEnd):
    """The answer to an interrupt."""

    interruptId: Annotated[str, Field(max_length=200)]  # noqa: N815 - the protocol's name
    status: Literal["resolved", "cancelled"]
    payload: Any = None


class RunAgentInput(_FromFrontEnd):
    """A request to run the agent (RunAgentInput)."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "threadId": "t1",
                    "runId": "r1",
                    "messages": [{"id": "m1", "role": "user", "content": "Hello"}],
                }
            ]
        }
    )

    threadId: Annotated[str, Field(min_length=1, max_length=500)] = Field(  # noqa: N815
        description="The conversation. The first run of a thread begins a session."
    )
    runId: Annotated[str, Field(max_length=500)]  # noqa: N815
    messages: Annotated[list[dict[str, Any]], Field(max_length=_MOST_MESSAGES)]
    tools: Annotated[list[FrontEndTool], Field(max_length=512)] | None = None
    context: Annotated[list[ContextEntry], Field(max_length=1000)] | None = None
    resume: Annotated[list[ResumeEntry], Field(max_length=100)] | None = Field(
        None, description="Answers to the interrupts that the last run of this thread ended with."
    )


def asked_of(request: RunAgentInput) -> ClientRequest:
    """What a run asks for.

    Raises:
        UsageError: A message has an unknown form.
    """
    instructions: list[str] = []
    said: list[ClientMessage] = []
    for number, message in enumerate(request.messages):
        where = f"messages[{number}]"
        match message.get("role"):
            case "system" | "developer":
                instructions.append(_text(message.get("content"), where))
            case "user":
                text, files = _content(message.get("content"), where)
                said.append(ClientMessage(role="user", text=text, files=files))
            case "assistant":
                content = message.get("content")
                text = _text(content, where) if content is not None else ""
                said.append(
                    ClientMessage(role="assistant", text=text, calls=_calls(message.get("toolCalls"), where))
                )
            case "tool":
                text, files = _content(message.get("content"), where)
                said.append(
                    ClientMessage(
                        role="tool",
                        text=text,
                        files=files,
                        call_id=str(message.get("toolCallId", "")),
                        is_error=bool(message.get("error")),
                    )
                )
            case "activity" | "reasoning":
                pass  # For the screen only.
            case _:
                raise UsageError(f"{where}.role must be one of AG-UI's roles.")
    instructions += [f"{entry.description}: {entry.value}".strip(": ") for entry in request.context or ()]
    return ClientRequest(
        namespace=NAMESPACE,
        said=_whole(said),
        instructions="\n\n".join(text for text in instructions if text),
        tools=tuple(
            ClientTool(
                name=tool.name,
                description=tool.description,
                schema={"properties": {}, **(tool.parameters or {}), "type": "object"},
            )
            for tool in request.tools or ()
        ),
        thread=request.threadId,
        interactive=True,
    )


def _whole(said: Sequence[ClientMessage]) -> tuple[ClientMessage, ...]:
    """Without results of calls that are not there."""
    known = {call.id for one in said for call in one.calls}
    return tuple(one for one in said if one.role != "tool" or one.call_id in known)


def _content(content: Any, where: str) -> tuple[str, tuple[ClientFile, ...]]:
    """The text, the pictures and the documents of a message."""
    if isinstance(content, str):
        return content, ()
    texts, files = [], []
    for part in content if isinstance(content, list) else [None]:
        match part:
            case {"type": "text", "text": str(text)}:
                texts.append(text)
            case {
                "type": "image" | "document" as kind,
                "source": {"type": "data", "value": str(data)} as source,
            }:
                # Parts have no name, and the suffix says how a document is read.
                suffix = suffix_of(str(source.get("mimeType")))
                name = "picture" if kind == "image" else f"file{suffix}"
                try:
                    files.append(ClientFile(name=name, content=b64decode(data, validate=True)))
                except ValueError:
                    raise UsageError(f"{where} has a part that isn't valid base64.") from None
            case {"type": str(kind)}:
                raise UsageError(
                    f"{where} has a part of type {kind[:50]!r} that Satchel doesn't take. It accepts text, and images "
                    "and documents whose source is `data`; it fetches no addresses."
                )
            case _:
                raise UsageError(f"{where}.content must be a text or a list of parts.")
    return "\n".join(texts), tuple(files)


def _text(content: Any, where: str) -> str:
    text, files = _content(content, where)
    if files:
        raise UsageError(f"{where} has a file. Satchel accepts them from the user and in results.")
    return text


def _calls(calls: Any, where: str) -> tuple[ClientCall, ...]:
    found = []
    for call in calls if isinstance(calls, list) else []:
        match call:
            case {"id": str(id), "function": {"name": str(name), "arguments": str(arguments)}}:
                found.append(ClientCall(id=id, name=name, arguments=arguments))
            case _:
                raise UsageError(f"{where}.toolCalls must have calls with id, name and arguments.")
    return tuple(found)


def consent_in(entry: ResumeEntry) -> Consent:
    """The consent that an answer gives: {"consent": "once"}, {"approved": true}, or just that value.

    Raises:
        UsageError: It contains neither.
    """
    if entry.status == "cancelled":
        return "no"
    value = entry.payload
    if isinstance(value, Mapping):
        value = value.get("consent", value.get("approved"))
    if isinstance(value, bool):
        return "once" if value else "no"
    for consent in get_args(Consent):
        if value == consent:
            return consent  # type: ignore[no-any-return]
    raise UsageError(
        f"The answer to interrupt {entry.interruptId!r} must be an object with consent: no, once, session or always."
    )


def text_in(entry: ResumeEntry) -> str | None:
    """The text that an answer gives; None declines."""
    value = entry.payload
    if isinstance(value, Mapping):
        value = value.get("text")
    return str(value) if entry.status == "resolved" and value is not None else None


# Events


async def run_events(
    records: AsyncGenerator[Record, None],
    *,
    request: RunAgentInput,
    session_id: str,
    read_file: Callable[[FileBlock], Awaitable[bytes]],
    goes_on: int = 0,
    waiting: Sequence[Question] = (),
) -> AsyncGenerator[DataEvent, None]:
    """A turn, or the rest of one, as a run. The run ends when the turn asks a question; the turn keeps waiting.

    Args:
        records: Of the turn.
        request: Names the thread and the run.
        session_id: The session.
        read_file: Reads the pictures of results.
        goes_on: The number of the turn, if it began before `records`.
        waiting: Questions that are open already: the run ends with them at once.
    """
    head = {"threadId": request.threadId, "runId": request.runId}
    room = min(_MOST_PICTURES, _MOST_IN_THREAD - _sent_back(request))
    run = _Run(head, session_id, room, turn=goes_on)
    yield run.event("RUN_STARTED", **head, protocolVersion=_VERSION)
    if waiting:
        yield run.finished(interrupts=waiting)
        await records.aclose()
        return
    async with aclosing(records):
        try:
            async for record in records:
                run.pictures = await pictures_in(record.event, read_file, most=run.room)
                run.room -= sum(len(data) for _, data in run.pictures)
                for event in run.feed(record):
                    yield event
                if run.has_ended:
                    return
        except SatchelError as error:
            problem = problem_of(error)
            yield run.event("RUN_ERROR", message=problem["detail"], code=problem["code"])
            return
    yield run.event("RUN_ERROR", message="The server stopped during this run.", code="interrupted")


def _sent_back(request: RunAgentInput) -> int:
    """Characters of base64 of the files in the thread as the front end sends it."""
    contents = (message.get("content") for message in request.messages)
    parts = (part for content in contents if isinstance(content, list) for part in content)
    sources = (part.get("source") for part in parts if isinstance(part, dict))
    return sum(len(str(source.get("value", ""))) for source in sources if isinstance(source, dict))


@dataclass(slots=True)
class _Run:
    """Turns the records of a turn into events for a front end."""

    head: Mapping[str, str]
    session_id: str
    room: int
    turn: int = 0
    number: int = 0
    message: str = ""
    has_ended: bool = False
    pictures: Sequence[tuple[FileBlock, str]] = ()
    view: SessionView = field(default_factory=SessionView)
    models: dict[tuple[str, str], Usage] = field(default_factory=dict)

    def event(self, type: str, **fields: Any) -> DataEvent:
        """One event."""
        return DataEvent({"type": type, **fields})

    def _content(self, text: str) -> str | list[dict[str, Any]]:
        """The content of a result: its text, with its pictures as parts."""
        if not self.pictures:
            return text
        sources = (
            {"type": "data", "value": data, "mimeType": file.media_type} for file, data in self.pictures
        )
        return [{"type": "text", "text": text}, *({"type": "image", "source": source} for source in sources)]

    def feed(self, record: Record) -> Iterator[DataEvent]:
        part = self.view(record)
        match part:
            case None:
                pass
            case TurnStart():
                self.turn = part.turn
            case Said(added=text, answer=answer):
                yield from self._say(text)
                if answer is not None:
                    yield from self._end_message()
                    model = (answer.provider, answer.model)
                    self.models[model] = self.models.get(model, Usage()) + answer.usage
            case ToolCall(result=result) if result is not None:
                if not part.is_begun and part.asked is not None:
                    # It never ran, as one that was refused.
                    yield from self._call(part.id, part.tool, part.input)
                yield self.event(
                    "TOOL_CALL_RESULT",
                    messageId=f"result-{part.id}",
                    toolCallId=part.id,
                    content=self._content(result.text),
                    role="tool",
                )
            case ToolCall(progress=None, refusal=None):
                yield from self._call(part.id, part.tool, part.input)
            case MemorySurfaced():
                memories = memories_to_json(part.memories)
                yield self._custom("satchel.memory", {"memories": memories, "standing": part.standing})
            case Notice():
                yield self._custom("satchel.notice", {"part": part.part, "text": part.text})
            case Failure():
                yield self._custom("satchel.notice", {"part": part.part, "text": part.message})
            case QuestionAsked():
                yield from self._end_message()
                yield self.finished(interrupts=[part])
            case TurnEnd():
                yield from self._end(part)
            case (
                ThinkingDelta()
                | LastWords()
                | ToolCall()
                | TurnResumed()
                | QuestionAnswered()
                | AskUser()
                | Compaction()
                | Posted()
                | MessageWaiting()
                | MessageTakenBack()
                | BuildPosted()
            ):
                pass
            case _:
                assert_never(part)

    def _say(self, text: str) -> Iterator[DataEvent]:
        if not text:
            return
        if not self.message:
            self.number += 1
            self.message = f"{self.session_id}-{self.turn}-{self.head['runId']}-{self.number}"
            yield self.event("TEXT_MESSAGE_START", messageId=self.message, role="assistant")
        yield self.event("TEXT_MESSAGE_CONTENT", messageId=self.message, delta=text)

    def _end_message(self) -> Iterator[DataEvent]:
        if self.message:
            yield self.event("TEXT_MESSAGE_END", messageId=self.message)
        self.message = ""

    def _call(self, id: str, name: str, input: Mapping[str, Any]) -> Iterator[DataEvent]:
        yield self.event("TOOL_CALL_START", toolCallId=id, toolCallName=name)
        yield self.event("TOOL_CALL_ARGS", toolCallId=id, delta=json.dumps(dict(input)))
        yield self.event("TOOL_CALL_END", toolCallId=id)

    def _end(self, end: TurnEnd) -> Iterator[DataEvent]:
        closing = self.view.turn.closing
        if closing is not None and end.status not in ("asking", "failed"):
            yield from self._say(closing.rest)
        yield from self._end_message()
        if end.status == "failed":
            self.has_ended = True
            words = closing.final.text if closing is not None else ""
            yield self.event("RUN_ERROR", message=words or "The turn failed.", code="failed")
        elif end.status == "asking" and closing is not None and closing.question is not None:
            yield self.finished(interrupts=[closing.question], status=end.status)
        else:
            pending = self.view.turn.open_calls if end.status == "calling" else ()
            for call in pending:
                yield from self._call(call.id, call.name, call.input or {})
            yield self.finished(pending=[call.id for call in pending], status=end.status)

    def finished(
        self, *, interrupts: Iterable[Question] = (), pending: Sequence[str] = (), status: str = "waiting"
    ) -> DataEvent:
        """The end of the run."""
        self.has_ended = True
        asked = [_interrupt(question) for question in interrupts]
        outcome: dict[str, Any] = {"type": "success"}
        if asked:
            outcome = {"type": "interrupt", "interrupts": asked}
        elif status == "cancelled":
            outcome = {"type": "cancelled"}
        elif pending:
            outcome["pendingToolCallIds"] = list(pending)
        return self.event(
            "RUN_FINISHED",
            **self.head,
            result={"sessionId": self.session_id, "turn": self.turn, "status": status},
            outcome=outcome,
            usage=[_usage(*model, usage) for model, usage in self.models.items()],
        )

    def _custom(self, name: str, value: Mapping[str, Any]) -> DataEvent:
        return self.event("CUSTOM", name=name, value=value)


def _interrupt(question: Question) -> dict[str, Any]:
    """What the run waits for, with a schema of the answer."""
    answer: dict[str, Any]
    if isinstance(question, QuestionAsked) and question.kind == "permission":
        answer = {
            "type": "object",
            "properties": {"consent": {"enum": list(get_args(Consent))}},
            "required": ["consent"],
        }
        message = "\n".join(
            f"{call.tool} {json.dumps(dict(call.input), ensure_ascii=False)}"
            + (f": {call.reason}" if call.reason else "")
            for call in question.calls
        )
        first = question.calls[0].call_id if len(question.calls) == 1 else None
        told = {"id": question.id, "reason": "permission", "message": message, "responseSchema": answer}
        return {**told, "toolCallId": first} if first else told
    is_call = isinstance(question, AskUser)
    options = list(question.options)
    text: dict[str, Any] = {"type": "string", **({"examples": options} if options else {})}
    answer = {"type": "object", "properties": {"text": text}, "required": ["text"]}
    return {
        "id": question.call_id if isinstance(question, AskUser) else question.id,
        "reason": "question" if is_call else "input",
        "message": question.question if isinstance(question, AskUser) else question.text,
        "responseSchema": answer,
    }


def _usage(provider: str, model: str, usage: Usage) -> dict[str, Any]:
    return {
        "provider": provider,
        "model": model,
        "inputTokens": usage.input_tokens,
        "outputTokens": usage.output_tokens,
        "totalTokens": usage.total_tokens,
        "cachedInputTokens": usage.cache_read_tokens,
        "cacheWriteInputTokens": usage.cache_write_tokens,
    }
