"""Transcripts of Claude Code (`~/.claude/projects/**.jsonl`): what the person and the model said to each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from satchel.memory.transfer.files import Original
from satchel.memory.transfer.json_stream import lines
from satchel.memory.transfer.pieces import UNDATED, Left, Part, piece_id, said
from satchel.memory.transfer.wrappers import moment_of, plain_text, without_wrappers

__all__ = ["is_line", "read"]

_TYPES = ("user", "assistant", "summary", "system", "file-history-snapshot", "queue-operation")


def is_line(line: Mapping[str, Any]) -> bool:
    """Whether a line is one of Claude Code's."""
    return line.get("type") in _TYPES and bool({"sessionId", "leafUuid", "messageId"} & line.keys())


def read(stream: BinaryIO, original: Original) -> Iterator[Part]:
    """The words of both, a turn for each prompt; tools, hooks, side chains and summaries are left out."""
    if original.base.startswith("agent-"):
        yield Left(reason="the work of a sub-agent", where=original.name, expected=True)
        return
    last = None
    turns: dict[str, tuple[int, int]] = {}  # the turn of each session, and the position in it
    for number, line in lines(stream, original.name):
        where = f"{original.name}:{number}"
        if isinstance(line, Left):
            yield line
            continue
        last = moment_of(line.get("timestamp")) or last
        role = line.get("type")
        if role not in ("user", "assistant"):
            continue
        reason = _left_out(line)
        if reason:
            yield Left(reason=reason, where=where, expected=True)
            continue
        message = line.get("message")
        text = plain_text(message.get("content") if isinstance(message, Mapping) else message)
        if role == "user":
            text = without_wrappers(text)
        if not text.strip():
            yield Left(reason="no words of a person or a model in it", where=where, expected=True)
            continue
        name = str(line.get("sessionId") or original.base.removesuffix(".jsonl"))
        turn, position = turns.get(name, (0, 0))
        turn, position = (turn + 1, 0) if role == "user" else (max(turn, 1), position + 1)
        turns[name] = turn, position
        session = f"claude-code:{name}"
        uuid = line.get("uuid")
        at = moment_of(line.get("timestamp"))
        yield said(
            piece_id("claude-code", uuid)
            if isinstance(uuid, str) and uuid
            else piece_id(session, turn, position),
            text,
            speaker=role,
            at=at or last or original.modified_at,
            session=session,
            turn=turn,
            position=position,
            trust="user" if role == "user" else "agent",
            tags=() if at or last else (UNDATED,),
        )


def _left_out(line: Mapping[str, Any]) -> str:
    """Why a line is no part of the conversation, or ""."""
    if line.get("isSidechain"):
        return "the work of a sub-agent"
    if line.get("isMeta") or line.get("isVisibleInTranscriptOnly"):
        return "written by the agent's own program"
    if line.get("isCompactSummary"):
        return "a summary made by compaction"
    if line.get("isApiErrorMessage"):
        return "an error message"
    origin = line.get("origin")
    if isinstance(origin, Mapping) and origin.get("kind") not in (None, "human"):
        return "written by the agent's own program"
    if "toolUseResult" in line:
        return "the output of a tool"
    message = line.get("message")
    content = message.get("content") if isinstance(message, Mapping) else None
    if isinstance(content, list) and content:
        kinds = {block.get("type") for block in content if isinstance(block, Mapping)}
        if "text" not in kinds:
            return (
                "the output of a tool"
                if "tool_result" in kinds
                else "the call of a tool"
                if "tool_use" in kinds
                else "thinking"
                if kinds & {"thinking", "redacted_thinking"}
                else "no words in it"
            )
    return ""
