"""How a session stands now, as a server tells it to a client that joins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from satchel.config import Mode
from satchel.events import AskUser, BuildPosted, MessageWaiting, QuestionAsked
from satchel.messages import Usage

if TYPE_CHECKING:
    from satchel.runtime.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningState:
    """A turn that runs: its number, and the number of the record before its first one."""

    turn: int
    after_seq: int
    waited: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionState:
    """How a session stands.

    Attributes:
        model: "provider:model", or "none".
        last_seq: The number of the newest event.
        running: The turn that runs, or None.
        is_interrupted: The program ended in the middle of the newest turn.
        question: The question of `ask_user` that the next message answers, or None.
        questions: What the running turn, or the interrupted one, asks.
        builds: What the builds of this session ask; the next four are as in `BuildNews`.
        waiting: The messages in line.
        failed_turn: The newest turn that an error ended without a result, and `failure` says why; 0 for none.
        project: The name of the project that it is in, or "".
        folder: The folder whose files (AGENTS.md, settings, tools) the program uses, or "".
    """

    id: str
    cwd: str
    private: bool
    turns: int
    model: str
    mode: Mode
    usage: Usage
    last_seq: int
    running: RunningState | None = None
    is_interrupted: bool = False
    question: AskUser | None = None
    questions: tuple[QuestionAsked, ...] = ()
    builds: tuple[BuildPosted, ...] = ()
    fresh: tuple[str, ...] = ()
    settled: tuple[tuple[BuildPosted, BuildPosted], ...] = ()
    went_on: bool = False
    under_way: tuple[str, ...] = ()
    waiting: tuple[MessageWaiting, ...] = ()
    failed_turn: int = 0
    failure: str = ""
    project: str = ""
    folder: str = ""


def state_of(session: Session, *, failed_turn: int = 0, failure: str = "", folder: str = "") -> SessionState:
    """How an open session stands; for the other arguments see `SessionState`."""
    running = session.running
    return SessionState(
        id=session.id,
        cwd=str(session.cwd),
        private=session.private,
        turns=session.turns,
        model=session.model_name,
        mode=session.mode,
        usage=session.usage,
        last_seq=session.last_seq,
        running=RunningState(turn=running.number, after_seq=running.after_seq, waited=running.waited)
        if running is not None
        else None,
        is_interrupted=session.is_interrupted,
        question=session.pending_question,
        questions=tuple(asked for asked in session.open_questions if isinstance(asked, QuestionAsked)),
        builds=session.build_questions,
        fresh=tuple(session.build_news.fresh),
        settled=tuple(session.build_news.settled),
        went_on=session.build_news.went_on,
        under_way=tuple(session.build_news.under_way),
        waiting=session.waiting,
        failed_turn=failed_turn,
        failure=failure,
        project=session.project,
        folder=folder,
    )
