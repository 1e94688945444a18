"""The vocabulary of conversations: content blocks, messages, usage."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

Role: TypeAlias = Literal["user", "assistant"]
Origin: TypeAlias = Literal["said", "memory", "notice", "context"]
"""Where a text block comes from: a person or a model said it, memory surfaced it, Satchel or another program has
something to say ("notice"), or it describes the circumstances ("context"), such as the time.

Only what was *said* is ever captured as memory (the echo guard)."""

IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""The pictures that models take."""
_UNSAFE: Final = re.compile(r"[^\w.-]+")

StopReason: TypeAlias = Literal["end_turn", "tool_use", "max_tokens", "refusal", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextBlock:
    """Text."""

    text: str
    origin: Origin = "said"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileBlock:
    """A file that the user attached or a tool returned: which bytes they are. The bytes are beside the session's log.

    Attributes:
        sha256: Of the bytes, 64 hexadecimal digits.
        media_type: What the bytes are, whatever the sender claimed: "image/png", "application/octet-stream" if unknown.
        name: As the user called it, without folders.
        size: In bytes.
        text_size: Of its `text_twin`, in bytes; 0 if it has none.
    """

    sha256: str
    media_type: str
    name: str
    size: int
    text_size: int = 0

    @property
    def is_picture(self) -> bool:
        """Whether it is a picture, be it one that models take or one that is converted for them."""
        return self.media_type.startswith("image/")

    @property
    def is_image(self) -> bool:
        """Whether models that see and browsers take it as a picture."""
        return self.media_type in IMAGES

    @property
    def is_sendable(self) -> bool:
        """Whether there are models that take it as it is: as a picture, or as a document."""
        return self.is_picture or self.media_type == "application/pdf"

    @property
    def text_twin(self) -> FileBlock:
        """The text of a document, for models that don't take documents, or what a model that sees said of a picture.
        Only some have one.
        """
        # Named after the copy, whose name is all that the one who describes it knows.
        return replace(self, media_type="text/plain", name=f"{self.file_name[17:]}.txt")

    @property
    def small_twin(self) -> FileBlock:
        """A JPEG of a picture that is large or in another format: what models get, and browsers where they must."""
        return replace(self, media_type="image/jpeg", name=f"{self.name}.small.jpg")

    @property
    def kept(self) -> tuple[FileBlock, ...]:
        """All that may be beside the log of this file."""
        return (self, self.text_twin, self.small_twin)

    @property
    def file_name(self) -> str:
        """The name of its copy: different for other bytes, and readable for people and tools; a picture ends as one."""
        name = _UNSAFE.sub("-", self.name)[-80:].lstrip(".-") or "file"
        ending = self.media_type.partition("/")[2]
        is_told = not self.is_image or name.lower().endswith(
            (f".{ending}", ".jpg" if ending == "jpeg" else ".")
        )
        return f"{self.sha256[:16]}-{name}" if is_told else f"{self.sha256[:16]}-{name}.{ending}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingBlock:
    """A model's reasoning. `signature` is the provider's opaque signature, which is replayed unchanged.

    `redacted` marks reasoning that the provider encrypted; `signature` then contains the encrypted data.
    """

    text: str
    signature: str = ""
    redacted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUseBlock:
    """A tool call by a model.

    Attributes:
        id: Unique in the conversation; the result refers to it.
        input: The arguments; None if the model didn't send a JSON object.
        unparsed: What the model sent, unchanged, if `input` is None.
    """

    id: str
    name: str
    input: Mapping[str, Any] | None
    unparsed: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResultBlock:
    """The result of the call `tool_use_id`.

    Attributes:
        content: Says everything that can be said in words, which files there are among it.
        files: The pictures and files that belong to it.
    """

    tool_use_id: str
    content: str
    is_error: bool = False
    files: tuple[FileBlock, ...] = ()


Block: TypeAlias = TextBlock | FileBlock | ThinkingBlock | ToolUseBlock | ToolResultBlock


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a conversation.

    A valid history starts with the user. Exactly one `ToolResultBlock` answers every `ToolUseBlock` of an assistant
    message; it is in the next user message, before any other block.
    """

    role: Role
    blocks: tuple[Block, ...]

    @property
    def text(self) -> str:
        """What was said in the message, without thinking, tools, surfaced memories and notices."""
        return text_of(self.blocks)

    @property
    def files(self) -> tuple[FileBlock, ...]:
        """What was attached to it, in order; see also `result_files`."""
        return tuple(block for block in self.blocks if isinstance(block, FileBlock))

    @property
    def result_files(self) -> tuple[FileBlock, ...]:
        """The files of the results in it that a model may be sent, in order. Of a failed call, there are only words."""
        return tuple(
            file
            for block in self.blocks
            if isinstance(block, ToolResultBlock) and not block.is_error
            for file in block.files
            if file.is_sendable
        )

    @property
    def tool_uses(self) -> tuple[ToolUseBlock, ...]:
        """The calls in the message, in order."""
        return tuple(block for block in self.blocks if isinstance(block, ToolUseBlock))


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens and money of one or more model calls.

    Attributes:
        input_tokens: All input tokens, including those read from and written to a cache.
        output_tokens: All output tokens, including thinking.
        cache_read_tokens: The part of the input that was read from a cache.
        cache_write_tokens: The part of the input that was written to a cache.
        cost_usd: The cost in US dollars; None if the price is unknown.
        estimated: Whether the tokens were estimated because the provider reported none.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost_usd: float | None = None
    estimated: bool = False

    def __add__(self, other: Usage) -> Usage:
        """The sum of both. If the cost is unknown on both sides, it stays unknown."""
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


_IMAGE_BYTES = 6_400
"""What a picture counts as in a request: 1,600 tokens of four bytes, what Anthropic's documentation gives for the
largest one that it does not scale down."""
_DOCUMENT_SHARE = 8
"""A PDF without text counts as its size through this: a guess, which the provider's own count of tokens corrects."""
MOST_TEXT: Final = 200_000
"""Characters of a file's text that are sent, about 50,000 tokens; tools read the rest. No file counts as more."""
_BLOCK_OVERHEAD = 24
"""The bytes of a block's JSON around its text: `{"type":"text","text":""}` and a comma."""


def clean_text(text: str) -> str:
    """Replace invalid characters by U+FFFD: lone surrogates, and NUL, which the databases of endpoints refuse."""
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    try:
        text.encode()
    except UnicodeEncodeError:
        # In UTF-16, two surrogates that belong together become their character.
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def size_of_text(text: str) -> int:
    """The size of the text in UTF-8, in bytes."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def size_of_message(message: Message) -> int:
    """The approximate size of a message in a request, in bytes, for estimating its tokens."""
    size = 0
    for block in message.blocks:
        size += _BLOCK_OVERHEAD
        match block:
            case TextBlock(text=text):
                size += size_of_text(text)
            case FileBlock():
                size += _size_of_file(block)
            case ThinkingBlock(text=text, signature=signature):
                size += size_of_text(text) + len(signature)
            case ToolUseBlock(name=name, input=None, unparsed=unparsed):
                size += len(name) + size_of_text(unparsed)
            case ToolUseBlock(name=name, input=input):
                size += len(name) + len(json.dumps(input, ensure_ascii=True, default=str))
            case ToolResultBlock(content=content):
                size += size_of_text(content)
    return size + sum(map(_size_of_file, message.result_files))


def _size_of_file(file: FileBlock) -> int:
    if file.is_picture:
        return _IMAGE_BYTES
    size = file.text_size
    if file.media_type.startswith("text/"):
        size = file.size
    elif not size and file.is_sendable:
        size = file.size // _DOCUMENT_SHARE
    return min(MOST_TEXT, size)


def text_of(blocks: Sequence[Block]) -> str:
    """What was said in the blocks, joined with line breaks."""
    return "\n".join(
        block.text for block in blocks if isinstance(block, TextBlock) and block.origin == "said"
    )


_TYPES: Final[dict[str, type[Any]]] = {
    "text": TextBlock,
    "file": FileBlock,
    "thinking": ThinkingBlock,
    "tool_use": ToolUseBlock,
    "tool_result": ToolResultBlock,
}
_TYPE_OF: Final = {kind: name for name, kind in _TYPES.items()}
_LEFT_OUT: Final[dict[str, object]] = {
    "origin": "said",
    "signature": "",
    "redacted": False,
    "unparsed": "",
    "files": (),
    "text_size": 0,
}
"""Fields that are not written where they have their default."""


def block_to_json(block: Block) -> dict[str, Any]:
    """The block as plain JSON data; `block_from_json` is the inverse."""
    value: dict[str, Any] = {"type": _TYPE_OF[type(block)]}
    for name in block.__slots__:
        part = getattr(block, name)
        if name not in _LEFT_OUT or part != _LEFT_OUT[name]:
            value[name] = part
    if isinstance(block, FileBlock):
        return {("filename" if name == "name" else name): part for name, part in value.items()}
    if "files" in value:
        value["files"] = [block_to_json(file) for file in value["files"]]
    return value


def block_from_json(value: Mapping[str, Any]) -> Block:
    """Inverse of `block_to_json`.

    Raises:
        ValueError: The type is unknown.
        KeyError, TypeError: A field is missing.
    """
    kind = _TYPES.get(value["type"])
    if kind is None:
        raise ValueError(f"No block is of type {value['type']!r}.")
    if kind is FileBlock:
        return file_from_json(value)
    found = {name: value[name] for name in kind.__slots__ if name in value}
    if "files" in found:
        found["files"] = tuple(map(file_from_json, found["files"]))
    block: Block = kind(**found)
    return block


def file_from_json(value: Mapping[str, Any]) -> FileBlock:
    """The file that `block_to_json` wrote. Older logs call the name of a waiting message's file "name".

    Raises:
        KeyError: A field is missing.
    """
    name = value["filename"] if "filename" in value else value["name"]
    return FileBlock(
        sha256=value["sha256"],
        media_type=value["media_type"],
        name=name,
        size=value["size"],
        text_size=value.get("text_size", 0),
    )
