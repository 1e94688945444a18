"""The second layer of tool calling (seed-3): JSON in the text, for endpoints that don't support tool definitions.

Both classes wrap a `ChatModel` and implement the same port. The system text describes the tools, calls and results in
the history become text, and the answer is parsed into the same blocks that native calls produce.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence, Set
from contextlib import aclosing
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, Literal

from satchel.errors import ToolsUnsupported
from satchel.events import TextDelta, ToolInputDelta
from satchel.messages import (
    Block,
    FileBlock,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    Usage,
)
from satchel.models.abilities import AbilityStore
from satchel.models.identifiers import CallIds
from satchel.models.json_answer import JsonAnswerReader
from satchel.models.port import (
    ChatModel,
    Completion,
    ModelEvent,
    ModelRequest,
    ToolDefinition,
    closing_stream,
    options_of,
    price_by,
    window_of,
)
from satchel.models.prefix import MessageCache
from satchel.models.unasked_json import UnaskedJsonReader

_CACHE_CHARS: Final = 16_000_000

_INSTRUCTIONS: Final = """\
# Tools

You cannot call tools directly. To use them, answer with one JSON object and nothing else.

One call:
{"action": {"tool": "<name>", "input": {<arguments>}}}

Several calls that do not need each other's results:
{"actions": [{"tool": "<name>", "input": {<arguments>}}, {"tool": "<name>", "input": {<arguments>}}]}

The results come back in the next message as {"observation": "<result>", "tool": "<name>"}; never write one
yourself. When you don't need a tool, or no longer, answer the user with: {"final": "<your answer>"}

These are the tools. Arguments must match the tool's JSON Schema:
"""


def instructions(tools: Sequence[ToolDefinition]) -> str:
    """The part of the system text that describes the tools; the same tools always give the same bytes."""
    lines = [
        json.dumps(
            {"tool": tool.name, "description": tool.description, "input": tool.input_schema},
            ensure_ascii=False,
        )
        for tool in tools
    ]
    return _INSTRUCTIONS + "\n".join(lines)


def answer_schema(
    tools: Sequence[ToolDefinition], options: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Any]:
    """The JSON Schema of an answer, for endpoints that can enforce one; `options` are those of the request."""
    choice = options.get("tool_choice")
    calls = [
        {
            "type": "object",
            "properties": {"tool": {"const": tool.name}, "input": dict(tool.input_schema)},
            "required": ["tool", "input"],
            "additionalProperties": False,
        }
        for tool in tools
        if choice in (None, "required", tool.name)
    ]
    call: dict[str, Any] = {"anyOf": calls}
    is_parallel = options.get("parallel_tool_calls") is not False
    return {
        "anyOf": [
            *([_object("final", {"type": "string"})] if choice is None else []),
            _object("action", call),
            *([_object("actions", {"type": "array", "items": call, "minItems": 1})] if is_parallel else []),
        ]
    }


def _object(key: str, value: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {key: value}, "required": [key], "additionalProperties": False}


class _Wrapper:
    """A wrapper of a `ChatModel`, with the properties of the wrapped model."""

    def __init__(self, inner: ChatModel) -> None:
        self._inner = inner

    @property
    def provider(self) -> str:
        """The value of the wrapped model."""
        return self._inner.provider

    @property
    def model(self) -> str:
        """The value of the wrapped model."""
        return self._inner.model

    @property
    def context_window(self) -> int | None:
        """The value of the wrapped model."""
        return self._inner.context_window

    @property
    def options(self) -> frozenset[str]:
        """The value of the wrapped model."""
        return options_of(self._inner)

    async def find_window(self) -> int | None:
        """The value of the wrapped model."""
        return await window_of(self._inner)

    def price(self, usage: Usage) -> Usage:
        """The value of the wrapped model."""
        return price_by(self._inner, usage)

    async def aclose(self) -> None:
        """Close the wrapped model."""
        await self._inner.aclose()


class JsonTools(_Wrapper):
    """A `ChatModel` that sends and receives tool calls as JSON in text."""

    def __init__(self, inner: ChatModel) -> None:
        """Store the model to wrap; closing this object closes it."""
        super().__init__(inner)
        self._cache: MessageCache[Message] = MessageCache(limit=_CACHE_CHARS, weigh=_weight)
        self._tools: tuple[ToolDefinition, ...] = ()
        self._tools_text = ""
        self._schema: dict[str, Any] = {}

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """See `ChatModel.stream`."""
        reader = JsonAnswerReader()
        async with closing_stream(self._inner.stream(self._as_text(request))) as events:
            async for event in events:
                match event:
                    case TextDelta(text=text) if request.tools:
                        if shown := reader.feed(text):
                            yield TextDelta(text=shown)
                    case Completion() if request.tools:
                        for last in _completed(event, *reader.finish(CallIds.of(request))):
                            yield last
                    case _:
                        yield event

    def _as_text(self, request: ModelRequest) -> ModelRequest:
        """The request without tools: the system text describes them, and the history is text."""
        messages: list[Message] = []
        names: dict[str, str] = {}
        for message in request.messages:
            names.update((call.id, call.name) for call in message.tool_uses)
            messages.append(self._cache.get(message, lambda message: _message_as_text(message, names)))
        if not request.tools:
            return replace(request, messages=messages)
        tools = tuple(request.tools)
        if tools != self._tools:
            self._tools, self._tools_text, self._schema = tools, instructions(tools), answer_schema(tools)
        return replace(
            request,
            system=f"{request.system}\n\n{self._tools_text}" if request.system else self._tools_text,
            messages=messages,
            tools=(),
            response_schema=answer_schema(tools, request.options) if request.options else self._schema,
        )


class AdaptiveTools(_Wrapper):
    """A `ChatModel` that uses native tool calls until its endpoint refuses them or it writes calls as JSON in its text,
    and JSON from then on.

    The result is remembered per model and endpoint. A model that has made native calls keeps doing so, but JSON that
    it writes is understood, too.
    """

    def __init__(
        self,
        inner: ChatModel,
        *,
        tool_use: Literal["auto", "native", "json"],
        abilities: AbilityStore,
        endpoint: str,
    ) -> None:
        """Store the model, the configured way of calling tools, and where results are remembered.

        Args:
            inner: The model; closing this object closes it.
            tool_use: The configured way; only "auto" tries.
            abilities: Stores what is known about models.
            endpoint: The address under which the result is remembered, without user and password.
        """
        super().__init__(inner)
        self._json = JsonTools(inner)
        self._tool_use = tool_use
        self._abilities = abilities
        self._endpoint = endpoint

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """See `ChatModel.stream`."""
        if self._tool_use == "json":
            return self._json.stream(request)
        if self._tool_use == "native":
            return self._inner.stream(request)
        native = self._abilities.native_tools(endpoint=self._endpoint, model=self.model)
        if native is False:
            return self._json.stream(request)
        return self._find_out(request)

    async def _find_out(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        try:
            async with aclosing(self._native(request)) as events:
                async for event in events:
                    yield event
            return
        except ToolsUnsupported:
            # The refusal comes before anything is streamed, so the answer can start again in the other layer.
            await self._abilities.remember_native_tools(
                endpoint=self._endpoint, model=self.model, native=False
            )
        async with closing_stream(self._json.stream(request)) as events:
            async for event in events:
                yield event

    async def _native(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Use native calls. An answer that consists only of JSON in the other layer's format is parsed as such."""
        reader = UnaskedJsonReader()
        offered = {tool.name for tool in request.tools}
        async with closing_stream(self._inner.stream(request)) as events:
            async for event in events:
                match event:
                    case TextDelta(text=text) if offered:
                        if shown := reader.feed(text):
                            yield TextDelta(text=shown)
                    case Completion() if offered:
                        async for last in self._read(event, reader, request, offered):
                            yield last
                    case _:
                        yield event

    async def _read(
        self, completion: Completion, reader: UnaskedJsonReader, request: ModelRequest, offered: Set[str]
    ) -> AsyncIterator[ModelEvent]:
        calls_natively = bool(completion.message.tool_uses)
        shown, blocks = reader.held, None
        if not calls_natively and completion.stop_reason != "max_tokens":
            shown, blocks = reader.finish(CallIds.of(request), tools=offered)
        wrote_calls = blocks is not None and any(isinstance(block, ToolUseBlock) for block in blocks)
        # A `final` alone may be what the user asked for, and a model that made native calls before supports them.
        known = self._abilities.native_tools(endpoint=self._endpoint, model=self.model)
        # Remembered before the completion is yielded: callers stop reading there.
        if calls_natively or (wrote_calls and known is None):
            await self._abilities.remember_native_tools(
                endpoint=self._endpoint, model=self.model, native=calls_natively
            )
        if blocks is not None:
            for last in _completed(completion, shown, blocks):
                yield last
        else:
            if shown:
                yield TextDelta(text=shown)
            yield completion


def _completed(
    completion: Completion, shown: str, blocks: Sequence[Block]
) -> Iterator[TextDelta | ToolInputDelta | Completion]:
    """The end of an answer whose text was parsed into `blocks`; `shown` is the part that was not shown before."""
    if shown:
        yield TextDelta(text=shown)
    calls = [block for block in blocks if isinstance(block, ToolUseBlock)]
    for call in calls:
        text = call.unparsed if call.input is None else json.dumps(call.input, ensure_ascii=False)
        yield ToolInputDelta(call_id=call.id, tool=call.name, text=text)
    thinking = tuple(block for block in completion.blocks if isinstance(block, ThinkingBlock))
    yield replace(
        completion,
        blocks=(*thinking, *blocks),
        # A truncated answer stays truncated, whatever could be parsed.
        stop_reason="tool_use"
        if calls and completion.stop_reason != "max_tokens"
        else completion.stop_reason,
    )


def _weight(message: Message) -> int:
    return sum(len(block.text) for block in message.blocks if isinstance(block, TextBlock))


def _message_as_text(message: Message, names: Mapping[str, str]) -> Message:
    """The message with calls and results as text, in the form that the instructions describe."""
    if message.role == "assistant":
        return Message(role="assistant", blocks=tuple(_answer_as_text(message)))
    results = [block for block in message.blocks if isinstance(block, ToolResultBlock)]
    rest = tuple(block for block in message.blocks if isinstance(block, TextBlock | FileBlock))
    if not results:
        return Message(role="user", blocks=rest)
    return Message(
        role="user", blocks=(TextBlock(text=_observation(results, names)), *message.result_files, *rest)
    )


def _answer_as_text(message: Message) -> list[Block]:
    calls = [_call_as_text(call) for call in message.tool_uses]
    text = "\n\n".join(block.text for block in message.blocks if isinstance(block, TextBlock) and block.text)
    if not calls:
        return [TextBlock(text=json.dumps({"final": text}, ensure_ascii=False))] if text else []
    asked = {"action": calls[0]} if len(calls) == 1 else {"actions": calls}
    line = json.dumps(asked, ensure_ascii=False)
    return [TextBlock(text=f"{text}\n{line}" if text else line)]


def _call_as_text(call: ToolUseBlock) -> dict[str, Any]:
    return {"tool": call.name, "input": call.unparsed if call.input is None else call.input}


def _observation(results: Sequence[ToolResultBlock], names: Mapping[str, str]) -> str:
    """The results in the format of seed-3."""
    if len(results) == 1:
        value = {"observation": results[0].content, "tool": names.get(results[0].tool_use_id, "")}
    else:
        merged = "\n\n".join(f"[{names.get(result.tool_use_id, '')}]: {result.content}" for result in results)
        value = {"observation": merged}
    return json.dumps(value, ensure_ascii=False)
