"""The export of ChatGPT (`conversations.json`): of each conversation the branch that was shown last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, BinaryIO

from satchel.memory.transfer.files import Original
from satchel.memory.transfer.json_stream import elements, parse
from satchel.memory.transfer.pieces import UNDATED, Left, Part, piece_id, said
from satchel.memory.transfer.wrappers import moment_of

__all__ = ["is_conversation", "read"]

_WHOLE_BYTES = 64 << 20  # Of a file that is one conversation and no list of them.


def is_conversation(found: Mapping[str, Any]) -> bool:
    """Whether this is one of ChatGPT's conversations."""
    return isinstance(found.get("mapping"), Mapping)


def read(stream: BinaryIO, original: Original) -> Iterator[Part]:
    """What was said in every conversation; tools, system text and abandoned branches are left out."""
    head = stream.peek(64) if hasattr(stream, "peek") else b""
    if head.lstrip()[:1] == b"{":
        raw = stream.read(_WHOLE_BYTES)
        try:
            found = parse(raw)
        except ValueError:
            found = None
        if isinstance(found, Mapping) and is_conversation(found):
            yield from _conversation(found, original, f"{original.name}#1")
        else:
            yield Left(reason="a file that is no JSON of ChatGPT's", where=original.name)
        return
    for number, element in elements(stream, original.name):
        where = f"{original.name}#{number}"
        if isinstance(element, Left):
            yield element
        elif is_conversation(element):
            yield from _conversation(element, original, where)
        else:
            yield Left(reason="an element that is no conversation", where=where)


def _conversation(found: Mapping[str, Any], original: Original, where: str) -> Iterator[Part]:
    mapping: Mapping[str, Any] = found["mapping"]
    name = found.get("conversation_id") or found.get("id") or piece_id(*sorted(mapping)[:50])
    session = f"chatgpt:{name}"
    begun = moment_of(found.get("create_time")) or moment_of(found.get("update_time"))
    branch, problem = _branch(mapping, found.get("current_node"))
    if problem:
        yield Left(reason=problem, where=where)
    turn = position = 0
    last: datetime | None = begun
    for node_id, node in branch:
        message = node.get("message")
        if not isinstance(message, Mapping):
            continue
        author = message.get("author")
        role = author.get("role") if isinstance(author, Mapping) else None
        reason = _left_out(message, role)
        if reason:
            yield Left(reason=reason, where=f"{where} {node_id}"[:200], expected=True)
            continue
        text = _text(message.get("content"))
        if not text.strip():
            yield Left(
                reason="no words of a person or a model in it",
                where=f"{where} {node_id}"[:200],
                expected=True,
            )
            continue
        at = moment_of(message.get("create_time"))
        last = at or last
        turn, position = (turn + 1, 0) if role == "user" else (max(turn, 1), position + 1)
        yield said(
            piece_id("chatgpt", name, message.get("id") or node_id),
            text,
            speaker=str(role),
            at=last or original.modified_at,
            session=session,
            turn=turn,
            position=position,
            trust="user" if role == "user" else "agent",
            tags=() if last else (UNDATED,),
        )


def _branch(mapping: Mapping[str, Any], leaf: object) -> tuple[list[tuple[str, Mapping[str, Any]]], str]:
    """The nodes from the root to the leaf that was shown last, and what was wrong on the way, if anything."""
    problem = ""
    if not isinstance(leaf, str) or not isinstance(mapping.get(leaf), Mapping):
        leaf = _latest(mapping)
        problem = "" if not mapping else "a conversation without a current branch: its latest was taken"
    nodes: list[tuple[str, Mapping[str, Any]]] = []
    seen: set[str] = set()
    while isinstance(leaf, str) and isinstance(mapping.get(leaf), Mapping):
        if leaf in seen:
            problem = "a conversation that goes round in a circle: it was cut there"
            break
        seen.add(leaf)
        node = mapping[leaf]
        nodes.append((leaf, node))
        leaf = node.get("parent")
    return nodes[::-1], problem


def _latest(mapping: Mapping[str, Any]) -> str | None:
    """The node with the latest time."""
    best: tuple[float, str] | None = None
    for id, node in mapping.items():
        message = node.get("message") if isinstance(node, Mapping) else None
        time = message.get("create_time") if isinstance(message, Mapping) else None
        if isinstance(time, int | float) and (best is None or time > best[0]):
            best = (time, id)
    return best[1] if best else next(iter(mapping), None)


def _left_out(message: Mapping[str, Any], role: object) -> str:
    metadata = message.get("metadata")
    if role == "tool":
        return "the output of a tool"
    if role not in ("user", "assistant"):
        return "written by the agent's own program"
    if isinstance(metadata, Mapping) and metadata.get("is_visually_hidden_from_conversation"):
        return "written by the agent's own program"
    if message.get("recipient") not in (None, "all"):
        return "the call of a tool"
    content = message.get("content")
    kind = content.get("content_type") if isinstance(content, Mapping) else None
    if kind in ("thoughts", "reasoning_recap"):
        return "thinking"
    if kind in ("user_editable_context", "model_editable_context"):
        return "written by the agent's own program"
    if kind in (
        "execution_output",
        "tether_browsing_display",
        "tether_quote",
        "system_error",
        "sonic_webpage",
    ):
        return "the output of a tool"
    return ""


def _text(content: object) -> str:
    """The words of a message: its parts that are text, spoken ones included."""
    if not isinstance(content, Mapping):
        return ""
    parts = content.get("parts")
    if not isinstance(parts, list):
        return content["text"] if isinstance(content.get("text"), str) else ""
    words = []
    for part in parts:
        if isinstance(part, str):
            words.append(part)
        elif isinstance(part, Mapping) and isinstance(part.get("text"), str):
            words.append(part["text"])
    return "\n".join(word for word in words if word.strip())
