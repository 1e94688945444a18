"""Exports a session as Markdown, as JSON with every event, or as an archive of both with its files."""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias, assert_never

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
from satchel.tools.kept import kept_path

Told: TypeAlias = tuple[SessionInfo, int, Sequence[Record]]
"""A branch of a conversation: what a list shows of it, the first turn that was not told before, its log."""

_FILES: Final = "files"
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


def told_as_markdown(told: Sequence[Told], *, linked: Collection[str] = ()) -> str:
    """The branches of a conversation as Markdown; see `to_markdown`."""
    return "\n".join(to_markdown(info, records, first=first, linked=linked) for info, first, records in told)


def told_as_json(told: Sequence[Told]) -> str:
    """The branches of a conversation as JSON with every event."""
    main, *others = [to_json(info, records) for info, _, records in told]
    return json.dumps(main | ({"other_branches": others} if others else {}), indent=2) + "\n"


def write_archive(target: BinaryIO, told: Sequence[Told], folders: Sequence[Path]) -> None:
    """Write a zip: `conversation.md`, `conversation.json`, and below `files` what was attached or returned by tools.

    Only bytes that the log names are written: a tool may have put something else in their place. Blocks. The target can
    seek; the folders are those beside the logs.

    Raises:
        OSError: It can't be written.
    """
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        written: set[str] = set()
        for (_, _, records), folder in zip(told, folders, strict=True):
            for file in _files_in(records):
                try:
                    content = kept_path(folder, file).read_bytes()
                except OSError:
                    continue  # it was forgotten, or lost: the name says that there was one
                if file.file_name not in written and hashlib.sha256(content).hexdigest() == file.sha256:
                    archive.writestr(f"{_FILES}/{file.file_name}", content)
                    written.add(file.file_name)
        words = told_as_markdown(told, linked=written)
        archive.writestr("conversation.md", words.encode("utf-8", "replace"))
        archive.writestr("conversation.json", told_as_json(told))


def _files_in(records: Sequence[Record]) -> Iterator[FileBlock]:
    for turn in turns_in(records):
        if turn.start is not None:
            yield from turn.start.message.files
        for call in turn.of(ToolCall):
            if call.result is not None:
                yield from call.result.files


def to_json(info: SessionInfo, records: Sequence[Record]) -> dict[str, Any]:
    """The session and all of its events, as plain JSON data."""
    return {**info_to_json(info), "events": [record_to_json(record) for record in records]}


def to_markdown(
    info: SessionInfo, records: Sequence[Record], *, first: int = 0, linked: Collection[str] = ()
) -> str:
    """The conversation as Markdown: what was said, the memories shown to the model, inputs and outputs of tools.
    `first` is the first turn to show, after another branch; 0 shows the whole session. Files in `linked` have copies in
    a folder beside it; others are only named.
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
            parts += [f"*Attached: {_file(file, linked)}*" for file in turn.start.message.files]
        is_answered = any(turn.of(Said))
        for part in turn.parts:
            parts += _part(part, is_answered=is_answered, linked=linked)
    return "\n\n".join(parts) + "\n"


def _part(part: Part, *, is_answered: bool, linked: Collection[str]) -> Iterator[str]:
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
                yield from (f"*File: {_file(file, linked)}*" for file in result.files)
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
                yield from _part(failure, is_answered=is_answered, linked=linked)
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


def _file(file: FileBlock, linked: Collection[str]) -> str:
    name = _one_line(file.name)
    if file.file_name in linked:
        label = re.sub(r"([\[\]\\])", r"\\\1", name)
        name = f"{'!' if file.is_image else ''}[{label}]({_FILES}/{file.file_name})"
    return f"{name} ({file.media_type})"


def _heading(title: str) -> str:
    return title.replace("#", "\\#")


def _one_line(words: str) -> str:
    return " ".join(words.split())


def _fenced(words: str, language: str = "") -> str:
    """A code block whose fence is longer than any fence inside it."""
    longest = max((len(run) for run in _FENCE.findall(words)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{words.rstrip()}\n{fence}"
