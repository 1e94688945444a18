"""What is said between the user, the model and the tools: content blocks, messages, usage."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

__all__ = [
    "Block",
    "Message",
    "Origin",
    "Role",
    "StopReason",
    "TextBlock",
    "ThinkingBlock",
    "ToolResultBlock",
    "ToolUseBlock",
    "Usage",
    "block_from_json",
    "block_to_json",
    "clean_text",
    "message_from_json",
    "message_to_json",
    "size_of_message",
    "size_of_text",
    "text_of",
    "usage_from_json",
    "usage_to_json",
]

Role: TypeAlias = Literal["user", "assistant"]
Origin: TypeAlias = Literal["said", "memory", "notice"]
"""Where a text block comes from: a person or a model said it, memory surfaced it, or Satchel added it.

Only what was *said* is ever captured as memory (the echo guard)."""

StopReason: TypeAlias = Literal["end_turn", "tool_use", "max_tokens", "refusal", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextBlock:
    """Text."""

    text: str
    origin: Origin = "said"


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingBlock:
    """A model's reasoning. `signature` is the provider's opaque proof, replayed unchanged.

    `redacted` marks reasoning that the provider encrypted: `signature` then holds its opaque data.
    """

    text: str
    signature: str = ""
    redacted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUseBlock:
    """A model asks for a tool.

    Attributes:
        id: Unique in the conversation; the result answers to it.
        input: The arguments, or None where what the model sent is not a JSON object.
        unparsed: What the model sent, word for word, where `input` is None.
    """

    id: str
    name: str
    input: Mapping[str, Any] | None
    unparsed: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResultBlock:
    """What a tool answered to the call `tool_use_id`."""

    tool_use_id: str
    content: str
    is_error: bool = False


Block: TypeAlias = TextBlock | ThinkingBlock | ToolUseBlock | ToolResultBlock


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a conversation.

    A valid history starts with the user, and every `ToolUseBlock` of an assistant's message is answered by
    exactly one `ToolResultBlock` in the user's message right after it, before anything else is said there.
    """

    role: Role
    blocks: tuple[Block, ...]

    @property
    def text(self) -> str:
        """What was said in it, without thinking, tools, surfaced memory and notices."""
        return text_of(self.blocks)

    @property
    def tool_uses(self) -> tuple[ToolUseBlock, ...]:
        """The calls in it, in order."""
        return tuple(block for block in self.blocks if isinstance(block, ToolUseBlock))


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens and money of one or more model calls.

    Attributes:
        input_tokens: All input tokens, those read from and written to a cache included.
        output_tokens: All output tokens, thinking included.
        cache_read_tokens: The part of the input that a cache served.
        cache_write_tokens: The part of the input that was written to a cache.
        cost_usd: US dollars, or None where no price is known.
        estimated: True where a provider gave no counts and they were estimated.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost_usd: float | None = None
    estimated: bool = False

    def __add__(self, other: Usage) -> Usage:
        """Sum both; a cost that is unknown on both sides stays unknown."""
        known = [cost for cost in (self.cost_usd, other.cost_usd) if cost is not None]
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cache_read_tokens=self.cache_read_tokens + other.cache_read_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            cost_usd=sum(known) if known else None,
            estimated=self.estimated or other.estimated,
        )

    @property
    def total_tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens


_BLOCK_OVERHEAD = 24
"""Bytes of a block's JSON beside its words: `{"type":"text","text":""}` and a comma."""


def clean_text(text: str) -> str:
    """Replace what is not text by U+FFFD: lone surrogates, and NUL, which endpoints' databases refuse."""
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    try:
        text.encode()
    except UnicodeEncodeError:
        # By way of UTF-16, two halves that belong together become the character that they stand for.
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def size_of_text(text: str) -> int:
    """The size in bytes, in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def size_of_message(message: Message) -> int:
    """The size of a message in a request in bytes, near enough to estimate its tokens."""
    size = 0
    for block in message.blocks:
        size += _BLOCK_OVERHEAD
        match block:
            case TextBlock(text=text):
                size += size_of_text(text)
            case ThinkingBlock(text=text, signature=signature):
                size += size_of_text(text) + len(signature)
            case ToolUseBlock(name=name, input=None, unparsed=unparsed):
                size += len(name) + size_of_text(unparsed)
            case ToolUseBlock(name=name, input=input):
                size += len(name) + len(json.dumps(input, ensure_ascii=True, default=str))
            case ToolResultBlock(content=content):
                size += size_of_text(content)
    return size


def text_of(blocks: Sequence[Block]) -> str:
    """Join what was said in the blocks, one line break between two of them."""
    return "\n".join(
        block.text for block in blocks if isinstance(block, TextBlock) and block.origin == "said"
    )


def block_to_json(block: Block) -> dict[str, Any]:
    """A block as plain JSON data; `block_from_json` gives it back."""
    match block:
        case TextBlock(text=text, origin="said"):
            return {"type": "text", "text": text}
        case TextBlock(text=text, origin=origin):
            return {"type": "text", "text": text, "origin": origin}
        case ThinkingBlock(text=text, signature=signature, redacted=redacted):
            value: dict[str, Any] = {"type": "thinking", "text": text}
            if signature:
                value["signature"] = signature
            if redacted:
                value["redacted"] = True
            return value
        case ToolUseBlock(id=id, name=name, input=None, unparsed=unparsed):
            return {"type": "tool_use", "id": id, "name": name, "input": None, "unparsed": unparsed}
        case ToolUseBlock(id=id, name=name, input=input):
            return {"type": "tool_use", "id": id, "name": name, "input": input}
        case ToolResultBlock(tool_use_id=id, content=content, is_error=is_error):
            return {"type": "tool_result", "tool_use_id": id, "content": content, "is_error": is_error}


def block_from_json(value: Mapping[str, Any]) -> Block:
    """The block that `block_to_json` wrote.

    Raises:
        ValueError: It is of no known type.
        KeyError: A field is missing.
    """
    match value["type"]:
        case "text":
            return TextBlock(text=value["text"], origin=value.get("origin", "said"))
        case "thinking":
            return ThinkingBlock(
                text=value["text"],
                signature=value.get("signature", ""),
                redacted=value.get("redacted", False),
            )
        case "tool_use":
            return ToolUseBlock(
                id=value["id"],
                name=value["name"],
                input=value["input"],
                unparsed=value.get("unparsed", ""),
            )
        case "tool_result":
            return ToolResultBlock(
                tool_use_id=value["tool_use_id"],
                content=value["content"],
                is_error=value.get("is_error", False),
            )
        case other:
            raise ValueError(f"No block is of type {other!r}.")


def message_to_json(message: Message) -> dict[str, Any]:
    """A message as plain JSON data."""
    return {"role": message.role, "blocks": [block_to_json(block) for block in message.blocks]}


def message_from_json(value: Mapping[str, Any]) -> Message:
    """The message that `message_to_json` wrote."""
    return Message(role=value["role"], blocks=tuple(block_from_json(block) for block in value["blocks"]))


def usage_to_json(usage: Usage) -> dict[str, Any]:
    """Usage as plain JSON data."""
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "cost_usd": usage.cost_usd,
        "estimated": usage.estimated,
    }


def usage_from_json(value: Mapping[str, Any]) -> Usage:
    """The usage that `usage_to_json` wrote."""
    return Usage(**{name: value[name] for name in Usage.__slots__ if name in value})
