"""The last exchanges of a conversation, shown to a user who returns to it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from satchel.events import AskUser, Final, Record, TurnStart, TurnStatus

__all__ = ["Exchange", "LastExchanges"]


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


class LastExchanges:
    """Visits the records of a session's log, in order (`SessionStore.load`), and keeps the newest exchanges.

    Attributes:
        found: The exchanges, the oldest first.
    """

    def __init__(self, count: int) -> None:
        """Keep `count` exchanges, at least 1."""
        self.found: list[Exchange] = []
        self._count = count

    def __call__(self, record: Record) -> None:
        """Take the next record."""
        found = self.found
        match record.event:
            case TurnStart() as event:
                found.append(Exchange(turn=event.turn, at=record.at, said=event.message.text))
                del found[: -self._count]
            case AskUser() as event if found:
                found[-1] = replace(found[-1], question=event)
            case Final() as event if found:
                found[-1] = replace(found[-1], answer=event.text, status=event.status)
            case _:
                pass
