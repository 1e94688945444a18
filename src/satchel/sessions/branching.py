"""Writes the log of a branch: a session that repeats another one up to a turn, and goes on otherwise."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from satchel import events as kinds
from satchel.config.home import linked
from satchel.errors import StorageError
from satchel.events import (
    Assistant,
    BuildPosted,
    Compaction,
    Event,
    MemoryCaptured,
    MessageTakenBack,
    MessageWaiting,
    ModelCalled,
    Notice,
    Observation,
    Record,
    SessionBranched,
    SessionEnd,
    SessionFiled,
    SessionStart,
    SessionTitled,
    TurnEnd,
    TurnStart,
)
from satchel.messages import Usage
from satchel.sessions.journal import unwritable
from satchel.sessions.logs import Logs
from satchel.sessions.places import beside
from satchel.tools.builtin.changes import copy_changes
from satchel.tools.kept import FOLDER, kept_path

_LEFT_OUT = (
    SessionEnd, SessionTitled, SessionFiled, ModelCalled, MessageWaiting, MessageTakenBack, BuildPosted, Notice,
)  # fmt: skip
"""What belongs to the other session alone: its name, what waits in it, what was told there."""
_FILE_CHANGES = "changes"
"""The folder by which `/undo` finds what to undo: by itself, a branch undoes nothing of the other session."""


def write_branch(
    logs: Logs, source: Path, source_id: str, *, turn: int, path: Path, session_id: str, undoes: bool = False
) -> None:
    """Write the log `path` of the session `session_id` with the turns of another one before `turn`. Blocks.

    Its tokens and money were spent once, and its words are in memory once: the repeated turns cost nothing and are
    marked as captured. Their long results and attached files are copied; with `undoes`, what the file tools changed in
    them can be undone in the branch as well.

    Raises:
        StorageUnwritable, StorageError: The log can't be read or written. There is no branch.
    """
    logs.fetch(source)
    spill, copy = source.with_suffix(".spill"), path.with_suffix(".spill")
    begun: Record | None = None
    repeated: list[tuple[datetime, Event]] = []
    repeats = {source_id: turn}
    named: set[Path] = set()
    later: set[Path] = set()
    is_later = is_private = False
    project = ""
    for line in logs.lines(source):
        if line.record is None:
            continue
        event = line.record.event
        is_later = is_later or (isinstance(event, TurnStart) and event.turn >= turn)
        (later if is_later else named).update(_named(event, spill))
        match event:
            case SessionStart():
                begun = begun or line.record
                is_private = is_private or event.private
                project = project or event.project
            case SessionFiled(project=str(filed)):
                project = filed
            case SessionBranched():
                repeats |= {id: min(int(first), turn) for id, first in event.repeats.items()}
            case _ if not is_later and not isinstance(event, _LEFT_OUT):
                repeated.append((line.record.at, _repeated(event, spill, copy)))
            case _:
                pass
    if begun is None or not isinstance(begun.event, SessionStart):
        raise StorageError(f"The log of session {source_id} has no beginning, so nothing can branch off it.")
    start = replace(begun.event, session_id=session_id, resumed=False, private=is_private, project=project)
    branched = SessionBranched(session_id=source_id, turn=turn, repeats=repeats)
    repeated = [(begun.at, start), (begun.at, branched), *repeated]
    records = [Record(seq=number, at=at, event=event) for number, (at, event) in enumerate(repeated, start=1)]
    try:
        if spill.is_dir() and not spill.is_symlink():
            left = {spill / _FILE_CHANGES, *(later - named)}
            shutil.copytree(
                spill,
                copy,
                symlinks=True,
                copy_function=_copied,
                ignore=lambda folder, names: {name for name in names if Path(folder) / name in left},
            )
        if undoes:
            copy_changes(spill, copy, before=turn)
        logs.create(path, session_id, records)
    except StorageError:
        shutil.rmtree(copy, ignore_errors=True)
        raise
    except OSError as error:
        shutil.rmtree(copy, ignore_errors=True)
        raise unwritable(path, error) from error


def _copied(source: str, target: str) -> None:
    """Attached files are written once and then only removed; other results are written to."""
    (linked if Path(source).parent.name == FOLDER else shutil.copy2)(source, target)


def _named(event: Event, spill: Path) -> set[Path]:
    """What a record names of the files beside the log."""
    match event:
        case TurnStart():
            return {kept_path(spill, each) for file in event.message.files for each in file.kept}
        case Observation():
            files = {kept_path(spill, each) for file in event.files for each in file.kept}
            return (
                files
                | {spill / f"{event.call_id}-files"}
                | ({beside(spill, event.spill)} if event.spill else set())
            )
        case _:
            return set()


def _repeated(event: Event, spill: Path, copy: Path) -> Event:
    match event:
        case Assistant() | Compaction() | TurnEnd():
            return replace(event, usage=Usage())
        case MemoryCaptured():
            return replace(event, ids=())
        case Observation(spill=str(place)) if beside(spill, place).is_relative_to(spill):
            return replace(event, spill=str(copy / beside(spill, place).relative_to(spill)))
        case (
            Observation() | TurnStart() | SessionStart() | Notice() | BuildPosted() | MessageWaiting()
            | MessageTakenBack() | ModelCalled() | SessionTitled() | SessionFiled() | SessionBranched() | SessionEnd()
            | kinds.TurnResumed() | kinds.ContextAdded() | kinds.MemorySurfaced() | kinds.QuestionAsked()
            | kinds.QuestionAnswered() | kinds.Permission() | kinds.Action() | kinds.RoundObserved() | kinds.AskUser()
            | kinds.SubAgentEvent() | kinds.Posted() | kinds.Failure() | kinds.Final() | kinds.Transient()
        ):  # fmt: skip
            return event
