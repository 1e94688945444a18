"""Reads the transcripts of Claude Code (`~/.claude/projects/**.jsonl`): what the user and the model said."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from satchel.addons.importers.transcripts import (
    NO_TEXT,
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

_TYPES = ("user", "assistant", "summary", "system", "file-history-snapshot", "queue-operation")


_KINDS_LEFT_OUT = {
    "tool_result": "the output of a tool",
    "tool_use": "the call of a tool",
    "thinking": "thinking",
    "redacted_thinking": "thinking",
}


def is_own_line(line: Mapping[str, Any]) -> bool:
    """Whether a line was written by Claude Code."""
    return line.get("type") in _TYPES and bool({"sessionId", "leafUuid", "messageId"} & line.keys())


def read(stream: BinaryIO, file: SourceFile) -> Iterator[Part]:
    """Read the messages of the user and the model, without tools, hooks, side chains and summaries."""
    if file.base.startswith("agent-"):
        yield LeftOut(reason="the work of a sub-agent", where=file.name, expected=True)
        return
    last = None
    titles: dict[str, object] = {}
    folders: dict[str, object] = {}
    transcripts: dict[str, TurnNumbering] = {}  # by session: a file may contain several
    for number, line in lines(stream, file.name):
        where = f"{file.name}:{number}"
        if isinstance(line, LeftOut):
            yield line
            continue
        last = moment_of(line.get("timestamp")) or last
        role = line.get("type")
        name = str(line.get("sessionId") or file.base.removesuffix(".jsonl"))
        folders[name] = folders.get(name) or line.get("cwd")  # the first lines of a file have none
        # What the user called it; the summaries are of other conversations, too.
        titles[name] = line.get("customTitle") or titles.get(name)
        if role not in ("user", "assistant"):
            continue
        reason = _why_left_out(line)
        if reason:
            yield LeftOut(reason=reason, where=where, expected=True)
            continue
        message = line.get("message")
        content = message.get("content") if isinstance(message, Mapping) else message
        text = plain_text(content)
        if role == "user":
            text = without_wrappers(text)
        transcript = transcripts.setdefault(name, TurnNumbering(place_of("claude-code", name)))
        uuid = line.get("uuid")
        names = ("claude-code", uuid) if isinstance(uuid, str) and uuid else ()
        yield transcript.episode(
            text,
            role=role,
            at=last,
            modified_at=file.modified_at,
            where=where,
            names=names,
            files=transcript.pictures(content, text) if role == "user" else (),
            model=message.get("model") if isinstance(message, Mapping) else "",
        )
    for name, transcript in transcripts.items():
        yield from transcript.conversation(titles.get(name), cwd=folders.get(name))


def _why_left_out(line: Mapping[str, Any]) -> str:
    """Why a line is not part of the conversation, or ""."""
    if line.get("isSidechain"):
        return "the work of a sub-agent"
    if line.get("isMeta") or line.get("isVisibleInTranscriptOnly"):
        return WRITTEN_BY_PROGRAM
    if line.get("isCompactSummary"):
        return "a summary made by compaction"
    if line.get("isApiErrorMessage"):
        return "an error message"
    origin = line.get("origin")
    if isinstance(origin, Mapping) and origin.get("kind") not in (None, "human"):
        return WRITTEN_BY_PROGRAM
    if "toolUseResult" in line:
        return "the output of a tool"
    message = line.get("message")
    content = message.get("content") if isinstance(message, Mapping) else None
    if isinstance(content, list) and content:
        kinds = {block.get("type") for block in content if isinstance(block, Mapping)}
        if not kinds & {"text", "image"}:
            reasons = (reason for kind, reason in _KINDS_LEFT_OUT.items() if kind in kinds)
            return next(reasons, NO_TEXT)
    return ""
