"""Reads the transcripts of Codex (`~/.codex/sessions/**/rollout-*.jsonl`): what the user and the model said."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from satchel.addons.importers.transcripts import (
    WRITTEN_BY_PROGRAM,
    TurnNumbering,
    moment_of,
    place_of,
    plain_text,
)
from satchel.memory.transfer.files import SourceFile
from satchel.memory.transfer.json_stream import lines
from satchel.memory.transfer.parts import LeftOut, Part
from satchel.memory.transfer.wrappers import without_wrappers

_KINDS = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


_KINDS_LEFT_OUT = {
    "function_call_output": "the output of a tool",
    "custom_tool_call_output": "the output of a tool",
    "local_shell_call_output": "the output of a tool",
    "function_call": "the call of a tool",
    "custom_tool_call": "the call of a tool",
    "local_shell_call": "the call of a tool",
    "web_search_call": "the call of a tool",
    "reasoning": "thinking",
}


def is_own_line(line: Mapping[str, Any]) -> bool:
    """Whether a line was written by Codex. Until the middle of 2025, the first line had no type and no payload."""
    return (line.get("type") in _KINDS and isinstance(line.get("payload"), Mapping)) or (
        "type" not in line
        and isinstance(line.get("id"), str)
        and "timestamp" in line
        and "instructions" in line
    )


def read(stream: BinaryIO, file: SourceFile) -> Iterator[Part]:
    """Read the messages of the user and the model, without tools, instructions and the work of sub-agents."""
    found = _UUID.search(file.base)
    transcript = TurnNumbering(place_of("codex", found[0] if found else file.base.removesuffix(".jsonl")))
    cwd: object = ""
    begun = None
    for number, line in lines(stream, file.name):
        where = f"{file.name}:{number}"
        if isinstance(line, LeftOut):
            yield line
            continue
        payload = line.get("payload")
        item: Mapping[str, Any] = payload if isinstance(payload, Mapping) else line
        at = moment_of(line.get("timestamp"))
        if line.get("type") == "session_meta" or (
            number == 1 and is_own_line(line) and "payload" not in line
        ):
            if begun is None:
                begun = at or moment_of(item.get("timestamp"))
                if isinstance(item.get("id"), str) and item["id"]:
                    transcript.session = place_of("codex", item["id"])
                cwd = item.get("cwd")
                if isinstance(item.get("source"), Mapping) and "subagent" in item["source"]:
                    yield LeftOut(reason="the work of a sub-agent", where=file.name, expected=True)
                    return
            continue
        if line.get("type") != "response_item" and payload is not None:
            continue  # events repeat the items
        kind, role = item.get("type"), item.get("role")
        reason = _KINDS_LEFT_OUT.get(str(kind), "")
        if kind == "message" and role not in ("user", "assistant"):
            reason = WRITTEN_BY_PROGRAM
        if reason:
            yield LeftOut(reason=reason, where=where, expected=True)
        if reason or kind != "message":
            continue
        text = plain_text(item.get("content"), ("input_text", "output_text", "text"))
        if role == "user":
            text = without_wrappers(text)
        yield transcript.episode(
            text,
            role=str(role),
            at=at or begun,
            modified_at=file.modified_at,
            where=where,
            files=transcript.pictures(item.get("content"), text) if role == "user" else (),
        )
    yield from transcript.conversation(cwd=cwd)
