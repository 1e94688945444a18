"""Detects which program wrote a file, from its beginning."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO, NamedTuple, TypeAlias

from satchel.memory.transfer import chatgpt, claude_code, codex, markdown, mcp_graph, mem0, own_format
from satchel.memory.transfer.files import SourceFile
from satchel.memory.transfer.json_stream import elements, lines
from satchel.memory.transfer.parts import LeftOut, Part
from satchel.memory.transfer.report import ImportSource

__all__ = ["FORMATS", "Format", "NamedReader", "Reader", "may_be", "source_of"]

Reader: TypeAlias = Callable[[BinaryIO, SourceFile], Iterator[Part]]


class NamedReader(NamedTuple):
    """A reader of a format that is not built in, with the format's name."""

    name: str
    read: Reader


class Format(NamedTuple):
    """A format that is built in.

    Attributes:
        suffixes: Of the names of its files, which also begin with `prefix`.
        has_line: Whether a line of JSON is one of its lines; None where its files are not recognised by one.
    """

    read: Reader
    suffixes: tuple[str, ...]
    has_line: Callable[[Mapping[str, Any]], bool] | None = None
    prefix: str = ""


_MARKDOWN = (".md", ".markdown")
FORMATS: Mapping[ImportSource, Format] = {
    "satchel": Format(own_format.read, (".jsonl",), own_format.is_own_line),
    "mcp": Format(mcp_graph.read, (".jsonl", ".json"), mcp_graph.is_own_line),
    "claude-code": Format(claude_code.read, (".jsonl",), claude_code.is_own_line),
    "codex": Format(codex.read, (".jsonl",), codex.is_own_line, "rollout-"),
    "chatgpt": Format(chatgpt.read, (".json",), chatgpt.is_conversation, "conversations"),
    "markdown": Format(markdown.read, _MARKDOWN),
    "mem0": Format(mem0.read, (".json", ".jsonl", ".ndjson")),
}

_MAX_EXAMINED = 50  # Lines or elements: the first ones of a transcript may not identify it.
_NOT_CONVERSATIONS = (
    "user.json",
    "message_feedback.json",
    "model_comparisons.json",
    "shared_conversations.json",
    "history.jsonl",
    "session_index.jsonl",
)
"""Other files in the folders of conversations; they are ignored."""


def may_be(file: SourceFile, source: ImportSource) -> bool:
    """Whether the name of a file in a folder or an archive fits a format."""
    base = file.base.lower()
    if base in _NOT_CONVERSATIONS:
        return False
    if source == "auto":
        return True
    return base.startswith(FORMATS[source].prefix) and base.endswith(FORMATS[source].suffixes)


def source_of(file: SourceFile) -> ImportSource | None:
    """The format of a file, or None if it is unknown."""
    base = file.base.lower()
    if base.endswith(_MARKDOWN):
        return "markdown"
    with file.open() as stream:
        head = stream.peek(1 << 16) if hasattr(stream, "peek") else b""
    begin = head.lstrip()[:1]
    if begin == b"[":
        return _of_elements(file)
    if begin != b"{":
        return None
    with file.open() as stream:
        for looked, (_, line) in enumerate(lines(stream, file.name)):
            if isinstance(line, LeftOut):
                break  # A JSON object on several lines.
            for source, found in FORMATS.items():
                if found.has_line is not None and found.has_line(line):
                    return source
            if looked == 0 and any(isinstance(line.get(key), list) for key in ("results", "memories")):
                return _of_elements(file)
            if mem0.is_memory(line):
                return "mem0"
            if looked >= _MAX_EXAMINED:
                return None
    of_elements = _of_elements(file)
    if of_elements is None:
        with file.open() as stream:
            return None if chatgpt.single_conversation(stream) is None else "chatgpt"
    return of_elements


def _of_elements(file: SourceFile) -> ImportSource | None:
    with file.open() as stream:
        for looked, (_, element) in enumerate(elements(stream, file.name)):
            if not isinstance(element, LeftOut):
                if chatgpt.is_conversation(element):
                    return "chatgpt"
                if mem0.is_memory(element):
                    return "mem0"
            if looked >= _MAX_EXAMINED:
                return None
    return None
