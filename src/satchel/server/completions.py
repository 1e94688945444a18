"""OpenAI's chat completions: reading a request, and writing the answer."""

from __future__ import annotations

import json
import re
import secrets
from base64 import b64decode
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from satchel import errors
from satchel.errors import SatchelError
from satchel.events import Record
from satchel.messages import Usage
from satchel.runtime import Sampling
from satchel.runtime.turns import memories_to_json, result_of
from satchel.server.client_turns import (
    ClientCall,
    ClientFile,
    ClientMessage,
    ClientRequest,
    ClientTool,
    StartedTurn,
    keep_answer,
)
from satchel.server.problems import status_of, status_of_class
from satchel.server.service import Service
from satchel.server.streams import DataEvent
from satchel.server.v1_errors import V1Failure, v1_fields
from satchel.sessions.view import LastWords, Said, SessionView

__all__ = [
    "EPHEMERAL_MODEL",
    "HOME_MODEL",
    "ChatCompletion",
    "CompletionRequest",
    "ModelCard",
    "ModelCards",
    "asked_of",
    "chunks",
    "completion",
]

HOME_MODEL: Final = "satchel"
"""The model of the home."""
EPHEMERAL_MODEL: Final = "satchel-ephemeral"
"""The same agent, without storing anything of the conversation."""

_MOST_MESSAGES: Final = 10_000
_MOST_TOOLS: Final = 512
_FINISH: Final = {"done": "stop", "asking": "stop", "calling": "tool_calls", "limit": "length"}


class StreamOptions(BaseModel):
    """Options of a stream."""

    include_usage: bool = Field(False, description="Whether a last chunk reports the usage.")


class CompletionRequest(BaseModel):
    """A request. Other fields are ignored, as they are elsewhere (seed, store, metadata, reasoning_effort, …)."""

    model_config = ConfigDict(
        extra="ignore",
        allow_inf_nan=False,
        json_schema_extra={
            "examples": [
                {
                    "model": HOME_MODEL,
                    "messages": [{"role": "user", "content": "What did I say about the router?"}],
                }
            ]
        },
    )

    model: Annotated[str, Field(max_length=200)] = Field(
        HOME_MODEL, description='"satchel", "satchel-ephemeral", or "provider:model".'
    )
    messages: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=_MOST_MESSAGES)] = Field(
        description="The whole conversation, ending with a user message or tool results."
    )
    tools: Annotated[list[dict[str, Any]], Field(max_length=_MOST_TOOLS)] | None = Field(
        None, description="Tools that the client runs itself."
    )
    tool_choice: Any = Field(None, description='"auto" or "none".')
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    max_tokens: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    response_format: dict[str, Any] | None = None
    user: Annotated[str, Field(max_length=1000)] | None = Field(
        None,
        description="The client's name for its user. One user's conversations are never continued for another.",
    )
    n: Any = None
    top_p: Any = None
    presence_penalty: Any = None
    frequency_penalty: Any = None
    logprobs: Any = None
    top_logprobs: Any = None
    logit_bias: Any = None
    stop: Any = None
    parallel_tool_calls: Any = None
    modalities: Any = None
    functions: Any = None
    function_call: Any = None


_ONLY: Final[Mapping[str, tuple[Any, ...]]] = {
    "n": (None, 1),
    "top_p": (None, 1),
    "presence_penalty": (None, 0),
    "frequency_penalty": (None, 0),
    "logprobs": (None, False),
    "top_logprobs": (None, 0),
    "logit_bias": (None, {}),
    "stop": (None, [], ""),
    "parallel_tool_calls": (None, True),
    "modalities": (None, ["text"]),
    "functions": (None, []),
    "function_call": (None, "auto", "none"),
    "tool_choice": (None, "auto", "none"),
}
"""Parameters that an agent's turn can't honour, with the neutral values that many clients send."""


class ChatCompletion(BaseModel):
    """An answer, as OpenAI describes it; `satchel` has the session, the turn and the memories that were shown."""

    model_config = ConfigDict(extra="allow")

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[dict[str, Any]]
    usage: dict[str, Any]
    satchel: dict[str, Any]


class ModelCard(BaseModel):
    """A model that a request can name."""

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "satchel"


class ModelCards(BaseModel):
    """The models."""

    object: Literal["list"] = "list"
    data: list[ModelCard]


def asked_of(request: CompletionRequest, *, is_retry: bool) -> ClientRequest:
    """What a request asks for.

    Raises:
        V1Failure: It can't be done.
    """
    for name, allowed in _ONLY.items():
        value = getattr(request, name)
        if not any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in allowed):
            raise V1Failure(
                400,
                f"{name} is {json.dumps(value, default=str)[:100]}, which an agent's turn can't honour. Leave it out.",
                param=name,
                code="unsupported_value",
            )
    instructions, said = _read_messages(request.messages)
    schema, wish = _response_format(request.response_format)
    tools = () if request.tool_choice == "none" else _read_tools(request.tools or ())
    return ClientRequest(
        namespace=f"openai\n{request.user or ''}",
        said=tuple(said),
        instructions="\n\n".join(filter(None, (*instructions, wish))),
        tools=tools,
        model=_model_of(request.model),
        ephemeral=request.model == EPHEMERAL_MODEL or _is_task(said),
        is_retry=is_retry,
        sampling=Sampling(
            temperature=request.temperature,
            max_tokens=request.max_completion_tokens or request.max_tokens,
            response_schema=schema,
        ),
    )


_TASK: Final = re.compile(
    # Open WebUI (title, tags, follow-up questions, search terms, completion of what is typed), as in its
    # `backend/open_webui/config.py`.
    r"### Task:\s.*(?:<chat_history>|### Guidelines:|### Output:|### \*\*Instructions)"
    # LibreChat (titles), as in the package `@librechat/agents`.
    r"|Provide a concise, 5-word-or-less title for the conversation|Analyze this conversation and provide:",
    re.DOTALL,
)


def _is_task(said: Sequence[ClientMessage]) -> bool:
    """Whether a program asks for itself, such as for a title: that is no conversation, and nothing of it is kept."""
    return len(said) == 1 and _TASK.match(said[0].text.lstrip()) is not None


def _model_of(name: str) -> str | None:
    if name in (HOME_MODEL, EPHEMERAL_MODEL):
        return None
    if ":" not in name:
        raise V1Failure(
            404,
            f"There is no model {name!r}. GET /v1/models lists some; PROVIDER:MODEL works too.",
            param="model",
            code="model_not_found",
        )
    return name


def _response_format(wanted: Mapping[str, Any] | None) -> tuple[Mapping[str, Any] | None, str]:
    """A schema for the answer, and the same in words for endpoints that accept no schema."""
    match wanted:
        case None | {"type": "text"}:
            return None, ""
        case {"type": "json_object"}:
            return {"type": "object"}, "Answer with one JSON object and nothing else."
        case {"type": "json_schema", "json_schema": {"schema": dict(schema)}}:
            words = json.dumps(schema, ensure_ascii=False, sort_keys=True)
            return schema, f"Answer with JSON that matches this schema, and nothing else:\n{words}"
        case _:
            raise V1Failure(
                400,
                "response_format must be text, json_object or json_schema.",
                param="response_format",
                code="unsupported_value",
            )


def _read_tools(tools: Sequence[Mapping[str, Any]]) -> tuple[ClientTool, ...]:
    found: dict[str, ClientTool] = {}
    for number, tool in enumerate(tools):
        match tool:
            case {"type": "function", "function": {"name": str(name)} as function}:
                schema = function.get("parameters") or {}
                if not isinstance(schema, dict) or schema.get("type", "object") != "object":
                    raise _invalid(f"tools[{number}].function.parameters", "must be the schema of an object")
                found[name] = ClientTool(
                    name=name,
                    description=str(function.get("description") or ""),
                    schema={"properties": {}, **schema, "type": "object"},
                )
            case _:
                raise _invalid(f"tools[{number}]", "must be a function with a name")
    return tuple(found.values())


def _read_messages(messages: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[ClientMessage]]:
    """The instructions among the messages, and the rest."""
    instructions: list[str] = []
    said: list[ClientMessage] = []
    open_calls: set[str] = set()
    for number, message in enumerate(messages):
        where = f"messages[{number}]"
        role, content = message.get("role"), message.get("content")
        if role in ("system", "developer"):
            instructions.append(_text(content, f"{where}.content"))
        elif role == "user":
            files, rest = _files(content, f"{where}.content")
            said.append(ClientMessage(role="user", text=_text(rest, f"{where}.content"), files=files))
            open_calls = set()
        elif role == "assistant":
            calls = _read_calls(message.get("tool_calls"), f"{where}.tool_calls")
            text = _text(content, f"{where}.content") if content is not None else ""
            said.append(ClientMessage(role="assistant", text=text, calls=calls))
            open_calls = {call.id for call in calls}
        elif role == "tool":
            id = message.get("tool_call_id")
            if not isinstance(id, str) or id not in open_calls:
                raise _invalid(f"{where}.tool_call_id", "doesn't answer a call of the message before it")
            open_calls.discard(id)
            said.append(ClientMessage(role="tool", text=_text(content, f"{where}.content"), call_id=id))
        else:
            raise _invalid(f"{where}.role", "must be system, developer, user, assistant or tool")
    if not said or said[-1].role == "assistant":
        raise _invalid("messages", "must end with a user message or the result of a call")
    return instructions, said


def _read_calls(calls: Any, where: str) -> tuple[ClientCall, ...]:
    if calls is None:
        return ()
    found = []
    for number, call in enumerate(calls if isinstance(calls, list) else [calls]):
        match call:
            case {"id": str(id), "function": {"name": str(name), "arguments": str(arguments)}}:
                found.append(ClientCall(id=id, name=name, arguments=arguments))
            case _:
                raise _invalid(f"{where}[{number}]", "must be a function call with id, name and arguments")
    return tuple(found)


def _files(content: Any, where: str) -> tuple[tuple[ClientFile, ...], Any]:
    """The files among the parts of a user's message, and the other parts."""
    if not isinstance(content, list):
        return (), content
    files, rest = [], []
    for number, part in enumerate(content):
        match part:
            case {"type": "image_url", "image_url": {"url": str(address)}}:
                files.append(ClientFile(name="picture", content=_inlined(address, f"{where}[{number}]")))
            case {"type": "file", "file": {"file_data": str(address), **about}}:
                name = str(about.get("filename") or "file")
                files.append(ClientFile(name=name, content=_inlined(address, f"{where}[{number}]")))
            case _:
                rest.append(part)
    return tuple(files), rest


def _inlined(address: str, where: str) -> bytes:
    """The bytes of a `data:` address. Satchel fetches nothing that a client names."""
    head, comma, content = address.partition(",")
    if not comma or not head.startswith("data:") or not head.endswith(";base64"):
        raise _invalid(where, 'must hold its content as "data:…;base64,…"; Satchel fetches no addresses')
    try:
        return b64decode(content, validate=True)
    except ValueError:
        raise _invalid(where, "isn't valid base64") from None


def _text(content: Any, where: str) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise _invalid(where, "must be a text or a list of parts")
    texts = []
    for number, part in enumerate(content):
        match part:
            case {"type": "text", "text": str(text)} | {"type": "refusal", "refusal": str(text)}:
                texts.append(text)
            case {"type": str(kind)}:
                raise V1Failure(
                    400,
                    f"{where}[{number}] is {kind[:50]!r}. Satchel accepts text here, and pictures and "
                    "files of the user.",
                    param=f"{where}[{number}]",
                    code="unsupported_content",
                )
            case _:
                raise _invalid(f"{where}[{number}]", "must be a part with a type")
    return "\n".join(texts)


def _invalid(where: str, what: str) -> V1Failure:
    return V1Failure(400, f"{where} {what}.", param=where, code="invalid_value")


@dataclass(slots=True)
class _Answering:
    """The fields that every part of one answer repeats."""

    service: Service
    asked: ClientRequest
    begun: StartedTurn
    model: str
    id: str = field(default_factory=lambda: f"chatcmpl-{secrets.token_hex(12)}")
    created: int = 0
    said: str = ""
    goes_on: bool = False
    view: SessionView = field(default_factory=SessionView)

    def __post_init__(self) -> None:
        self.created = int(self.service.satchel.clock.now().timestamp())

    def feed(self, record: Record) -> str:
        """Take the next record of the turn. Returns what it adds to the text."""
        match self.view(record):
            case Said(added=text, answer=answer):
                return self._more(text, is_end=answer is not None)
            case LastWords(rest=text):
                return self._more(text, is_end=True)
            case _:
                return ""

    def _more(self, text: str, *, is_end: bool) -> str:
        # The model's text before its own calls stands apart from the text after them.
        added = f"\n\n{text}" if text and self.said and not self.goes_on else text
        self.goes_on = not is_end and (self.goes_on or bool(text))
        self.said += added
        return added

    async def ended(self, *, in_full: bool) -> _Ended:
        """Keep the answer: all that was said, or the last words alone.

        Raises:
            V1Failure: The turn ended without an answer.
        """
        turn = self.view.turn
        result = result_of(self.begun.session_id, turn)
        if turn.end is None or result.status == "cancelled":
            raise V1Failure(503, "The turn was interrupted.", code="interrupted")
        if result.status == "failed":
            name = turn.closing.failure.error if turn.closing and turn.closing.failure else "SatchelError"
            cls = getattr(errors, name) if name in errors.__all__ else SatchelError
            raise V1Failure(status_of_class(cls), result.text or "The turn failed.", code=name)
        calls = tuple(
            ClientCall(
                id=call.id,
                name=call.name,
                arguments=json.dumps(call.input, ensure_ascii=False)
                if call.input is not None
                else call.unparsed,
            )
            for call in result.calls
        )
        text = self.said if in_full else result.text
        await keep_answer(
            self.service, self.asked, self.begun.session_id, result.turn, text=text, calls=calls
        )
        about = {
            "session_id": self.begun.session_id,
            "turn": result.turn,
            "memories": memories_to_json(result.memory),
        }
        return _Ended(
            text, [_call(call) for call in calls], _FINISH[result.status], _usage(result.usage), about
        )


@dataclass(frozen=True, slots=True)
class _Ended:
    """The end of an answer; `about` is what Satchel adds to it."""

    text: str
    calls: Sequence[Mapping[str, Any]]
    finish: str
    usage: Mapping[str, Any]
    about: Mapping[str, Any]


async def completion(
    service: Service, asked: ClientRequest, begun: StartedTurn, *, model: str
) -> dict[str, Any]:
    """The answer in one piece.

    Raises:
        V1Failure: The turn ended without an answer.
        SatchelError: It could not be written.
    """
    answering = _Answering(service, asked, begun, model)
    async with aclosing(begun.records) as records:
        async for record in records:
            answering.feed(record)
    ended = await answering.ended(in_full=False)
    message: dict[str, Any] = {"role": "assistant", "content": ended.text or None, "refusal": None}
    if ended.calls:
        message["tool_calls"] = ended.calls
    choice = {"index": 0, "message": message, "finish_reason": ended.finish, "logprobs": None}
    return {
        "id": answering.id,
        "object": "chat.completion",
        "created": answering.created,
        "model": model,
        "choices": [choice],
        "usage": ended.usage,
        "satchel": ended.about,
    }


async def chunks(
    service: Service, asked: ClientRequest, begun: StartedTurn, *, model: str, include_usage: bool
) -> AsyncGenerator[DataEvent, None]:
    """The answer as the chunks of a stream. One that fails ends with an error instead of "[DONE]"."""
    answering = _Answering(service, asked, begun, model)

    def chunk(delta: Mapping[str, Any], finish: str | None = None, **more: Any) -> DataEvent:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        usage = {"usage": None} if include_usage else {}
        return DataEvent({**head, "choices": [choice], **usage, **more})

    head = {
        "id": answering.id,
        "object": "chat.completion.chunk",
        "created": answering.created,
        "model": model,
    }
    yield chunk({"role": "assistant", "content": ""})
    try:
        async with aclosing(begun.records) as records:
            async for record in records:
                added = answering.feed(record)
                if added:
                    yield chunk({"content": added})
    except SatchelError as error:
        yield DataEvent(v1_fields(status_of(error), str(error)))
        return
    try:
        ended = await answering.ended(in_full=True)
    except V1Failure as failure:
        yield DataEvent(failure.fields)
        return
    for number, call in enumerate(ended.calls):
        yield chunk({"tool_calls": [{"index": number, **call}]})
    yield chunk({}, ended.finish, satchel=ended.about)
    if include_usage:
        yield DataEvent({**head, "choices": [], "usage": ended.usage})
    yield DataEvent("[DONE]")


def _call(call: ClientCall) -> dict[str, Any]:
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read_tokens},
    }
