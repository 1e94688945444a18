"""Transcripts of Codex (`~/.codex/sessions/**/rollout-*.jsonl`): what the person and the model said to each other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from satchel.memory.transfer.files import Original
from satchel.memory.transfer.json_stream import lines
from satchel.memory.transfer.pieces import UNDATED, Left, Part, piece_id, said
from satchel.memory.transfer.wrappers import moment_of, plain_text, without_wrappers

__all__ = ["is_line", "read"]

_KINDS = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def is_line(line: Mapping[str, Any]) -> bool:
    """Whether a line is one of Codex's; until the middle of 2025 the first had no type and no payload."""
    return (line.get("type") in _KINDS and isinstance(line.get("payload"), Mapping)) or (
        "type" not in line
        and isinstance(line.get("id"), str)
        and "timestamp" in line
        and "instructions" in line
    )


def read(stream: BinaryIO, original: Original) -> Iterator[Part]:
    """The words of both, a turn for each prompt; tools, instructions and the work of sub-agents are left out."""
    found = _UUID.search(original.base)
    name = found[0] if found else original.base.removesuffix(".jsonl")
    begun = None
    turn = position = 0
    for number, line in lines(stream, original.name):
        where = f"{original.name}:{number}"
        if isinstance(line, Left):
            yield line
            continue
        payload = line.get("payload")
        item: Mapping[str, Any] = payload if isinstance(payload, Mapping) else line
        at = moment_of(line.get("timestamp"))
        if line.get("type") == "session_meta" or (number == 1 and is_line(line) and "payload" not in line):
            if begun is None:
                begun = at or moment_of(item.get("timestamp"))
                if isinstance(item.get("id"), str) and item["id"]:
                    name = item["id"]
                if isinstance(item.get("source"), Mapping) and "subagent" in item["source"]:
                    yield Left(reason="the work of a sub-agent", where=original.name, expected=True)
                    return
            continue
        if line.get("type") != "response_item" and payload is not None:
            continue  # events say the same again
        kind, role = item.get("type"), item.get("role")
        if kind != "message":
            if kind in ("function_call_output", "custom_tool_call_output", "local_shell_call_output"):
                yield Left(reason="the output of a tool", where=where, expected=True)
            elif kind in ("function_call", "custom_tool_call", "local_shell_call", "web_search_call"):
                yield Left(reason="the call of a tool", where=where, expected=True)
            elif kind == "reasoning":
                yield Left(reason="thinking", where=where, expected=True)
            continue
        if role not in ("user", "assistant"):
            yield Left(reason="written by the agent's own program", where=where, expected=True)
            continue
        text = plain_text(item.get("content"), ("input_text", "output_text", "text"))
        if role == "user":
            text = without_wrappers(text)
        if not text.strip():
            yield Left(reason="no words of a person or a model in it", where=where, expected=True)
            continue
        turn, position = (turn + 1, 0) if role == "user" else (max(turn, 1), position + 1)
        session = f"codex:{name}"
        yield said(
            piece_id(session, turn, position),
            text,
            speaker=str(role),
            at=at or begun or original.modified_at,
            session=session,
            turn=turn,
            position=position,
            trust="user" if role == "user" else "agent",
            tags=() if at or begun else (UNDATED,),
        )
