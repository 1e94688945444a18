"""A model with scripted answers, for tests, demonstrations and benchmarks without an endpoint."""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from satchel.errors import ModelError, ModelUnavailable
from satchel.events import TextDelta, ThinkingDelta, ToolInputDelta
from satchel.messages import (
    Block,
    FileBlock,
    Message,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    Usage,
    size_of_message,
)
from satchel.models.port import OPTIONS, Completion, ModelEvent, ModelRequest, Retrying


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call in a scripted reply.

    Attributes:
        input: The arguments, or a text that is sent unchanged, for example because it doesn't parse.
        id: If empty, the model numbers its calls: call_1, call_2, …
    """

    name: str
    input: Mapping[str, Any] | str = field(default_factory=dict)
    id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One answer of a scripted model; its parts are sent in the order of the fields.

    Attributes:
        retrying: Retries that are reported before anything else.
        before: Awaited before the first delta, for example to delay the answer.
        chunk: The number of characters in a delta; 0 sends each part in one delta.
        between: Awaited before each delta after the first.
        error: Raised after the deltas, instead of the end.
        cut: The stream ends without its finish reason; raises `ModelUnavailable`, as an adapter would.
        stop_reason: None means "tool_use" if there are calls, otherwise "end_turn".
    """

    text: str = ""
    thinking: str = ""
    signature: str = ""
    calls: Sequence[Call] = ()
    retrying: Sequence[Retrying] = ()
    before: Callable[[], Awaitable[object]] | None = None
    chunk: int = 0
    between: Callable[[], Awaitable[object]] | None = None
    error: ModelError | None = None
    cut: bool = False
    stop_reason: StopReason | None = None
    usage: Usage | None = None


Script: TypeAlias = (
    Sequence[Reply | str | ModelError]
    | Callable[[ModelRequest], Reply | str | ModelError | Awaitable[Reply | str]]
)


class ScriptedModel:
    """A `ChatModel` without an endpoint. It records its requests in `requests`.

    A list of replies is sent in order; when it is used up, the model raises an error. A function is called for each
    reply. A string is a reply with that text, and an error is raised immediately.
    """

    options = OPTIONS

    def __init__(
        self,
        script: Script,
        *,
        provider: str = "scripted",
        model: str = "scripted",
        context_window: int | None = None,
    ) -> None:
        self._script = script
        self.provider = provider
        self.model = model
        self.context_window = context_window
        self._position = 0
        self._calls = 0
        self.requests: list[ModelRequest] = []
        self.is_closed = False

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """See `ChatModel.stream`."""
        self.requests.append(request)
        reply = await self._next(request)
        for notice in reply.retrying:
            yield notice
        if reply.before is not None:
            await reply.before()
        blocks = self._blocks(reply)
        first = True
        for block in blocks:
            for delta in _deltas(block, reply.chunk):
                if not first and reply.between is not None:
                    await reply.between()
                first = False
                yield delta
        if reply.error is not None:
            raise reply.error
        if reply.cut:
            raise ModelUnavailable(
                f"{self.provider}:{self.model} cut the connection before its answer was whole."
            )
        yield Completion(
            blocks=blocks,
            stop_reason=reply.stop_reason or ("tool_use" if reply.calls else "end_turn"),
            usage=reply.usage or _estimated(request, blocks),
            provider=self.provider,
            model=self.model,
        )

    async def aclose(self) -> None:
        """Record that it was closed."""
        self.is_closed = True

    async def _next(self, request: ModelRequest) -> Reply:
        if callable(self._script):
            made = self._script(request)
            reply = await made if inspect.isawaitable(made) else made
        elif self._position < len(self._script):
            reply = self._script[self._position]
            self._position += 1
        else:
            raise ModelUnavailable(f"The script has {self._position} replies and was asked for one more.")
        if isinstance(reply, ModelError):
            raise reply
        return Reply(text=reply) if isinstance(reply, str) else reply

    def _blocks(self, reply: Reply) -> tuple[Block, ...]:
        blocks: list[Block] = []
        if reply.thinking:
            blocks.append(ThinkingBlock(text=reply.thinking, signature=reply.signature))
        if reply.text:
            blocks.append(TextBlock(text=reply.text))
        for call in reply.calls:
            self._calls += 1
            call_id = call.id or f"call_{self._calls}"
            if isinstance(call.input, str):
                blocks.append(ToolUseBlock(id=call_id, name=call.name, input=None, unparsed=call.input))
            else:
                blocks.append(ToolUseBlock(id=call_id, name=call.name, input=call.input))
        return tuple(blocks)


def _deltas(block: Block, chunk: int) -> list[ModelEvent]:
    match block:
        case TextBlock(text=text):
            return [TextDelta(text=piece) for piece in _pieces(text, chunk)]
        case ThinkingBlock(text=text):
            return [ThinkingDelta(text=piece) for piece in _pieces(text, chunk)]
        case ToolUseBlock(id=call_id, name=name, input=arguments, unparsed=unparsed):
            text = unparsed if arguments is None else json.dumps(arguments, ensure_ascii=False)
            return [ToolInputDelta(call_id=call_id, tool=name, text=piece) for piece in _pieces(text, chunk)]
        case _:
            return []


def _pieces(text: str, chunk: int) -> list[str]:
    size = chunk or max(1, len(text))
    return [text[start : start + size] for start in range(0, len(text), size)]


def _estimated(request: ModelRequest, blocks: tuple[Block, ...]) -> Usage:
    """Tokens estimated as four characters each, so that budgets and windows can be tested."""
    sent = len(request.system) + sum(
        _length(block) for message in request.messages for block in message.blocks
    )
    return Usage(input_tokens=sent // 4 + 1, output_tokens=sum(map(_length, blocks)) // 4 + 1)


def _length(block: Block) -> int:
    match block:
        case TextBlock(text=text) | ThinkingBlock(text=text):
            return len(text)
        case ToolUseBlock(input=arguments, unparsed=unparsed):
            return len(unparsed) + len(str(arguments or ""))
        case ToolResultBlock(content=content):
            return len(content)
        case FileBlock():
            return size_of_message(Message(role="user", blocks=(block,)))
