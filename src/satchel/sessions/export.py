"""Exports a session as Markdown, or as JSON with every event."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, assert_never

from satchel.events import (
    AskUser,
    BuildPosted,
    Compaction,
    Failure,
    MemorySurfaced,
    MessageTakenBack,
    MessageWaiting,
    Notice,
    Posted,
    QuestionAnswered,
    QuestionAsked,
    Record,
    ThinkingDelta,
    TurnEnd,
    TurnResumed,
    TurnStart,
    record_to_json,
)
from satchel.messages import FileBlock
from satchel.plain import as_json
from satchel.sessions.index import SearchHit
from satchel.sessions.summary import SessionInfo
from satchel.sessions.view import LastWords, Part, Said, ToolCall, turns_in

__all__ = ["hit_to_json", "info_to_json", "to_json", "to_markdown"]

_FENCE = re.compile(r"`{3,}")


def info_to_json(info: SessionInfo) -> dict[str, Any]:
    """An entry of a list of sessions, as plain JSON data (DESIGN 3.3)."""
    model = f"{info.provider}:{info.model}" if info.model else info.provider
    return {
        "id": info.id,
        "title": info.title,
        "started_at": info.started_at.isoformat(),
        "last_at": info.last_at.isoformat(),
        "turns": info.turns,
        "cwd": info.cwd,
        "model": model,
        "source": info.source or None,
        "private": info.private,
        "pinned": info.pinned,
        "archived": info.archived,
        "project": info.project or None,
        "branch_of": info.branch_of or None,
        "branch_turn": info.branch_turn or None,
        "branches": list(info.branches),
    }


def hit_to_json(hit: SearchHit) -> dict[str, Any]:
    """A place that was found, as plain JSON data."""
    found = as_json(hit)
    return {"session": found.pop("session_id"), **found}


def to_json(info: SessionInfo, records: Sequence[Record]) -> dict[str, Any]:
    """The session and all of its events, as plain JSON data."""
    return {**info_to_json(info), "events": [record_to_json(record) for record in records]}


def to_markdown(info: SessionInfo, records: Sequence[Record], *, first: int = 0) -> str:
    """The conversation as Markdown: what was said, the memories shown to the model, inputs and outputs of tools.

    Args:
        info: What a list shows of it.
        records: Its log.
        first: The first turn to show, after another branch; 0 shows the whole session.
    """
    parts = [
        f"# {_heading(info.title) or 'Session ' + info.id}",
        f"Session {info.id}, {info.started_at:%Y-%m-%d %H:%M}, in `{info.cwd}`",
    ]
    if first:
        parts = [f"# Otherwise, from turn {first} on", f"Session {info.id}"]
    for turn in turns_in(records):
        if turn.number < first:
            continue
        if turn.start is not None:
            who = "You" if turn.said else "Without a message"
            parts += [f"## {turn.number}. {who} ({turn.at:%Y-%m-%d %H:%M})", turn.said]
            parts += [f"*Attached: {_file(file)}*" for file in turn.start.message.files]
        is_answered = any(turn.of(Said))
        for part in turn.parts:
            parts += _part(part, is_answered=is_answered)
    return "\n\n".join(parts) + "\n"


def _part(part: Part, *, is_answered: bool) -> Iterator[str]:
    match part:
        case MemorySurfaced(memories=memories, standing=standing) if memories:
            head = {"profile": "Profile", "agenda": "Agenda"}.get(standing, "Remembered")
            yield "\n".join([f"> {head}:", *(f"> - {_one_line(m.content)}" for m in memories)])
        case Said(text=text, answer=answer):
            yield f"### {answer.provider}:{answer.model}" if answer and answer.model else "### Satchel"
            yield text
        case ToolCall(tool=tool, refusal=refusal, result=result):
            if part.is_begun:
                yield f"**Tool `{tool}`**"
                yield _fenced(json.dumps(part.input, ensure_ascii=False, indent=2, default=str), "json")
            if part.beneath:
                yield "\n".join(
                    f"- `{each.tool}` {_inline(each.input)}: {each.state}" for each in part.beneath
                )
            if refusal is not None:
                yield f"*Refused `{tool}`: {_one_line(refusal.reason or refusal.rule or refusal.by)}*"
            if result is not None:
                yield "Failed:" if result.is_error else "Result:"
                yield _fenced(result.text)
                yield from (f"*File: {_file(file)}*" for file in result.files)
        case AskUser(question=question):
            yield f"**Question:** {question}"
        case Compaction(before_tokens=before, after_tokens=after):
            yield f"*(Older messages were summarised: {before} → {after} tokens.)*"
        case Notice(text=text):
            yield f"*{_one_line(text)}*"
        case Failure():
            yield f"*Error in {part.part}: {_one_line(part.message)}*"
        case LastWords(failure=failure, final=final):
            if failure is not None:
                yield from _part(failure, is_answered=is_answered)
            if final.text and not is_answered:
                yield final.text
        case TurnEnd(status="cancelled"):
            yield "*(interrupted)*"
        case (
            TurnStart()
            | TurnResumed()
            | ThinkingDelta()
            | MemorySurfaced()
            | QuestionAsked()
            | QuestionAnswered()
            | BuildPosted()
            | MessageWaiting()
            | MessageTakenBack()
            | Posted()
            | TurnEnd()
        ):
            pass
        case _:
            assert_never(part)


def _inline(input: Mapping[str, Any]) -> str:
    return _one_line(json.dumps(input, ensure_ascii=False, default=str))


def _file(file: FileBlock) -> str:
    return f"{_one_line(file.name)} ({file.media_type})"


def _heading(title: str) -> str:
    return title.replace("#", "\\#")


def _one_line(words: str) -> str:
    return " ".join(words.split())


def _fenced(words: str, language: str = "") -> str:
    """A code block whose fence is longer than any fence inside it."""
    longest = max((len(run) for run in _FENCE.findall(words)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{words.rstrip()}\n{fence}"
