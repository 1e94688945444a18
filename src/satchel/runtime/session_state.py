"""How a session stands now, as a server tells it to a client that joins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from satchel.config import Mode
from satchel.events import (
    AskUser,
    BuildPosted,
    Event,
    MessageWaiting,
    QuestionAsked,
    event_from_json,
    event_to_json,
)
from satchel.messages import Usage, usage_from_json, usage_to_json

if TYPE_CHECKING:
    from satchel.runtime.session import Session

__all__ = ["RunningState", "SessionState", "state_from_json", "state_of", "state_to_json"]

_E = TypeVar("_E")


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
        builds: What the builds of this session ask; `fresh`, `settled` and `went_on` are as in `BuildNews`.
        waiting: The messages in line.
        failed_turn: The newest turn that an error ended without a result, and `failure` says why; 0 for none.
        project: The folder whose files (AGENTS.md, settings, tools) the program uses, or "".
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
    waiting: tuple[MessageWaiting, ...] = ()
    failed_turn: int = 0
    failure: str = ""
    project: str = ""


def state_of(session: Session, *, failed_turn: int = 0, failure: str = "", project: str = "") -> SessionState:
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
        waiting=session.waiting,
        failed_turn=failed_turn,
        failure=failure,
        project=project,
    )


def state_to_json(state: SessionState) -> dict[str, Any]:
    """The state as plain JSON data."""
    running = state.running
    return {
        "id": state.id,
        "cwd": state.cwd,
        "private": state.private,
        "turns": state.turns,
        "model": state.model,
        "mode": state.mode,
        "usage": usage_to_json(state.usage),
        "last_seq": state.last_seq,
        "running": asdict(running) if running is not None else None,
        "is_interrupted": state.is_interrupted,
        "question": event_to_json(state.question) if state.question is not None else None,
        "questions": [event_to_json(question) for question in state.questions],
        "builds": [event_to_json(question) for question in state.builds],
        "fresh": list(state.fresh),
        "settled": [[event_to_json(question), event_to_json(end)] for question, end in state.settled],
        "went_on": state.went_on,
        "waiting": [event_to_json(message) for message in state.waiting],
        "failed_turn": state.failed_turn,
        "failure": state.failure,
        "project": state.project,
    }


def state_from_json(value: Mapping[str, Any]) -> SessionState:
    """Inverse of `state_to_json`. Unknown fields are ignored.

    Raises:
        ValueError, KeyError, TypeError: It is no such state.
    """
    running = value["running"]
    return SessionState(
        id=value["id"],
        cwd=value["cwd"],
        private=value["private"],
        turns=value["turns"],
        model=value["model"],
        mode=value["mode"],
        usage=usage_from_json(value["usage"]),
        last_seq=value["last_seq"],
        running=RunningState(**running) if running else None,
        is_interrupted=value["is_interrupted"],
        question=_event(value["question"], AskUser) if value["question"] else None,
        questions=tuple(_event(each, QuestionAsked) for each in value["questions"]),
        builds=tuple(_event(each, BuildPosted) for each in value["builds"]),
        fresh=tuple(value.get("fresh", ())),
        settled=tuple(
            (_event(question, BuildPosted), _event(end, BuildPosted))
            for question, end in value.get("settled", ())
        ),
        went_on=value.get("went_on", False),
        waiting=tuple(_event(each, MessageWaiting) for each in value.get("waiting", ())),
        failed_turn=value["failed_turn"],
        failure=value["failure"],
        project=value["project"],
    )


def _event(value: Mapping[str, Any], cls: type[_E]) -> _E:
    event: Event = event_from_json(value)
    if not isinstance(event, cls):
        raise ValueError(f"An event of type {event.type!r} stands where another belongs.")
    return event
