"""Which program wrote a file, found out by looking at its beginning."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import BinaryIO, TypeAlias

from satchel.memory.transfer import chatgpt, claude_code, codex, markdown, mcp_graph, mem0, own
from satchel.memory.transfer.files import Original
from satchel.memory.transfer.json_stream import elements, lines, parse
from satchel.memory.transfer.pieces import Left, Part
from satchel.memory.transfer.report import ImportSource

__all__ = ["READERS", "may_be", "source_of"]

Reader: TypeAlias = Callable[[BinaryIO, Original], Iterator[Part]]

READERS: Mapping[ImportSource, Reader] = {
    "satchel": own.read,
    "mcp": mcp_graph.read,
    "claude-code": claude_code.read,
    "codex": codex.read,
    "chatgpt": chatgpt.read,
    "markdown": markdown.read,
    "mem0": mem0.read,
}

_LOOKED_AT = 50  # Lines or elements: transcripts begin with some that say little.
_MARKDOWN = (".md", ".markdown")
_SUFFIXES: Mapping[ImportSource, tuple[str, ...]] = {
    "satchel": (".jsonl",),
    "mcp": (".jsonl", ".json"),
    "claude-code": (".jsonl",),
    "codex": (".jsonl",),
    "chatgpt": (".json",),
    "markdown": _MARKDOWN,
    "mem0": (".json", ".jsonl", ".ndjson"),
}
_BESIDES = (
    "user.json",
    "message_feedback.json",
    "model_comparisons.json",
    "shared_conversations.json",
    "history.jsonl",
    "session_index.jsonl",
)
"""Files beside conversations that hold none; in a folder they are passed over."""


def may_be(original: Original, source: ImportSource) -> bool:
    """Whether a file in a folder or an archive is worth reading as a format."""
    base = original.base.lower()
    if base in _BESIDES:
        return False
    if source == "auto":
        return True
    if source == "codex":
        return base.startswith("rollout-") and base.endswith(".jsonl")
    if source == "chatgpt":
        return base.startswith("conversations") and base.endswith(".json")
    return base.endswith(_SUFFIXES[source])


def source_of(original: Original) -> ImportSource | None:
    """The format of a file, or None where it is none of them."""
    base = original.base.lower()
    if base.endswith(_MARKDOWN):
        return "markdown"
    with original.open() as stream:
        head = stream.peek(1 << 16) if hasattr(stream, "peek") else b""
    begin = head.lstrip()[:1]
    if begin == b"[":
        return _of_elements(original)
    if begin != b"{":
        return None
    with original.open() as stream:
        for looked, (_, line) in enumerate(lines(stream, original.name)):
            if isinstance(line, Left):
                # The first line of an object that goes over many.
                break
            for source, is_one in (
                ("satchel", own.is_line),
                ("mcp", mcp_graph.is_line),
                ("codex", codex.is_line),
                ("claude-code", claude_code.is_line),
                ("chatgpt", chatgpt.is_conversation),
            ):
                if is_one(line):
                    return source  # type: ignore[return-value]
            if looked == 0 and any(isinstance(line.get(key), list) for key in ("results", "memories")):
                return _of_elements(original)
            if mem0.is_memory(line):
                return "mem0"
            if looked >= _LOOKED_AT:
                return None
    return _of_elements(original) or _of_whole(original)


def _of_elements(original: Original) -> ImportSource | None:
    with original.open() as stream:
        for looked, (_, element) in enumerate(elements(stream, original.name)):
            if not isinstance(element, Left):
                if chatgpt.is_conversation(element):
                    return "chatgpt"
                if mem0.is_memory(element):
                    return "mem0"
            if looked >= _LOOKED_AT:
                return None
    return None


def _of_whole(original: Original) -> ImportSource | None:
    """One conversation alone in a file."""
    with original.open() as stream:
        raw = stream.read(64 << 20)
    try:
        found = parse(raw)
    except ValueError:
        return None
    return "chatgpt" if isinstance(found, Mapping) and chatgpt.is_conversation(found) else None
