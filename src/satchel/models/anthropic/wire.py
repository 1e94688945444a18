"""Anthropic's messages: converts our messages to theirs and their events to ours. No network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

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
    clean_text,
)
from satchel.models.encoding import encode, parse_object
from satchel.models.files import FilePart, Takes, part_of
from satchel.models.hosted import AnswerAssembler, Delta
from satchel.models.identifiers import CallIds, wire_id, wire_name
from satchel.models.port import FileReader, ToolDefinition

MAX_ID: Final = 64

# Marks the end of a prefix to cache; the marks themselves are not part of the comparison.
CACHED: Final[Mapping[str, str]] = {"type": "ephemeral"}

_STOP_REASONS: Final[Mapping[str, StopReason]] = {
    "end_turn": "end_turn",
    "stop_sequence": "end_turn",
    "tool_use": "tool_use",
    "max_tokens": "max_tokens",
    "model_context_window_exceeded": "max_tokens",
    "refusal": "refusal",
}


def message_to_wire(
    message: Message,
    *,
    cached: bool = False,
    calls_as_text: bool = False,
    read_file: FileReader | None = None,
    takes: Takes = "all",
) -> dict[str, Any] | None:
    """One of our messages in their format, or None if it has nothing to send.

    Args:
        message: Any of a valid history.
        cached: Put a cache mark on its last block; for a user's message.
        calls_as_text: Convert calls and results to text, because a request without tools may not contain any.
        read_file: Reads what is attached, and what belongs to results.
        takes: The kinds of files that the endpoint takes.
    """
    wire: list[dict[str, Any]] = []
    late: list[dict[str, Any]] = []

    def shown(file: FileBlock) -> dict[str, Any]:
        return _file_to_wire(part_of(file, read_file, takes=takes))

    for block in message.blocks:
        match block:
            case TextBlock(text=text):
                # A text that consists of white space is refused.
                if text.strip():
                    late.append({"type": "text", "text": text})
            case FileBlock():
                late.append(shown(block))
            case ThinkingBlock():
                if (thinking := _thinking_to_wire(block)) is not None:
                    late.append(thinking)
            case ToolUseBlock() if calls_as_text:
                late.append(
                    {"type": "text", "text": f"[called {block.name} with {encode(block.input).decode()}]"}
                )
            case ToolUseBlock():
                late.append(
                    {
                        "type": "tool_use",
                        "id": wire_id(block.id, max_length=MAX_ID),
                        "name": wire_name(block.name),
                        "input": {"unparsed_arguments": block.unparsed}
                        if block.input is None
                        else block.input,
                    }
                )
            case ToolResultBlock(content=content) if calls_as_text:
                wire.append({"type": "text", "text": f"[result: {content}]"})
            case ToolResultBlock():
                # Results come before everything else in the user's message.
                result = Message(role="user", blocks=(block,))
                wire.append(_result_to_wire(block, [shown(file) for file in result.result_files]))
    if calls_as_text:
        wire += [shown(file) for file in message.result_files]
    wire += late
    if not wire:
        if message.role == "assistant":
            return None
        wire.append({"type": "text", "text": "(no text)"})
    if cached:
        wire[-1]["cache_control"] = CACHED
    return {"role": message.role, "content": wire}


def _file_to_wire(part: FilePart) -> dict[str, Any]:
    source = {"type": "base64", "media_type": part.media_type, "data": part.content}
    match part.kind:
        case "picture":
            return {"type": "image", "source": source}
        case "document":
            return {"type": "document", "source": source, "title": part.name}
        case "text":
            return {"type": "text", "text": part.content}


def _thinking_to_wire(block: ThinkingBlock) -> dict[str, Any] | None:
    # Reasoning without Anthropic's own signature is refused. Other providers have none or a prefix ("google:…");
    # Anthropic's is base64 and contains no colon.
    if not block.signature or ":" in block.signature:
        return None
    if block.redacted:
        return {"type": "redacted_thinking", "data": block.signature}
    return {"type": "thinking", "thinking": block.text, "signature": block.signature}


def _result_to_wire(block: ToolResultBlock, files: list[dict[str, Any]]) -> dict[str, Any]:
    wire: dict[str, Any] = {
        "type": "tool_result",
        "tool_use_id": wire_id(block.tool_use_id, max_length=MAX_ID),
    }
    # An empty text is refused; a result without content is not.
    if files:
        words = [{"type": "text", "text": block.content}] if block.content.strip() else []
        wire["content"] = [*words, *files]
    elif block.content.strip():
        wire["content"] = block.content
    if block.is_error:
        wire["is_error"] = True
    return wire


def system_to_wire(system: str) -> list[dict[str, Any]]:
    """The system text with a cache mark, because it and the tools before it don't change during a session."""
    return [{"type": "text", "text": system, "cache_control": CACHED}]


def tools_to_wire(tools: Iterable[ToolDefinition], *, cached: bool) -> list[dict[str, Any]]:
    """The tool definitions; `cached` marks the last one, for requests without a marked system text."""
    wire: list[dict[str, Any]] = [
        {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema}
        for tool in tools
    ]
    if cached and wire:
        wire[-1]["cache_control"] = CACHED
    return wire


def tool_choice_to_wire(options: Mapping[str, Any]) -> dict[str, Any]:
    """What the model must or may call; empty if it decides freely."""
    choice: dict[str, Any]
    match options.get("tool_choice"):
        case None if options.get("parallel_tool_calls") is not False:
            return {}
        case None:
            choice = {"type": "auto"}
        case "required":
            choice = {"type": "any"}
        case name:
            choice = {"type": "tool", "name": wire_name(name)}
    return choice | ({"disable_parallel_tool_use": True} if "parallel_tool_calls" in options else {})


class _Part:
    """A block that is being assembled."""

    __slots__ = ("id", "input", "kind", "name", "pieces", "signature")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.pieces: list[str] = []
        self.id = self.name = self.signature = ""
        self.input: Any = None

    def block(self) -> Block | None:
        text = "".join(self.pieces)
        match self.kind:
            case "text":
                return TextBlock(text=clean_text(text)) if text else None
            case "thinking":
                if not text and not self.signature:
                    return None
                # The signature covers exactly this text, so it isn't cleaned.
                return ThinkingBlock(text=text, signature=self.signature)
            case "redacted_thinking":
                return ThinkingBlock(text="", signature=self.signature, redacted=True)
            case "tool_use":
                # Some compatible endpoints send the complete input at the start.
                arguments = self.input if isinstance(self.input, dict) and not text else parse_object(text)
                return ToolUseBlock(
                    id=self.id,
                    name=self.name,
                    input=arguments,
                    unparsed="" if arguments is not None else clean_text(text),
                )
            case _:
                return None


class MessagesAnswer(AnswerAssembler):
    """Assembles one answer."""

    stop_reasons = _STOP_REASONS

    def __init__(self, ids: CallIds) -> None:
        super().__init__(ids)
        self._parts: dict[Any, _Part] = {}
        self._counts: dict[str, int] = {}

    def feed(self, data: dict[str, Any]) -> list[Delta]:
        """Add one event."""
        match data.get("type"):
            case "content_block_delta":
                return self._delta(data.get("index"), data.get("delta"))
            case "content_block_start":
                block = data.get("content_block")
                return self._start(data.get("index"), block) if isinstance(block, dict) else []
            case "message_start" if isinstance(message := data.get("message"), dict):
                self._head(message)
            case "message_delta":
                if isinstance(delta := data.get("delta"), dict) and isinstance(delta.get("stop_reason"), str):
                    self.stop = delta["stop_reason"]
                self._count(data.get("usage"))
            case _:
                pass
        return []

    def feed_whole(self, body: dict[str, Any]) -> list[Delta]:
        """Add a complete message."""
        self._head(body)
        events: list[Delta] = []
        content = body.get("content")
        for index, block in enumerate(content if isinstance(content, list) else ()):
            if isinstance(block, dict):
                events += self._start(index, block)
                part = self._parts.get(index)
                if part is not None and part.kind == "tool_use" and isinstance(part.input, dict):
                    text = encode(part.input).decode()
                    events.append(ToolInputDelta(call_id=part.id, tool=part.name, text=text))
        if isinstance(stop := body.get("stop_reason"), str):
            self.stop = stop
        return events

    def _head(self, message: dict[str, Any]) -> None:
        if isinstance(model := message.get("model"), str):
            self.model = model
        self._count(message.get("usage"))

    def _count(self, usage: Any) -> None:
        # Counts arrive at the start and again at the end, each as a total; the last one is valid.
        if isinstance(usage, dict):
            self._counts |= {
                name: value
                for name, value in usage.items()
                if isinstance(value, int) and name.endswith("_tokens")
            }
        counted = self._counts.get
        if "output_tokens" in self._counts or "input_tokens" in self._counts:
            # Anthropic counts cached tokens separately from the input; our count includes them.
            read = counted("cache_read_input_tokens", 0)
            written = counted("cache_creation_input_tokens", 0)
            self.usage = Usage(
                input_tokens=counted("input_tokens", 0) + read + written,
                output_tokens=counted("output_tokens", 0),
                cache_read_tokens=read,
                cache_write_tokens=written,
            )

    def _start(self, index: Any, block: dict[str, Any]) -> list[Delta]:
        kind = str(block.get("type"))
        part = self._parts[index] = _Part(kind)
        match kind:
            case "text":
                return self._piece(part, "text_delta", block.get("text"))
            case "thinking":
                part.signature = str(block.get("signature") or "")
                return self._piece(part, "thinking_delta", block.get("thinking"))
            case "redacted_thinking":
                part.signature = str(block.get("data") or "")
            case "tool_use":
                part.id = self._ids.claim(str(block.get("id") or ""))
                part.name = str(block.get("name") or "")
                part.input = block.get("input")
                if part.input is not None and not isinstance(part.input, dict):
                    # Not an object: keep the text, as for input that arrives in pieces.
                    text = part.input if isinstance(part.input, str) else encode(part.input).decode()
                    return self._piece(part, "input_json_delta", text)
            case _:
                pass
        return []

    def _delta(self, index: Any, delta: Any) -> list[Delta]:
        part = self._parts.get(index)
        if part is None or not isinstance(delta, dict):
            return []
        match delta.get("type"):
            case "text_delta":
                return self._piece(part, "text_delta", delta.get("text"))
            case "thinking_delta":
                return self._piece(part, "thinking_delta", delta.get("thinking"))
            case "input_json_delta":
                return self._piece(part, "input_json_delta", delta.get("partial_json"))
            case "signature_delta":
                part.signature += str(delta.get("signature") or "")
            case _:
                pass
        return []

    def _piece(self, part: _Part, kind: str, text: Any) -> list[Delta]:
        if not isinstance(text, str) or not text:
            return []
        part.pieces.append(text)
        text = clean_text(text)
        match kind:
            case "text_delta":
                return [TextDelta(text=text)]
            case "thinking_delta":
                return [ThinkingDelta(text=text)]
            case _:
                return [ToolInputDelta(call_id=part.id, tool=part.name, text=text)]

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The answer so far."""
        return tuple(block for part in self._parts.values() if (block := part.block()) is not None)
