"""OpenAI's chat completions: reading a request, and writing the answer."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from satchel.errors import SatchelError
from satchel.messages import Usage
from satchel.runtime import Sampling
from satchel.server.client_turns import (
    ClientCall,
    ClientMessage,
    ClientRequest,
    ClientTool,
    StartedTurn,
)
from satchel.server.problems import status_of
from satchel.server.service import Service
from satchel.server.streams import DataEvent
from satchel.server.v1_answers import Answering
from satchel.server.v1_errors import V1Failure, v1_fields
from satchel.server.v1_requests import (
    EPHEMERAL_MODEL,
    HOME_MODEL,
    MOST_TOOLS,
    Limit,
    Penalty,
    Stop,
    Temperature,
    TopP,
    chosen,
    content_of,
    form_of,
    invalid,
    model_of,
    options_in,
    text_of,
    tool_in,
    unsupported,
)

_MOST_MESSAGES: Final = 10_000
_FINISH: Final = {"done": "stop", "asking": "stop", "calling": "tool_calls", "limit": "length"}


class StreamOptions(BaseModel):
    """Options of a stream."""

    include_usage: bool = Field(False, description="Whether a last chunk reports the usage.")


class CompletionRequest(BaseModel):
    """A request. Other fields are ignored, as they are elsewhere (store, metadata, reasoning_effort, …)."""

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
    tools: Annotated[list[dict[str, Any]], Field(max_length=MOST_TOOLS)] | None = Field(
        None, description="Tools that the client runs itself."
    )
    tool_choice: Any = Field(None, description='"auto", "none", "required", or one of `tools`.')
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: Temperature = None
    max_tokens: Limit = None
    max_completion_tokens: Limit = None
    response_format: dict[str, Any] | None = None
    user: Annotated[str, Field(max_length=1000)] | None = Field(
        None,
        description="The client's name for its user. One user's conversations are never continued for another.",
    )
    top_p: TopP = None
    stop: Stop = None
    presence_penalty: Penalty = None
    frequency_penalty: Penalty = None
    seed: int | None = None
    parallel_tool_calls: bool | None = None
    n: Any = None
    logprobs: Any = None
    top_logprobs: Any = None
    logit_bias: Any = None
    modalities: Any = None
    functions: Any = None
    function_call: Any = None


_ONLY: Final[Mapping[str, tuple[Any, ...]]] = {
    "n": (None, 1),
    "logprobs": (None, False),
    "top_logprobs": (None, 0),
    "logit_bias": (None, {}),
    "modalities": (None, ["text"]),
    "functions": (None, []),
    "function_call": (None, "auto", "none"),
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
            raise unsupported(name, value, "An agent's turn can't honour it. Leave it out")
    instructions, said = _read_messages(request.messages)
    schema, wish = form_of(request.response_format, "response_format")
    tools, choice = chosen(_read_tools(request.tools or ()), request.tool_choice)
    return ClientRequest(
        namespace=f"openai\n{request.user or ''}",
        said=tuple(said),
        instructions="\n\n".join(filter(None, (*instructions, wish))),
        tools=tools,
        model=model_of(request.model),
        ephemeral=request.model == EPHEMERAL_MODEL,
        is_retry=is_retry,
        sampling=Sampling(
            temperature=request.temperature,
            max_tokens=request.max_completion_tokens or request.max_tokens,
            response_schema=schema,
            options=options_in(request, choice),
        ),
    )


def _read_tools(tools: Sequence[Mapping[str, Any]]) -> list[ClientTool]:
    found = []
    for number, tool in enumerate(tools):
        match tool:
            case {"type": "function", "function": dict(function)}:
                found.append(tool_in(function, f"tools[{number}]"))
            case _:
                raise invalid(f"tools[{number}]", "must be a function with a name")
    return found


def _read_messages(messages: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[ClientMessage]]:
    """The instructions among the messages, and the rest."""
    instructions: list[str] = []
    said: list[ClientMessage] = []
    open_calls: set[str] = set()
    for number, message in enumerate(messages):
        where = f"messages[{number}]"
        role, content = message.get("role"), message.get("content")
        if role in ("system", "developer"):
            instructions.append(text_of(content, f"{where}.content"))
        elif role == "user":
            text, files = content_of(content, f"{where}.content")
            said.append(ClientMessage(role="user", text=text, files=files))
            open_calls = set()
        elif role == "assistant":
            calls = _read_calls(message.get("tool_calls"), f"{where}.tool_calls")
            text = text_of(content, f"{where}.content") if content is not None else ""
            said.append(ClientMessage(role="assistant", text=text, calls=calls))
            open_calls = {call.id for call in calls}
        elif role == "tool":
            id = message.get("tool_call_id")
            if not isinstance(id, str) or id not in open_calls:
                raise invalid(f"{where}.tool_call_id", "doesn't answer a call of the message before it")
            open_calls.discard(id)
            said.append(ClientMessage(role="tool", text=text_of(content, f"{where}.content"), call_id=id))
        else:
            raise invalid(f"{where}.role", "must be system, developer, user, assistant or tool")
    if not said or said[-1].role == "assistant":
        raise invalid("messages", "must end with a user message or the result of a call")
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
                raise invalid(f"{where}[{number}]", "must be a function call with id, name and arguments")
    return tuple(found)


async def completion(
    service: Service, asked: ClientRequest, begun: StartedTurn, *, model: str
) -> dict[str, Any]:
    """The answer in one piece.

    Raises:
        V1Failure: The turn ended without an answer.
        SatchelError: It could not be written.
    """
    answering = Answering(service, asked, begun, model)
    async with aclosing(begun.records) as records:
        async for record in records:
            answering.feed(record)
    ended = await answering.ended(in_full=False)
    message: dict[str, Any] = {"role": "assistant", "content": ended.text or None, "refusal": None}
    if ended.calls:
        message["tool_calls"] = [_call(call) for call in ended.calls]
    choice = {"index": 0, "message": message, "finish_reason": _FINISH[ended.status], "logprobs": None}
    return {
        **_head(answering, "chat.completion"),
        "choices": [choice],
        "usage": _usage(ended.usage),
        "satchel": ended.about,
    }


async def chunks(
    service: Service, asked: ClientRequest, begun: StartedTurn, *, model: str, include_usage: bool
) -> AsyncGenerator[DataEvent, None]:
    """The answer as the chunks of a stream. One that fails ends with an error instead of "[DONE]"."""
    answering = Answering(service, asked, begun, model)
    head = _head(answering, "chat.completion.chunk")

    def chunk(delta: Mapping[str, Any], finish: str | None = None, **more: Any) -> DataEvent:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        usage = {"usage": None} if include_usage else {}
        return DataEvent({**head, "choices": [choice], **usage, **more})

    yield chunk({"role": "assistant", "content": ""})
    try:
        async with aclosing(begun.records) as records:
            async for record in records:
                added = answering.feed(record)
                if added:
                    yield chunk({"content": added})
        ended = await answering.ended(in_full=True)
    except SatchelError as error:
        yield DataEvent(v1_fields(status_of(error), str(error)))
        return
    except V1Failure as failure:
        yield DataEvent(failure.fields)
        return
    if answering.is_held and ended.text:
        yield chunk({"content": ended.text})
    for number, call in enumerate(ended.calls):
        yield chunk({"tool_calls": [{"index": number, **_call(call)}]})
    yield chunk({}, _FINISH[ended.status], satchel=ended.about)
    if include_usage:
        yield DataEvent({**head, "choices": [], "usage": _usage(ended.usage)})
    yield DataEvent("[DONE]")


def _head(answering: Answering, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{secrets.token_hex(12)}",
        "object": kind,
        "created": answering.created,
        "model": answering.model,
    }


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
