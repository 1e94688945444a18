"""What is shown to a user who returns: the conversations, and the last exchanges of one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from satchel.events import AskUser, TurnStatus
from satchel.runtime.tool_display import describe_call, display_of
from satchel.sessions.view import SessionTurn, ToolCall
from satchel.wording import one_line

MOST_SAID: Final = 200
"""Earlier messages for the arrow keys."""
_MOST_CALLS: Final = 6
_CALL_CHARS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """What the user said in one turn, and how Satchel answered.

    Attributes:
        answer: The whole answer; "" if the turn never ended.
        question: The question that ended the turn, if one did.
        calls: The last calls of tools, one line each.
        status: None if the turn never ended.
    """

    turn: int
    at: datetime
    said: str
    answer: str = ""
    question: AskUser | None = None
    status: TurnStatus | None = None
    calls: tuple[str, ...] = ()


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
    calls = [call for call in turn.of(ToolCall) if not display_of(call.tool).is_question]
    return Exchange(
        turn=turn.number,
        at=turn.at,
        said=turn.said,
        answer=final.text if final is not None else "",
        question=next(turn.of(AskUser), None),
        status=final.status if final is not None else None,
        calls=tuple(
            one_line(f"{call.tool} {describe_call(call.tool, call.input)} · {call.state}", _CALL_CHARS)
            for call in calls[-_MOST_CALLS:]
        ),
    )
