"""What a list shows of a session, collected from its records."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, assert_never

from satchel import events as kinds
from satchel.clock import local_day
from satchel.errors import UsageError
from satchel.events import (
    Action,
    AskUser,
    Assistant,
    Compaction,
    Event,
    ModelCalled,
    Observation,
    Record,
    SessionBranched,
    SessionEnd,
    SessionFiled,
    SessionStart,
    SessionTitled,
    TurnStart,
    fields_from_json,
)
from satchel.messages import Usage, text_of
from satchel.plain import as_json

_TITLE_CHARS = 60
_CONVERSATION = "conversation"
_SOURCES = {
    "chatgpt": "ChatGPT",
    "claude": "Claude",
    "gemini": "Gemini",
    "claude-code": "Claude Code",
    "codex": "Codex",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRow:
    """What one session spent on one model for one purpose on one local day ("2026-11-21").

    Attributes:
        purpose: One word or two, such as "conversation", "compaction", "gate".
    """

    session_id: str
    day: str
    purpose: str
    provider: str
    model: str
    calls: int
    usage: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInfo:
    """A session in a list.

    Attributes:
        title: What the user called it, else what a model did, else the first message, shortened to one line; ""
            before that.
        started_at: With the local offset of that time.
        last_at: The time of the newest event; a new title is none, nor is closing it.
        spent: `usage` by day, model and purpose.
        pinned: Lists show it first.
        archived: Lists leave it out.
        project: The id of the project that it belongs to, or "".
        branch_of: The session whose turns before `branch_turn` it repeats, or "".
        repeats: The same for each session of which it repeats turns, through others too: the nearest first.
        branches: The ids of the branches that an entry of a list stands for, the oldest first; empty if it is one.
        is_elsewhere: It was imported, and not gone on with here.
    """

    id: str
    title: str
    started_at: datetime
    last_at: datetime
    turns: int
    cwd: str
    provider: str
    model: str
    private: bool
    path: Path
    usage: Usage
    spent: tuple[UsageRow, ...] = ()
    pinned: bool = False
    archived: bool = False
    project: str = ""
    branch_of: str = ""
    branch_turn: int = 0
    repeats: Mapping[str, int] = field(default_factory=dict)
    branches: tuple[str, ...] = ()
    is_elsewhere: bool = False

    @property
    def conversation(self) -> str:
        """The id of the session from which it and its branches come; that one may be deleted."""
        return [self.id, *self.repeats][-1]

    @property
    def source(self) -> str:
        """The program in which its conversation began, such as "ChatGPT"; "" for Satchel's own."""
        return source_of(self.conversation)

    @property
    def is_build(self) -> bool:
        """Whether the Builder held it, to make a capability."""
        return self.id.startswith("build-")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPassage:
    """A message, or the input or output of a tool, as full-text search sees it."""

    seq: int
    turn: int
    kind: str
    at: str
    text: str


def source_of(session_id: str) -> str:
    """The program that a conversation comes from, by the beginning of its id; "" for Satchel's own."""
    source, colon, _ = session_id.partition(":")
    return _SOURCES.get(source, source) if colon else ""


def plain_line(text: str) -> str:
    """The text as one line, without control characters and lone surrogates."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def title_of(text: str) -> str:
    """One line of at most 60 characters, cut between words, without control characters and lone surrogates."""
    head = text[: _TITLE_CHARS * 8]
    line = plain_line(head)
    if len(line) <= _TITLE_CHARS and len(text) == len(head):
        return line
    cut = line[: _TITLE_CHARS - 1]
    return f"{cut.rsplit(' ', 1)[0] if ' ' in cut[30:] else cut}…"


def read_title(text: str) -> str:
    """A title that the user gave, as one line without control characters.

    Raises:
        UsageError: It is empty, or has more than 60 characters.
    """
    line = plain_line(text)
    if not line:
        raise UsageError("The title is empty.")
    if len(line) > _TITLE_CHARS:
        raise UsageError(f"A title has at most {_TITLE_CHARS} characters; this one has {len(line):,}.")
    return line


def day_of(record: Record) -> str:
    """The local day of a record, as "2026-11-21"."""
    return local_day(record.at)


def add_cost(by_day: dict[str, float], record: Record) -> None:
    """Add what the model call in a record cost, in US dollars, to its local day."""
    if isinstance(record.event, Assistant | Compaction | ModelCalled) and record.event.usage.cost_usd:
        day = day_of(record)
        by_day[day] = by_day.get(day, 0.0) + record.event.usage.cost_usd


def passages_of(record: Record) -> tuple[LogPassage, ...]:
    """What can be found in a record: what was said, and the inputs and outputs of tools."""
    event: Event = record.event
    match event:
        case TurnStart():
            names = (file.name for file in event.message.files)
            kind, text = "user", "\n".join([event.message.text, *names]).strip()
        case Assistant():
            kind, text = "assistant", text_of(event.blocks)
        case Action():
            kind, text = "input", f"{event.tool} {json.dumps(event.input, ensure_ascii=False, default=str)}"
        case Observation():
            kind, text = "output", event.text
        case AskUser():
            kind, text = "assistant", event.question
        case (
            SessionStart() | kinds.TurnResumed() | kinds.ContextAdded() | kinds.MemorySurfaced()
            | kinds.MemoryCaptured() | kinds.QuestionAsked() | kinds.QuestionAnswered() | kinds.Permission()
            | kinds.RoundObserved() | Compaction() | ModelCalled() | kinds.SubAgentEvent() | kinds.Posted()
            | kinds.MessageWaiting() | kinds.MessageTakenBack() | kinds.BuildPosted() | kinds.Notice()
            | kinds.Failure() | kinds.Final() | kinds.TurnEnd() | SessionTitled() | SessionFiled()
            | SessionBranched() | SessionEnd() | kinds.Transient()
        ):  # fmt: skip
            return ()
        case _:
            assert_never(event)
    if not text:
        return ()
    return (LogPassage(seq=record.seq, turn=event.turn, kind=kind, at=record.at.isoformat(), text=text),)


@dataclass(slots=True)
class Summary:
    """Collects from records. Its state can be kept as JSON, to continue when the log has grown."""

    title: str = ""
    started_at: str = ""
    last_at: str = ""
    turns: int = 0
    cwd: str = ""
    provider: str = ""
    model: str = ""
    private: bool = False
    last_seq: int = 0
    is_named: bool = False
    pinned: bool = False
    archived: bool = False
    project: str = ""
    branch_of: str = ""
    branch_turn: int = 0
    repeats: dict[str, int] = field(default_factory=dict)
    spent: dict[str, dict[str, Any]] = field(default_factory=dict)
    is_elsewhere: bool = False

    def feed(self, record: Record) -> None:
        """Add the next record."""
        event = record.event
        self.last_seq = record.seq
        if isinstance(event, SessionTitled):
            if event.by == "user" or not self.is_named:
                self.title = event.title or self.title
            self.is_named = self.is_named or event.by == "user"
            return
        if isinstance(event, SessionFiled):
            self.pinned = self.pinned if event.pinned is None else event.pinned
            self.archived = self.archived if event.archived is None else event.archived
            self.project = self.project if event.project is None else event.project
            return
        if isinstance(event, ModelCalled):  # such as for a title, a moment after the last turn
            self._spend(record, event.purpose, event.usage, provider=event.provider, model=event.model)
            return
        # A server that stops closes all at once, whichever was used last.
        if not isinstance(event, SessionEnd):
            self.last_at = record.at.isoformat()
        self.started_at = self.started_at or self.last_at
        match event:
            case SessionBranched():
                self.branch_of, self.branch_turn = event.session_id, event.turn
                self.repeats = {event.session_id: event.turn, **event.repeats}
            case SessionStart():
                self.cwd, self.provider, self.model = event.cwd, event.provider, event.model
                self.is_elsewhere = bool(source_of(event.session_id)) and not event.resumed
                self.private = self.private or event.private
                self.project = self.project or event.project
            case TurnStart():
                self.turns = max(self.turns, event.turn)
                self.archived = False
                names = ", ".join(file.name for file in event.message.files)
                # A branch is named by what is its own.
                if event.turn >= self.branch_turn:
                    self.title = self.title or title_of(event.message.text.strip() or names)
            case Assistant():
                self.provider, self.model = event.provider, event.model
                if not self.is_elsewhere:
                    self._spend(record, _CONVERSATION, event.usage)
            case Compaction():
                self._spend(record, "compaction", event.usage)
            case (
                kinds.TurnResumed() | kinds.ContextAdded() | kinds.MemorySurfaced() | kinds.MemoryCaptured()
                | kinds.QuestionAsked() | kinds.QuestionAnswered() | kinds.Permission() | Action() | Observation()
                | kinds.RoundObserved() | AskUser() | kinds.SubAgentEvent() | kinds.Posted() | kinds.MessageWaiting()
                | kinds.MessageTakenBack() | kinds.BuildPosted() | kinds.Notice() | kinds.Failure() | kinds.Final()
                | kinds.TurnEnd() | SessionEnd() | kinds.Transient()
            ):  # fmt: skip
                pass
            case _:
                assert_never(event)

    def _spend(
        self, record: Record, purpose: str, usage: Usage, *, provider: str = "", model: str = ""
    ) -> None:
        key = json.dumps([day_of(record), provider or self.provider, model or self.model, purpose])
        before = self.spent.get(key, {"calls": 0})
        total = fields_from_json(Usage, before) + usage
        self.spent[key] = {"calls": before["calls"] + 1, **as_json(total)}

    def to_json(self) -> str:
        """The state, as ASCII JSON."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__})

    @classmethod
    def from_json(cls, text: str) -> Summary:
        """The state that `to_json` wrote."""
        return cls(**json.loads(text))

    def info(self, session_id: str, path: Path) -> SessionInfo | None:
        """What a list shows; None where the log has no readable record."""
        if not self.started_at:
            return None
        rows = []
        total = Usage()
        for key, spent in self.spent.items():
            # Summaries that were stored before purposes were counted have none.
            day, provider, model, *purpose = json.loads(key)
            usage = fields_from_json(Usage, spent)
            total += usage
            rows.append(
                UsageRow(
                    session_id=session_id,
                    day=day,
                    purpose=purpose[0] if purpose else _CONVERSATION,
                    provider=provider,
                    model=model,
                    calls=spent["calls"],
                    usage=usage,
                )
            )
        return SessionInfo(
            id=session_id,
            title=self.title,
            started_at=datetime.fromisoformat(self.started_at),
            last_at=datetime.fromisoformat(self.last_at),
            turns=self.turns,
            cwd=self.cwd,
            provider=self.provider,
            model=self.model,
            private=self.private,
            path=path,
            usage=total,
            spent=tuple(rows),
            pinned=self.pinned,
            archived=self.archived,
            project=self.project,
            branch_of=self.branch_of,
            branch_turn=self.branch_turn,
            repeats=self.repeats,
            is_elsewhere=self.is_elsewhere,
        )
