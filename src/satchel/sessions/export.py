"""Exports a session as Markdown, or as JSON with every event."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, assert_never

from satchel.events import (
    Action,
    AskUser,
    Assistant,
    BuildPosted,
    Compaction,
    Failure,
    Final,
    MemorySurfaced,
    MessageTakenBack,
    MessageWaiting,
    Notice,
    Observation,
    Permission,
    Posted,
    QuestionAnswered,
    QuestionAsked,
    Record,
    Transient,
    TurnEnd,
    TurnResumed,
    TurnStart,
    Unshown,
    record_to_json,
)
from satchel.messages import text_of
from satchel.sessions.summary import SessionInfo

__all__ = ["info_to_json", "to_json", "to_markdown"]

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
        "private": info.private,
    }


def to_json(info: SessionInfo, records: Sequence[Record]) -> dict[str, Any]:
    """The session and all of its events, as plain JSON data."""
    return {**info_to_json(info), "events": [record_to_json(record) for record in records]}


def to_markdown(info: SessionInfo, records: Sequence[Record]) -> str:
    """The conversation as Markdown: what was said, the memories shown to the model, inputs and outputs of tools."""
    parts = [
        f"# {_heading(info.title) or 'Session ' + info.id}",
        f"Session {info.id}, {info.started_at:%Y-%m-%d %H:%M}, in `{info.cwd}`",
    ]
    answered: set[int] = set()
    for record in records:
        match record.event:
            case TurnStart() as event:
                who = "You" if event.message.text else "Without a message"
                parts += [f"## {event.turn}. {who} ({record.at:%Y-%m-%d %H:%M})", event.message.text]
            case MemorySurfaced(memories=memories, standing=standing) if memories:
                head = {"profile": "Profile", "agenda": "Agenda"}.get(standing, "Remembered")
                parts.append("\n".join([f"> {head}:", *(f"> - {_one_line(m.content)}" for m in memories)]))
            case Assistant() as event:
                said = text_of(event.blocks)
                if said:
                    answered.add(event.turn)
                    parts += [f"### {event.provider}:{event.model}" if event.model else "### Satchel", said]
            case Action() as event:
                arguments = json.dumps(event.input, ensure_ascii=False, indent=2, default=str)
                parts += [f"**Tool `{event.tool}`**", _fenced(arguments, "json")]
            case Observation() as event:
                parts += ["Failed:" if event.is_error else "Result:", _fenced(event.text)]
            case Permission(decision="deny") as event:
                parts.append(f"*Refused `{event.tool}`: {_one_line(event.reason or event.rule or event.by)}*")
            case AskUser() as event:
                parts.append(f"**Question:** {event.question}")
            case Compaction() as event:
                parts.append(
                    f"*(Older messages were summarised: {event.before_tokens} → {event.after_tokens} tokens.)*"
                )
            case Final() as event:
                if event.turn not in answered and event.text:
                    parts.append(event.text)
            case Notice() as event:
                parts.append(f"*{_one_line(event.text)}*")
            case Failure() as event:
                parts.append(f"*Error in {event.part}: {_one_line(event.message)}*")
            case TurnEnd(status="cancelled"):
                parts.append("*(interrupted)*")
            case (
                Unshown()
                | Transient()
                | TurnResumed()
                | MemorySurfaced()
                | QuestionAsked()
                | QuestionAnswered()
                | Permission()
                | Posted()
                | MessageWaiting()
                | MessageTakenBack()
                | BuildPosted()
                | TurnEnd()
            ):
                pass
            case _:
                assert_never(record.event)
    return "\n\n".join(parts) + "\n"


def _heading(title: str) -> str:
    return title.replace("#", "\\#")


def _one_line(words: str) -> str:
    return " ".join(words.split())


def _fenced(words: str, language: str = "") -> str:
    """A code block whose fence is longer than any fence inside it."""
    longest = max((len(run) for run in _FENCE.findall(words)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{words.rstrip()}\n{fence}"
