"""The last exchanges of a conversation, shown to a user who returns to it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from satchel.events import AskUser, Final, Record, TurnStart, TurnStatus

__all__ = ["Exchange", "last_exchanges"]


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


def last_exchanges(records: Iterable[Record], count: int) -> tuple[Exchange, ...]:
    """The newest exchanges of a session's log, the oldest of them first.

    Args:
        records: The log, in order.
        count: The maximum number, at least 1.
    """
    found: list[Exchange] = []
    for record in records:
        match record.event:
            case TurnStart() as event:
                found.append(Exchange(turn=event.turn, at=record.at, said=event.message.text))
                del found[:-count]
            case AskUser() as event if found:
                found[-1] = replace(found[-1], question=event)
            case Final() as event if found:
                found[-1] = replace(found[-1], answer=event.text, status=event.status)
            case _:
                pass
    return tuple(found)
