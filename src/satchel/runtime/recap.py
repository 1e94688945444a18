"""What is shown to a user who returns: the conversations, and the last exchanges of one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from satchel.events import AskUser, TurnStatus
from satchel.sessions.view import SessionTurn

MOST_SAID: Final = 200
"""Earlier messages for the arrow keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """What the user said in one turn, and how Satchel answered.

    Attributes:
        answer: The whole answer; "" if the turn never ended.
        question: The question that ended the turn, if one did.
        status: None if the turn never ended.
    """

    turn: int
    at: datetime
    said: str
    answer: str = ""
    question: AskUser | None = None
    status: TurnStatus | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedSession:
    """A session in a list; `title` is the user's first message, shortened."""

    id: str
    title: str
    last_at: datetime
    turns: int
    cwd: str
    branches: tuple[str, ...] = ()


def exchange_of(turn: SessionTurn) -> Exchange:
    """The exchange of a turn."""
    final = turn.closing.final if turn.closing is not None else None
    return Exchange(
        turn=turn.number,
        at=turn.at,
        said=turn.said,
        answer=final.text if final is not None else "",
        question=next(turn.of(AskUser), None),
        status=final.status if final is not None else None,
    )
