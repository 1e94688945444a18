"""OpenAI's chat completions: converts our messages to theirs and their chunks to our events. No network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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

# OpenAI refuses longer call ids ("string too long. Expected a string with maximum length 40").
MAX_ID: Final = 40

_STOP_REASONS: Final[Mapping[str, StopReason]] = {
    "stop": "end_turn",
    "eos": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}


# Gemini 3 and later refuse a history in which the first call of an answer lacks its thought signature. The signature
# travels in our thinking block. For calls without one (from another provider or an older log), Google documents a
# placeholder.
_GOOGLE: Final = "google:"
_NO_PROOF: Final = "skip_thought_signature_validator"


def message_to_wire(
    message: Message,
    *,
    replay_thinking: bool = False,
    sign_calls: bool = False,
    read_file: FileReader | None = None,
    takes: Takes = "all",
) -> list[dict[str, Any]]:
    """One of our messages in their format: results become separate messages before the text.

    Args:
        message: Any of a valid history.
        replay_thinking: Send the model's reasoning back with its calls. DeepSeek and Moonshot refuse a history
            without it; others don't know the field.
        sign_calls: Send back the signature that came with a call, which Gemini requires.
        read_file: Reads what is attached, and what belongs to results.
        takes: The kinds of files that the endpoint takes.
    """
    texts = [block.text for block in message.blocks if isinstance(block, TextBlock) and block.text]
    text = "\n\n".join(texts)
    if message.role == "user":
        wire: list[dict[str, Any]] = [
            {
                "role": "tool",
                "tool_call_id": wire_id(block.tool_use_id, max_length=MAX_ID),
                # Some endpoints refuse an empty result.
                "content": block.content or "(no output)",
            }
            for block in message.blocks
            if isinstance(block, ToolResultBlock)
        ]
        files = (*message.result_files, *message.files)
        parts = [part_of(file, read_file, takes=takes) for file in files]
        of_results = parts[: len(message.result_files)]
        shown = [_file_to_wire(part) for part in parts if part not in of_results or part.kind != "text"]
        if told := [part.content for part in of_results if part.kind == "text"]:
            wire[-1]["content"] += "\n\n" + "\n\n".join(told)
        if names := [part.name for part in of_results if part.kind != "text"]:
            # A result holds words only, so what is seen of it follows in a message that says so.
            shown.insert(0, {"type": "text", "text": f"[In the results of the tools: {', '.join(names)}]"})
        if wire and text and not _is_said(message):
            # A message with only the time would look like something that the user said, so it is added to the newest
            # result.
            wire[-1]["content"] += f"\n\n{text}"
            text = ""
        if shown:
            words = text or ("(no text)" if message.files else "")
            said = [{"type": "text", "text": words}] if words else []
            wire.append({"role": "user", "content": [*shown, *said]})
        elif text or not wire:
            wire.append({"role": "user", "content": text or "(no text)"})
        return wire
    calls = [_call_to_wire(call) for call in message.tool_uses]
    if not calls:
        return [{"role": "assistant", "content": text}] if text else []
    if sign_calls:
        calls[0]["extra_content"] = {"google": {"thought_signature": _proof_in(message)}}
    answer: dict[str, Any] = {"role": "assistant", "content": text or None, "tool_calls": calls}
    if replay_thinking:
        answer["reasoning_content"] = "".join(
            block.text for block in message.blocks if isinstance(block, ThinkingBlock)
        )
    return [answer]


def _file_to_wire(part: FilePart) -> dict[str, Any]:
    address = f"data:{part.media_type};base64,{part.content}"
    match part.kind:
        case "picture":
            return {"type": "image_url", "image_url": {"url": address}}
        case "document":
            return {"type": "file", "file": {"filename": part.name, "file_data": address}}
        case "text":
            return {"type": "text", "text": part.content}


def _is_said(message: Message) -> bool:
    """Whether it contains more than the time and the like: words, files, memories, or a notice."""
    return any(
        isinstance(block, FileBlock) or (isinstance(block, TextBlock) and block.origin != "context")
        for block in message.blocks
    )


def _proof_in(message: Message) -> str:
    for block in message.blocks:
        if isinstance(block, ThinkingBlock) and block.signature.startswith(_GOOGLE):
            return block.signature.removeprefix(_GOOGLE)
    return _NO_PROOF


def _call_to_wire(call: ToolUseBlock) -> dict[str, Any]:
    # Chat templates parse the arguments, so unparsed text is put into a valid object.
    arguments = {"unparsed_arguments": call.unparsed} if call.input is None else call.input
    return {
        "id": wire_id(call.id, max_length=MAX_ID),
        "type": "function",
        "function": {"name": wire_name(call.name), "arguments": encode(arguments).decode()},
    }


def tools_to_wire(tools: Iterable[ToolDefinition]) -> list[dict[str, Any]]:
    """The tool definitions."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.input_schema,
            },
        }
        for tool in tools
    ]


def tool_choice_to_wire(options: Mapping[str, Any]) -> dict[str, Any]:
    """What the model must or may call, for a request with tools."""
    choice = options.get("tool_choice", "auto")
    if choice not in ("auto", "required"):
        choice = {"type": "function", "function": {"name": wire_name(choice)}}
    parallel = {"parallel_tool_calls": False} if options.get("parallel_tool_calls") is False else {}
    return {"tool_choice": choice, **parallel}


def response_format_to_wire(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema for the answer. Not "strict", which supports only a part of JSON Schema."""
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": False}}


def usage_from_wire(usage: Mapping[str, Any]) -> Usage:
    """Their token counts as ours. Both count cached tokens as input and reasoning as output."""
    sent, said = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
    details = usage.get("prompt_tokens_details")
    details = details if isinstance(details, Mapping) else {}
    reasoning = usage.get("completion_tokens_details")
    thought = _count(reasoning, "reasoning_tokens") if isinstance(reasoning, Mapping) else 0
    # xAI counts reasoning separately from the output; the total shows it.
    if thought and _count(usage, "total_tokens") == sent + said + thought:
        said += thought
    return Usage(
        input_tokens=sent,
        output_tokens=said,
        # DeepSeek has its own field for cached tokens.
        cache_read_tokens=_count(details, "cached_tokens") or _count(usage, "prompt_cache_hit_tokens"),
        cache_write_tokens=_count(details, "cache_write_tokens"),
    )


def _count(values: Mapping[str, Any], name: str) -> int:
    value = values.get(name)
    return value if isinstance(value, int) and value > 0 else 0


class _Call:
    """A call that is being assembled."""

    __slots__ = ("id", "name", "parts", "proposed")

    def __init__(self, id: str, proposed: str) -> None:
        self.id = id
        self.proposed = proposed
        self.name = ""
        self.parts: list[str] = []

    def block(self) -> ToolUseBlock:
        text = "".join(self.parts)
        arguments = parse_object(text)
        return ToolUseBlock(
            id=self.id,
            name=self.name,
            input=arguments,
            unparsed="" if arguments is not None else clean_text(text),
        )


class ChatAnswer(AnswerAssembler):
    """Assembles one answer."""

    stop_reasons = _STOP_REASONS

    def __init__(self, ids: CallIds) -> None:
        super().__init__(ids)
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._proof = ""

    def feed(self, data: dict[str, Any]) -> list[Delta]:
        """Add one chunk."""
        return self._read_choices(data, "delta")

    def feed_whole(self, body: dict[str, Any]) -> list[Delta]:
        """Add a complete answer."""
        return self._read_choices(body, "message")

    def _read_choices(self, data: dict[str, Any], field: str) -> list[Delta]:
        if isinstance(usage := data.get("usage"), dict):
            self.usage = usage_from_wire(usage)
        if not self.model and isinstance(model := data.get("model"), str):
            self.model = model
        events: list[Delta] = []
        choices = data.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if not isinstance(choice, dict) or choice.get("index", 0) not in (0, None):
                continue
            if isinstance(delta := choice.get(field), dict):
                self._delta(delta, events)
            if isinstance(finish := choice.get("finish_reason"), str) and finish:
                self.stop = finish
        return events

    def _delta(self, delta: dict[str, Any], events: list[Delta]) -> None:
        # DeepSeek, vLLM and llama.cpp use reasoning_content, OpenRouter reasoning, Ollama reasoning or thinking; some
        # use both for the same text.
        thinking = delta.get("reasoning_content") or delta.get("reasoning") or delta.get("thinking")
        if isinstance(thinking, str) and thinking:
            self._thinking.append(thinking)
            events.append(ThinkingDelta(text=clean_text(thinking)))
        content = delta.get("content")
        text = content if isinstance(content, str) else _text_of_parts(content)
        # The text of the separate field for refusals is part of the answer.
        if not text and isinstance(refusal := delta.get("refusal"), str):
            text = refusal
        if text:
            self._text.append(text)
            events.append(TextDelta(text=clean_text(text)))
        calls = delta.get("tool_calls")
        for position, item in enumerate(calls if isinstance(calls, list) else ()):
            if isinstance(item, dict):
                self._call(item, position, events)

    def _call(self, item: dict[str, Any], position: int, events: list[Delta]) -> None:
        function = item.get("function")
        function = function if isinstance(function, dict) else {}
        match item.get("extra_content"):
            case {"google": {"thought_signature": str(proof)}} if proof and not self._proof:
                self._proof = _GOOGLE + proof
            case _:
                pass
        proposed = item.get("id") if isinstance(item.get("id"), str) else ""
        index = item.get("index")
        call = self._by_index.get(index) if isinstance(index, int) else None
        if not isinstance(index, int):
            # Endpoints that omit the index send complete calls, or continue one without its name: the one whose id they
            # repeat, or the last.
            if not function.get("name"):
                call = next((one for one in reversed(self._calls) if proposed in ("", one.proposed)), None)
            index = len(self._calls)
        elif (
            call is not None
            and proposed
            and call.proposed
            and proposed != call.proposed
            and function.get("name")
        ):
            # Some give every call the index 0; a different id with a name is a new call.
            call = None
        if call is None:
            call = _Call(self._ids.claim(proposed or ""), proposed or "")
            self._calls.append(call)
            self._by_index[index] = call
        if not call.name and isinstance(name := function.get("name"), str):
            call.name = name
        arguments = function.get("arguments")
        if isinstance(arguments, dict):
            # Ollama's own format, and some others, send the object itself.
            arguments = encode(arguments).decode()
        if isinstance(arguments, str) and arguments:
            call.parts.append(arguments)
            events.append(ToolInputDelta(call_id=call.id, tool=call.name, text=clean_text(arguments)))

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The answer so far."""
        blocks: list[Block] = []
        if self._thinking or self._proof:
            blocks.append(ThinkingBlock(text=clean_text("".join(self._thinking)), signature=self._proof))
        if self._text:
            blocks.append(TextBlock(text=clean_text("".join(self._text))))
        return (*blocks, *(call.block() for call in self._calls))


def _text_of_parts(content: Any) -> str:
    """The text of content that is a list of parts, as Mistral's reasoning models send it."""
    if not isinstance(content, Sequence) or isinstance(content, str):
        return ""
    return "".join(
        part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)
    )
