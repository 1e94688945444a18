"""OpenAI's responses: reading a request, and writing the answer as items."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from satchel.errors import NotFound, SatchelError
from satchel.events import TurnStatus
from satchel.memory.transfer.wrappers import without_wrappers
from satchel.messages import Usage
from satchel.runtime import Sampling
from satchel.runtime.turns import memories_to_json, result_of
from satchel.server.client_turns import (
    ClientCall,
    ClientMessage,
    ClientRequest,
    ClientTool,
    StartedTurn,
    StoredResponse,
    stored_response,
)
from satchel.server.problems import status_of
from satchel.server.service import Service
from satchel.server.streams import ServerEvent
from satchel.server.v1_answers import Answering, Ended, client_calls
from satchel.server.v1_errors import V1Failure, v1_fields
from satchel.server.v1_requests import (
    EPHEMERAL_MODEL,
    HOME_MODEL,
    MOST_TOOLS,
    Limit,
    Penalty,
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
from satchel.sessions.view import Said

_MOST_ITEMS: Final = 10_000


class TextOptions(BaseModel):
    """How the text of the answer looks."""

    format: dict[str, Any] | None = Field(
        None, description="text, json_object, or json_schema with a schema."
    )


class ResponseRequest(BaseModel):
    """A request. Other fields are ignored (store, include, reasoning, metadata, truncation, …)."""

    model_config = ConfigDict(
        extra="ignore",
        allow_inf_nan=False,
        json_schema_extra={
            "examples": [{"model": HOME_MODEL, "input": "What did I say about the router?"}],
        },
    )

    model: Annotated[str, Field(max_length=200)] = Field(
        HOME_MODEL, description='"satchel", "satchel-ephemeral", or "provider:model".'
    )
    input: str | Annotated[list[dict[str, Any]], Field(min_length=1, max_length=_MOST_ITEMS)] = Field(
        description="A text, or items: the whole conversation, or what is new after `previous_response_id`."
    )
    instructions: str | None = None
    previous_response_id: Annotated[str, Field(max_length=200)] | None = Field(
        None, description="The response that this one continues. Its conversation need not be sent again."
    )
    tools: Annotated[list[dict[str, Any]], Field(max_length=MOST_TOOLS)] | None = Field(
        None, description="Functions that the client runs. Tools of other types are left out."
    )
    tool_choice: Any = Field(None, description='"auto", "none", "required", or one of `tools`.')
    text: TextOptions | None = None
    stream: bool | None = None
    temperature: Temperature = None
    top_p: TopP = None
    presence_penalty: Penalty = None
    frequency_penalty: Penalty = None
    parallel_tool_calls: bool | None = None
    max_output_tokens: Limit = None
    user: Annotated[str, Field(max_length=1000)] | None = Field(
        None,
        description="The client's name for its user. One user's conversations are never continued for another.",
    )
    background: bool | None = None
    conversation: Any = None
    prompt: Any = None
    max_tool_calls: int | None = None
    top_logprobs: int | None = None


class ResponseObject(BaseModel):
    """An answer, as OpenAI describes it; `satchel` has the session, the turn and the memories that were shown."""

    model_config = ConfigDict(extra="allow")

    id: str
    object: Literal["response"]
    created_at: int
    status: str
    model: str
    output: list[dict[str, Any]]
    usage: dict[str, Any] | None


class DeletedResponse(BaseModel):
    """That an answer can't be asked for any more."""

    id: str
    object: Literal["response"] = "response"
    deleted: bool = True


def asked_of(request: ResponseRequest, *, is_retry: bool) -> ClientRequest:
    """What a request asks for.

    Raises:
        V1Failure: It can't be done.
    """
    for name in ("background", "conversation", "prompt", "max_tool_calls", "top_logprobs"):
        if value := getattr(request, name):
            raise unsupported(name, value, "An agent's turn can't honour it. Leave it out")
    is_whole = not request.previous_response_id
    instructions, said = _read_items(
        [{"role": "user", "content": request.input}] if isinstance(request.input, str) else request.input,
        is_whole=is_whole,
    )
    schema, wish = form_of(request.text.format if request.text else None, "text.format")
    tools, choice = chosen(_read_tools(request.tools or ()), request.tool_choice)
    return ClientRequest(
        namespace=_namespace(request.user),
        said=tuple(said),
        instructions="\n\n".join(filter(None, (request.instructions, *instructions, wish))),
        tools=tools,
        model=model_of(request.model),
        ephemeral=request.model == EPHEMERAL_MODEL,
        is_retry=is_retry,
        after=request.previous_response_id or "",
        sampling=Sampling(
            temperature=request.temperature,
            max_tokens=request.max_output_tokens,
            response_schema=schema,
            options=options_in(request, choice),
        ),
    )


def _read_tools(tools: Sequence[Mapping[str, Any]]) -> list[ClientTool]:
    # Clients such as Codex name tools that OpenAI runs with every request; Satchel has its own.
    return [
        tool_in(tool, f"tools[{number}]")
        for number, tool in enumerate(tools)
        if tool.get("type") == "function"
    ]


def _read_items(
    items: Sequence[Mapping[str, Any]], *, is_whole: bool
) -> tuple[list[str], list[ClientMessage]]:
    """The instructions among the items, and the messages that the rest makes.

    An answer and its calls are items of their own, and one message here.
    """
    instructions: list[str] = []
    said: list[ClientMessage] = []
    open_calls: set[str] = set()
    for number, item in enumerate(items):
        where = f"input[{number}]"
        match item:
            case {"type": "reasoning"}:
                continue
            case {
                "type": "function_call",
                "call_id": str(id),
                "name": str(name),
                "arguments": str(arguments),
            }:
                _add_answer(said, call=ClientCall(id=id, name=name, arguments=arguments))
                open_calls.add(id)
            case {"type": "function_call_output", "call_id": str(id), "output": output}:
                if is_whole and id not in open_calls:
                    raise invalid(f"{where}.call_id", "doesn't answer a call before it")
                open_calls.discard(id)
                text, files = content_of(output, f"{where}.output")
                said.append(ClientMessage(role="tool", text=text, files=files, call_id=id))
            case {"role": "system" | "developer", "content": content}:
                instructions.append(text_of(content, f"{where}.content"))
            case {"role": "assistant", "content": content}:
                _add_answer(said, text=text_of(content, f"{where}.content"))
            case {"role": "user", "content": content}:
                text, files = content_of(content, f"{where}.content")
                if text.strip() and not files and not without_wrappers(text).strip():
                    # What an agent such as Codex adds in the user's role is not what the user says.
                    instructions.append(text)
                else:
                    said.append(ClientMessage(role="user", text=text, files=files))
            case _:
                raise V1Failure(
                    400,
                    f"{where} is {str(item.get('type') or item.get('role') or '')[:50]!r}. Satchel accepts messages, "
                    "function_call, function_call_output and reasoning, with all their fields.",
                    param=where,
                    code="unsupported_content",
                )
    if not said or said[-1].role == "assistant":
        raise invalid("input", "must end with a user message or the output of a call")
    return instructions, said


def _add_answer(said: list[ClientMessage], *, text: str = "", call: ClientCall | None = None) -> None:
    before = ClientMessage(role="assistant", text="")
    if said and said[-1].role == "assistant":
        before = said.pop()
    said.append(
        ClientMessage(
            role="assistant",
            text="\n\n".join(filter(None, (before.text, text))),
            calls=(*before.calls, *((call,) if call else ())),
        )
    )


async def resolved(service: Service, request: ResponseRequest) -> ResponseRequest:
    """The same request with the items of earlier answers in place of references to them.

    Raises:
        V1Failure: There is no such item, or it is another user's.
    """
    if isinstance(request.input, str):
        return request
    known: dict[str, Sequence[Mapping[str, Any]]] = {}
    items: list[dict[str, Any]] = []
    for number, item in enumerate(request.input):
        if item.get("type", "item_reference") != "item_reference" or "role" in item:
            items.append(item)
            continue
        id = str(item.get("id", ""))
        response = f"resp_{id.partition('_')[2][:32]}"
        if response not in known:
            try:
                found = await stored_response(service, response, namespace=_namespace(request.user))
                known[response] = _stored(response, found)["output"]
            except NotFound:
                known[response] = ()
        there = next((dict(one) for one in known[response] if one["id"] == id), None)
        if there is None:
            where = f"input[{number}]"
            raise V1Failure(
                400,
                f"{where} refers to {id[:80]!r}, which is no item of an answer from here. Send the item itself.",
                param=where,
                code="item_not_found",
            )
        items.append(there)
    return request.model_copy(update={"input": items})


async def stored(service: Service, id: str) -> dict[str, Any]:
    """An earlier answer. What the request had besides is not kept: instructions, tools, parameters.

    Raises:
        NotFound: There is none.
    """
    return _stored(id, await stored_response(service, id))


def _stored(id: str, found: StoredResponse) -> dict[str, Any]:
    about, turn = found.about, found.turn
    result = result_of(found.session_id, turn)
    text = result.text
    if about.get("in_full"):
        rest = turn.closing.rest if turn.closing is not None else ""
        said = [one.text for one in turn.of(Said) if one.answer is not None]
        text = "\n\n".join(filter(None, [*said, rest]))
    request = ResponseRequest.model_validate(
        {
            "input": "",
            "model": about.get("model", HOME_MODEL),
            "previous_response_id": about.get("after") or None,
        }
    )
    writing = _Writing(request, created=int(about.get("created", 0)), is_kept=True, id=id)
    more = {"session_id": found.session_id, "turn": turn.number, "memories": memories_to_json(result.memory)}
    return writing.ended(Ended(text, client_calls(result.calls), result.status, result.usage, more))


def _namespace(user: str | None) -> str:
    return f"openai\n{user or ''}"


class _Writing:
    """One response while it is written: its fields, and the numbers of its events."""

    def __init__(self, request: ResponseRequest, *, created: int, is_kept: bool, id: str = "") -> None:
        self._request = request
        self._created = created
        self._is_kept = is_kept
        self._number = -1
        self._is_open = False
        self.id = id or f"resp_{secrets.token_hex(16)}"
        self._message_id = f"msg_{self.id[5:]}"

    def body(
        self, status: str, output: Sequence[Mapping[str, Any]] = (), usage: Usage | None = None, **more: Any
    ) -> dict[str, Any]:
        """The response itself, with what the request asked for."""
        asked = self._request
        return {
            "id": self.id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": None,
            "instructions": asked.instructions,
            "max_output_tokens": asked.max_output_tokens,
            "metadata": {},
            "model": asked.model,
            "output": output,
            "parallel_tool_calls": asked.parallel_tool_calls is not False,
            "previous_response_id": asked.previous_response_id,
            "store": self._is_kept,
            "temperature": asked.temperature,
            "text": {"format": (asked.text and asked.text.format) or {"type": "text"}},
            "tool_choice": asked.tool_choice or "auto",
            "tools": asked.tools or [],
            "top_p": asked.top_p,
            "truncation": "auto",
            "usage": _usage(usage) if usage is not None else None,
            "user": asked.user,
            **more,
        }

    def ended(self, ended: Ended) -> dict[str, Any]:
        """The response with its items."""
        output = self.items(ended.text, ended.calls)
        details = {"reason": "max_output_tokens"} if ended.status == "limit" else None
        return self.body(
            _status(ended.status), output, ended.usage, incomplete_details=details, satchel=ended.about
        )

    def items(self, text: str, calls: Sequence[ClientCall]) -> list[dict[str, Any]]:
        """What an answer consists of. The ids lead back to the response; see `resolved`."""
        output = [self._message(text)] if text else []
        return output + [self.call(number, call) for number, call in enumerate(calls)]

    def call(self, number: int, call: ClientCall) -> dict[str, Any]:
        """A call of the client's tool, the first of which is number 0."""
        return {
            "id": f"fc_{self.id[5:]}_{number}",
            "type": "function_call",
            "status": "completed",
            "call_id": call.id,
            "name": call.name,
            "arguments": call.arguments,
        }

    def failed(self, fields: Mapping[str, Any]) -> ServerEvent:
        """The last event of a response without an answer."""
        # The official client knows few codes.
        error = {"code": "server_error", "message": fields["error"]["message"]}
        return self.event("response.failed", response=self.body("failed", error=error))

    def event(self, kind: str, **fields: Any) -> ServerEvent:
        """The next event."""
        self._number += 1
        return ServerEvent(name=kind, data={"type": kind, "sequence_number": self._number, **fields})

    def delta(self, text: str) -> list[ServerEvent]:
        """More of the text."""
        opening = [] if self._is_open else self._opened()
        self._is_open = True
        return [*opening, self._of_text("response.output_text.delta", delta=text, logprobs=[])]

    def closed(self, text: str) -> list[ServerEvent]:
        """The end of the text, if there was any."""
        if not self._is_open:
            return []
        return [
            self._of_text("response.output_text.done", text=text, logprobs=[]),
            self._of_text("response.content_part.done", part=_text_part(text)),
            self.event("response.output_item.done", output_index=0, item=self._message(text)),
        ]

    def called(self, number: int, item: Mapping[str, Any]) -> list[ServerEvent]:
        """A call. The number counts the items before it."""
        place = {"item_id": item["id"], "output_index": number}
        begun = {**item, "arguments": "", "status": "in_progress"}
        return [
            self.event("response.output_item.added", output_index=number, item=begun),
            self.event("response.function_call_arguments.delta", **place, delta=item["arguments"]),
            self.event(
                "response.function_call_arguments.done",
                **place,
                name=item["name"],
                arguments=item["arguments"],
            ),
            self.event("response.output_item.done", output_index=number, item=item),
        ]

    def _opened(self) -> list[ServerEvent]:
        item = {**self._message(""), "content": [], "status": "in_progress"}
        return [
            self.event("response.output_item.added", output_index=0, item=item),
            self._of_text("response.content_part.added", part=_text_part("")),
        ]

    def _of_text(self, kind: str, **fields: Any) -> ServerEvent:
        return self.event(kind, item_id=self._message_id, output_index=0, content_index=0, **fields)

    def _message(self, text: str) -> dict[str, Any]:
        return {
            "id": self._message_id,
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [_text_part(text)],
        }


async def response(
    service: Service, asked: ClientRequest, begun: StartedTurn, request: ResponseRequest
) -> dict[str, Any]:
    """The answer in one piece.

    Raises:
        V1Failure: The turn ended without an answer.
        SatchelError: It could not be written.
    """
    answering = Answering(service, asked, begun, request.model)
    writing = _Writing(request, created=answering.created, is_kept=asked.is_kept)
    async with aclosing(begun.records) as records:
        async for record in records:
            answering.feed(record)
    return writing.ended(await answering.ended(in_full=False, response_id=writing.id))


async def events(
    service: Service, asked: ClientRequest, begun: StartedTurn, request: ResponseRequest
) -> AsyncGenerator[ServerEvent, None]:
    """The answer as a stream. It ends with `response.completed`, `response.incomplete` or `response.failed`."""
    answering = Answering(service, asked, begun, request.model)
    writing = _Writing(request, created=answering.created, is_kept=asked.is_kept)
    for name in ("response.created", "response.in_progress"):
        yield writing.event(name, response=writing.body("in_progress"))
    try:
        async with aclosing(begun.records) as records:
            async for record in records:
                if added := answering.feed(record):
                    for event in writing.delta(added):
                        yield event
        ended = await answering.ended(in_full=True, response_id=writing.id)
    except SatchelError as error:
        yield writing.failed(v1_fields(status_of(error), str(error)))
        return
    except V1Failure as failure:
        yield writing.failed(failure.fields)
        return
    if answering.is_held and ended.text:
        for event in writing.delta(ended.text):
            yield event
    for event in writing.closed(ended.text):
        yield event
    for number, item in enumerate(writing.items(ended.text, ended.calls)):
        if item["type"] == "function_call":
            for event in writing.called(number, item):
                yield event
    yield writing.event(f"response.{_status(ended.status)}", response=writing.ended(ended))


def _status(status: TurnStatus) -> str:
    return "incomplete" if status == "limit" else "completed"


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cache_read_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.total_tokens,
    }
