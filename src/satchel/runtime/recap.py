"""The last exchanges of a conversation, shown to a user who returns to it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from satchel.events import AskUser, TurnStatus
from satchel.sessions.view import SessionTurn

__all__ = ["Exchange", "exchange_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """What the user said in one turn, and how Satchel answered.

    Attributes:
        at: When the user said it.
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
